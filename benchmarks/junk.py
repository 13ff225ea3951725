"""Send junk to a server as fast as it takes it: its memory, its log and its tables must stay as they are.

    python -m benchmarks.junk [--seconds 30] [DATABASE_URL]

By hand, and never against a database that matters: it makes one of its own. Forged signatures, headers without a proof,
sources that nobody configured and other methods, over connections that are kept open. At the end the counts of the
table, which the server's processes write now and then and at their end, must be what was answered.
"""

import argparse
import http.client
import os
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from threading import Thread

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

import django

from tests.servers import LiveDatabase, Server

django.setup()

SENDERS, EVERY = 4, 5.0
PREFIX = "django_webhook_guard_webhook"


def junk(chance):
    """Return one request that nobody signed: method, path, body, headers."""
    body = chance.randbytes(chance.randrange(2_000))
    forged = chance.randbytes(32).hex()
    name = f"x{chance.randrange(10**9)}"
    return chance.choice([
        ("POST", "/webhooks/stripe/", body, {"Stripe-Signature": f"t={int(time.time())},v1={forged}"}),
        ("POST", "/webhooks/github/", body, {"X-Hub-Signature-256": f"sha256={forged}"}),
        ("POST", "/webhooks/stripe/", body, {"User-Agent": name}),
        ("POST", f"/webhooks/{name}/", body, {}),
        ("GET", f"/webhooks/stripe/?{name}", b"", {}),
    ])  # fmt: skip


def send(port, until, seed, answers):
    chance, connection = random.Random(seed), None
    while time.monotonic() < until:
        try:
            connection = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request(*junk(chance))
            response = connection.getresponse()
            response.read()
            answers[response.status] += 1
        except (OSError, http.client.HTTPException):
            answers["dropped"] += 1
            connection = None


def memory(server):
    """Return how many MiB the workers hold together."""
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in server.workers())
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def rows(database, table):
    return database.query(f"SELECT COUNT(*) AS n FROM {PREFIX}{table}")[0]["n"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("url", nargs="?", default="sqlite://")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        database = LiveDatabase(given.url, Path(folder), LIVE_LEASE=60)
        try:
            database.create()
            server = Server(database, Path(folder, "log"), kind="gthread", workers=2, threads=4)
            try:
                measure(database, server, given.seconds)
            finally:
                server.kill()
        finally:
            database.drop()


def measure(database, server, seconds):
    found = [Counter() for _ in range(SENDERS)]
    started = time.monotonic()
    senders = [
        Thread(target=send, args=(server.port, started + seconds, seed, each)) for seed, each in enumerate(found)
    ]
    print(f"{database.vendor}\n\n| after | requests | memory of 2 workers | log | receipts | rows of counts |")
    print("|---:|---:|---:|---:|---:|---:|")
    for each in senders:
        each.start()
    for moment in [1.0, *(EVERY * turn for turn in range(1, int(seconds / EVERY) + 1))]:
        time.sleep(max(0.0, started + moment - time.monotonic()))
        answered = sum(sum(each.values()) for each in found)
        print(
            f"| {moment:.0f} s | {answered:,} | {memory(server):.1f} MiB | {server.log_path.stat().st_size:,} B "
            f"| {rows(database, 'receipt')} | {rows(database, 'count')} |",
            flush=True,
        )
    for each in senders:
        each.join()
    server.stop()
    answers = sum(found, Counter())
    (counted,) = database.query(f"SELECT SUM(count) AS n FROM {PREFIX}count")
    print(f"\nAnswered: {dict(answers)}.")
    print(
        f"Counted when the server had ended: {int(counted['n']):,} of {sum(answers.values()) - answers['dropped']:,}, "
    )
    print("and what the start of the server asked to see whether it is up.")


if __name__ == "__main__":
    main()
