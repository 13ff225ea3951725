"""Settings of the example shop. They work as they are; an environment variable or a line in ``.env`` changes one.

No secret stands here. What the environment does not give is drawn at random in each process: such a source is
set up, and nobody can sign for it. ``manage.py demo`` draws its secrets and gives them to its server.
"""

import os
import secrets
from collections import ChainMap
from pathlib import Path
from typing import Any

import environ
from django.core.management.utils import get_random_secret_key

from django_webhook_guard.environ import sources

BASE_DIR = Path(__file__).resolve().parent.parent
DEFAULTS = {
    "SECRET_KEY": get_random_secret_key().lstrip("$"),  # django-environ reads a leading $ as another variable's name
    "DATABASE_URL": f"sqlite:///{BASE_DIR / 'db.sqlite3'}",
    "WEBHOOK_SOURCES": "stripe,partner",
    "WEBHOOK_STRIPE_SECRETS": secrets.token_hex(24),
    "WEBHOOK_PARTNER_PROVIDER": "signed-nonce",
    "WEBHOOK_PARTNER_SECRETS": secrets.token_hex(24),
    "WEBHOOK_TOLERANCE": "300",
}
environ.Env.read_env(BASE_DIR / ".env")
env = environ.Env()
env.ENVIRON = ChainMap(os.environ, DEFAULTS)

SECRET_KEY = env.str("SECRET_KEY")
DEBUG = env.bool("DEBUG", default=False)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["127.0.0.1", "localhost"])
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "django_webhook_guard",
    "example_project.shop",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
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
ROOT_URLCONF = "example_project.urls"
WSGI_APPLICATION = "example_project.wsgi.application"
LOGIN_URL = "admin:login"
STATIC_URL = "/static/"
USE_TZ = True
TIME_ZONE = "UTC"


def database(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a database, with SQLite set up for a server and a sweeper at the same time."""
    if settings["ENGINE"].endswith("sqlite3"):
        settings["OPTIONS"] = {
            "transaction_mode": "IMMEDIATE",  # a transaction that will write waits for its turn instead of failing
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL;",
        }
    return settings


DATABASES = {"default": database(env.db_url("DATABASE_URL"))}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

WEBHOOK_GUARD = {
    "SOURCES": sources(env),
    "TOLERANCE": env.float("WEBHOOK_TOLERANCE"),
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "loggers": {"django_webhook_guard": {"handlers": ["console"], "level": env.str("LOG_LEVEL", default="WARNING")}},
}
