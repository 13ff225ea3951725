"""Open the admin's pages over a large table: seconds and queries of each page, and the plan of the list's query.

    DATABASE_URL=postgres://… python -m benchmarks.admin_pages [--rows 1000000]

The database is filled by one statement where the table holds fewer rows; it is left as it is afterwards.
"""

import argparse
import os
import time

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

import django

django.setup()

from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from django_webhook_guard.models import WebhookReceipt

NUMBERS = {
    "postgresql": "generate_series({first}, {last}) AS numbers(n)",
    "mysql": "(SELECT seq AS n FROM seq_{first}_to_{last}) AS numbers",
    "sqlite": "(WITH RECURSIVE numbers(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM numbers WHERE n < {last}) "
    "SELECT n FROM numbers) AS numbers",
}
#: 64 hex of a number; how it spreads does not matter for reading.
FINGERPRINT = {
    "postgresql": "encode(sha256(n::text::bytea), 'hex')",
    "mysql": "SHA2(n, 256)",
    "sqlite": "printf('%064x', n * 2654435761 % 4294967296 * 1000000 + n)",
}
TEXT = {"postgresql": "'evt_' || n", "mysql": "CONCAT('evt_', n)", "sqlite": "'evt_' || n"}
AGO = {
    "postgresql": "now() - n * interval '1 second'",
    "mysql": "UTC_TIMESTAMP(6) - INTERVAL n SECOND",
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f', 'now', -n || ' seconds')",
}
STATUS = (
    "CASE WHEN n % 1000 = 0 THEN 'dead' WHEN n % 500 = 0 THEN 'failed' WHEN n % 7 = 0 THEN 'ignored' "
    "ELSE 'processed' END"
)
EMPTY_JSON = {"postgresql": ("'[]'::jsonb", "'{}'::jsonb")}
BYTES = {
    "postgresql": "convert_to('{\"id\": 1}', 'UTF8')",
    "mysql": "'{\"id\": 1}'",
    "sqlite": "CAST('{\"id\": 1}' AS BLOB)",
}


def fill(rows):
    vendor, table = connection.vendor, WebhookReceipt._meta.db_table
    have = WebhookReceipt.objects.count()
    if have >= rows:
        return
    handlers, headers = EMPTY_JSON.get(vendor, ("'[]'", "'{}'"))
    ago = AGO[vendor]
    columns = {
        "fingerprint": FINGERPRINT[vendor],
        "source": "CASE WHEN n % 3 = 0 THEN 'github' ELSE 'stripe' END",
        "event_id": TEXT[vendor],
        "event_type": "'invoice.paid'",
        "object_key": "'in_1'",
        "idempotency_key": TEXT[vendor],
        "key_origin": "'id'",
        "key_id": "'0a1b2c3d'",
        "request_id": "''",
        "status": STATUS,
        "reason": "''",
        "result": "''",
        "handlers": handlers,
        "last_handler": "''",
        "attempts": "1",
        "excused": "0",
        "deliveries": "1",
        "received_at": ago,
        "last_delivered_at": ago,
        "budget_from": ago,
        "headers": headers,
        "body": BYTES[vendor],
        "body_digest": "''",
        "body_size": "9",
    }
    numbers = NUMBERS[vendor].format(first=have + 1, last=rows)
    sql = f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(columns.values())} FROM {numbers}"
    with connection.cursor() as cursor:
        cursor.execute(sql)
        cursor.execute(f"ANALYZE TABLE {table}" if vendor == "mysql" else f"ANALYZE {table}")


def pages():
    listing = reverse("admin:django_webhook_guard_webhookreceipt_changelist")
    newest = WebhookReceipt.objects.order_by("-pk").values_list("pk", flat=True)[0]
    yield "list", listing
    yield "list, page 10", f"{listing}?p=10"
    yield "failed", f"{listing}?status=failed"
    yield "dead", f"{listing}?status=dead"
    yield "one source", f"{listing}?source=github"
    yield "search of an id", f"{listing}?q=evt_{newest}"
    yield "search of nothing", f"{listing}?q=evt_none"
    yield "detail", reverse("admin:django_webhook_guard_webhookreceipt_change", args=[newest])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    call_command("migrate", verbosity=0)
    fill(parser.parse_args().rows)
    client = Client(SERVER_NAME="localhost")
    user, _ = get_user_model().objects.get_or_create(username="bench", is_staff=True, is_superuser=True)
    client.force_login(user)
    print(f"{connection.vendor}, {WebhookReceipt.objects.count()} receipts")
    for name, url in pages():
        client.get(url)
        begin = time.perf_counter()
        with CaptureQueriesContext(connection) as queries:
            response = client.get(url)
        slowest = max(queries.captured_queries, key=lambda query: float(query["time"]))
        print(
            f"{name:<20}{response.status_code:>5}{time.perf_counter() - begin:>8.3f} s{len(queries):>4} queries, "
            f"slowest {slowest['time']} s: {slowest['sql'][:90]}"
        )


if __name__ == "__main__":
    main()
