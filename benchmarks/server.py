"""The server that is measured: the package beside a hand-written minimal view, on one database.

The hand-written view is what a careful team writes: HMAC over the raw body, time window, strict enough JSON, one
``INSERT … ON CONFLICT DO NOTHING``, a handler, one ``UPDATE``. Two statements, two commits, no lease, no retry.
"""

import hmac
import json
import logging
import os
import time

import environ
from django.conf import settings

SECRET = "whsec_0123456789abcdef0123"
#: Whether both views only store the event and answer.
DEFERRED = bool(os.environ.get("BENCHMARK_DEFERRED"))


def _database():
    database = environ.Env.db_url_config(os.environ["DATABASE_URL"])
    database["CONN_MAX_AGE"] = 600
    if database["ENGINE"].endswith("sqlite3"):
        database["OPTIONS"] = {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        }
    return database


settings.configure(
    SECRET_KEY="only for benchmarks",
    ALLOWED_HOSTS=["127.0.0.1"],
    DATABASES={"default": _database()},
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "django_webhook_guard"],
    MIDDLEWARE=[],
    ROOT_URLCONF="benchmarks.server",
    USE_TZ=True,
    LOGGING_CONFIG=None,
    WEBHOOK_GUARD={
        "PROCESSING": "deferred" if DEFERRED else "inline",
        "SOURCES": {"stripe": {"PROVIDER": "stripe", "SECRETS": [SECRET]}},
    },
)

import django

logging.getLogger().addHandler(logging.NullHandler())  # both sides write their records, and nobody prints them

django.setup()

from django.core.wsgi import get_wsgi_application
from django.db import IntegrityError, connection
from django.http import HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from django_webhook_guard.handlers import webhook_handler
from django_webhook_guard.views import WebhookView

CREATE = {
    "postgresql": "CREATE TABLE IF NOT EXISTS floor_event (id bigserial PRIMARY KEY, event_id varchar(255) UNIQUE, "
    "type varchar(255), body bytea, status varchar(16), received_at timestamptz, processed_at timestamptz)",
    "mysql": "CREATE TABLE IF NOT EXISTS floor_event (id bigint AUTO_INCREMENT PRIMARY KEY, event_id varchar(255) "
    "UNIQUE, type varchar(255), body longblob, status varchar(16), received_at datetime(6), processed_at datetime(6))",
    "sqlite": "CREATE TABLE IF NOT EXISTS floor_event (id integer PRIMARY KEY, event_id varchar(255) UNIQUE, "
    "type varchar(255), body blob, status varchar(16), received_at text, processed_at text)",
}
NOW = {"postgresql": "now()", "mysql": "UTC_TIMESTAMP(6)", "sqlite": "datetime('now')"}
_vendor = connection.vendor
_INSERT = (
    f"INSERT INTO floor_event (event_id, type, body, status, received_at) VALUES (%s, %s, %s, %s, {NOW[_vendor]})"
    + (" ON CONFLICT DO NOTHING RETURNING id" if _vendor == "postgresql" else "")
)
_DONE = f"UPDATE floor_event SET status = 'processed', processed_at = {NOW[_vendor]} WHERE id = %s"


def work(event):
    """The handler of both: it does nothing, so that the frame around it is what is measured."""


@webhook_handler("stripe", "invoice.*")
def handle(event):
    work(event)


def _insert(cursor, data, body, status):
    parameters = [data["id"], data["type"], body, status]
    if _vendor == "postgresql":
        cursor.execute(_INSERT, parameters)
        found = cursor.fetchone()
        return found[0] if found else None
    try:
        cursor.execute(_INSERT, parameters)
    except IntegrityError:
        return None
    return cursor.lastrowid


@csrf_exempt
def floor(request):
    body = request.body
    try:
        parts = dict(item.split("=", 1) for item in request.headers["Stripe-Signature"].split(","))
        expected = hmac.new(SECRET.encode(), parts["t"].encode() + b"." + body, "sha256").hexdigest()
        genuine = hmac.compare_digest(expected, parts["v1"]) and abs(time.time() - int(parts["t"])) <= 300
    except (KeyError, ValueError):
        genuine = False
    if not genuine:
        return HttpResponse(b'{"status": "rejected"}', status=401, content_type="application/json")
    data = json.loads(body)
    handled = data["type"].startswith("invoice.")
    with connection.cursor() as cursor:
        row = _insert(cursor, data, body, "received" if handled else "ignored")
        if row is not None and handled and not DEFERRED:
            work(data)
            cursor.execute(_DONE, [row])
    status = "duplicate" if row is None else "processed"
    return HttpResponse(json.dumps({"status": status}), content_type="application/json")


urlpatterns = [
    path("floor/", floor),
    path("guard/", WebhookView.as_view(source="stripe")),
]
application = get_wsgi_application()
