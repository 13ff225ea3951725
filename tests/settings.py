"""Settings of the test project; ``DATABASE_URL`` chooses the database."""

from importlib.util import find_spec

import environ

env = environ.Env()

SECRET_KEY = "only for the tests of django-webhook-guard"
DEBUG = False
USE_TZ = True
TIME_ZONE = "America/Sao_Paulo"  # far from UTC, so that a naive time shows
ALLOWED_HOSTS = ["testserver", "127.0.0.1", "localhost"]
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "rest_framework",
    "django_webhook_guard",
    "tests.project",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
ROOT_URLCONF = "tests.project.urls"
# The test group has it; without it, only the descriptions are not tested.
REST_FRAMEWORK = {"DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema"} if find_spec("drf_spectacular") else {}
STATIC_URL = "/static/"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

DATABASE_URL = env.str("DATABASE_URL", default="sqlite://:memory:")


def database(url, **test):
    """Return the settings of one database, SQLite set up for more than one process."""
    settings = environ.Env.db_url_config(url)
    if settings["ENGINE"].endswith("sqlite3"):
        settings["OPTIONS"] = {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL;",
        }
    return {**settings, "TEST": test}


DATABASES = {
    "default": database(DATABASE_URL),
    # A second database, for handlers that write elsewhere and for ATOMIC_REQUESTS on several aliases.
    "other": database("sqlite://:memory:"),
}

WEBHOOK_GUARD = {
    "SOURCES": {
        "stripe": {"PROVIDER": "stripe", "SECRETS": ["whsec_0123456789abcdef0123"]},
        "github": {"PROVIDER": "github", "SECRETS": ["s3cret-0123456789abcdef"]},
        "partner": {"PROVIDER": "signed-nonce", "SECRETS": ["partner-0123456789abcdef"]},
    }
}
