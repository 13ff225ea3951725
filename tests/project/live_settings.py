"""Settings of the servers that the live tests start; the environment says what differs between them."""

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES, INSTALLED_APPS, MIDDLEWARE, WEBHOOK_GUARD, env

INSTALLED_APPS = [*INSTALLED_APPS[:-1], "tests.project.live.LiveConfig"]
MIDDLEWARE = ["tests.project.killer.killer", *MIDDLEWARE]

DATABASES["default"]["CONN_MAX_AGE"] = env.int("LIVE_CONN_MAX_AGE", default=0)
DATABASES["default"]["ATOMIC_REQUESTS"] = env.bool("LIVE_ATOMIC_REQUESTS", default=False)
if env.str("LIVE_POOL", default=""):
    DATABASES["default"]["OPTIONS"] = {"pool": {"max_size": 4}}
if env.str("LIVE_SQLITE_OPTIONS", default=""):
    DATABASES["default"]["OPTIONS"] = env.json("LIVE_SQLITE_OPTIONS")


def _like(provider, secret, **options):
    return {"PROVIDER": provider, "SECRETS": [secret], **options}


DISPATCHER = env.str("LIVE_DISPATCHER", default="sweeper")
if DISPATCHER == "tasks":
    INSTALLED_APPS += ["django_tasks_db"]
    TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}}

WEBHOOK_GUARD = {
    "LEASE": env.float("LIVE_LEASE", default=60),
    "PROCESSING": env.str("LIVE_PROCESSING", default="inline"),
    "DISPATCHER": DISPATCHER,
    "RETRY": {"base": 0.2, "jitter": 0, "max_delay": 2, "max_attempts": env.int("LIVE_ATTEMPTS", default=20)},
    "SOURCES": {
        **WEBHOOK_GUARD["SOURCES"],
        # A window that a test can wait for.
        "brief-stripe": _like("stripe", "whsec_brief456789abcdef0123", TOLERANCE=6),
        "brief-partner": _like("signed-nonce", "brief-partner-456789abcdef", TOLERANCE=6),
        # One attempt, then dead.
        "once": _like("stripe", "whsec_once3456789abcdef0123", RETRY={"max_attempts": 1}),
        # The secret of https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
        "github-docs": _like("github", "It's a Secret to Everybody"),
    },
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "[%(levelname)s] %(name)s: %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "root": {"handlers": ["console"], "level": "INFO"},
    # Django's own handlers go, so that each line is written once.
    "loggers": {"django": {"handlers": [], "propagate": True}},
}
