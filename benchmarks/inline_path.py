"""Measure the inline path against a hand-written minimal view: server CPU and throughput, as ratios of one run.

    DATABASE_URL=postgres://… python -m benchmarks.inline_path [--requests 2000] [--rounds 5] [--deferred]

With ``--deferred`` both views only store the event and answer.

For each kind of delivery the two views take turns, round by round, so that the machine's mood falls on both. CPU is
what the server's worker processes used (user and system), read from /proc; the database server's own is not in it.
"""

import argparse
import hashlib
import hmac
import http.client
import json
import os
import secrets
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

SECRET = b"whsec_0123456789abcdef0123"
KINDS = ("new", "duplicate", "unhandled", "forged")
PADDING = {"lines": [{"id": f"il_{n}", "amount": n * 100, "note": "x" * 20} for n in range(14)]}


def delivery(kind, number, seed):
    """Return body and headers of a 1 kB Stripe delivery."""
    identity = f"evt_{seed}_{0 if kind == 'duplicate' else number}"
    event_type = "customer.created" if kind == "unhandled" else "invoice.paid"
    body = json.dumps({"id": identity, "type": event_type, "created": 1700000000, "data": {"object": PADDING}}).encode()
    stamp = str(int(time.time()))
    signature = hmac.new(SECRET, stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    if kind == "forged":
        signature = secrets.token_hex(32)
    return body, {"Stripe-Signature": f"t={stamp},v1={signature}", "Content-Type": "application/json"}


def fire(port, path, deliveries, clients):
    """Send all deliveries from a few threads; return the wall seconds and the statuses seen."""
    statuses, lock = {}, threading.Lock()

    def send(share):
        for body, headers in share:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("POST", path, body, headers)
            status = connection.getresponse().status
            connection.close()
            with lock:
                statuses[status] = statuses.get(status, 0) + 1

    threads = [threading.Thread(target=send, args=(deliveries[n::clients],)) for n in range(clients)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begin, statuses


def cpu_seconds(parent):
    """Return user and system seconds of a process's children."""
    ticks = os.sysconf("SC_CLK_TCK")
    total = 0
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        values = Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()
        total += int(values[11]) + int(values[12])
    return total / ticks


def serve(port):
    command = [sys.executable, "-m", "gunicorn", "benchmarks.server:application", "-b", f"127.0.0.1:{port}"]
    command += ["-w", "2", "-k", "sync", "--log-level", "warning"]
    server = subprocess.Popen(command, start_new_session=True)
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return server
        time.sleep(0.1)
    raise SystemExit("the server does not start")


def prepare():
    """Migrate, and make the hand-written view's table."""
    code = (
        "from benchmarks import server; from django.core.management import call_command; "
        "from django.db import connection; call_command('migrate', verbosity=0); "
        "c = connection.cursor(); c.execute(server.CREATE[connection.vendor]); "
        "c.execute('DELETE FROM floor_event'); c.execute('DELETE FROM django_webhook_guard_webhookreceipt')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def measure(server, port, arguments):
    """Return {kind: {path: [(cpu µs per request, requests per second), …]}}."""
    kinds = ("new", "duplicate") if arguments.deferred else KINDS
    found = {kind: {"/floor/": [], "/guard/": []} for kind in kinds}
    for round_number in range(-1, arguments.rounds):
        for kind in kinds:
            for path in ("/floor/", "/guard/"):
                seed = f"{round_number}_{kind}_{secrets.token_hex(4)}"
                deliveries = [delivery(kind, number, seed) for number in range(arguments.requests)]
                if kind == "duplicate":  # its first copy is a new event, and later ones wait for its end
                    fire(port, path, deliveries[:1], 1)
                before = cpu_seconds(server.pid)
                wall, statuses = fire(port, path, deliveries, arguments.clients)
                cpu = cpu_seconds(server.pid) - before
                held = 202 if arguments.deferred and path == "/guard/" else 200
                if set(statuses) != ({401} if kind == "forged" else {held}):
                    raise SystemExit(f"{kind} {path}: unexpected answers {statuses}")
                if round_number >= 0:  # the first round only warms up
                    found[kind][path].append((cpu / len(deliveries) * 1e6, len(deliveries) / wall))
    return found


def report(found):
    print(
        f"{'delivery':<11}{'CPU floor':>10}{'CPU guard':>10}{'ratio':>7}   {'req/s floor':>11}{'guard':>8}{'ratio':>7}"
    )
    for kind, paths in found.items():
        floor_cpu, floor_rate = (statistics.median(column) for column in zip(*paths["/floor/"], strict=True))
        guard_cpu, guard_rate = (statistics.median(column) for column in zip(*paths["/guard/"], strict=True))
        print(
            f"{kind:<11}{floor_cpu:>7.0f} µs{guard_cpu:>7.0f} µs{guard_cpu / floor_cpu:>7.2f}   "
            f"{floor_rate:>11.0f}{guard_rate:>8.0f}{guard_rate / floor_rate:>7.2f}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=1500, help="per kind, view and round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--deferred", action="store_true", help="store and answer; nothing runs")
    arguments = parser.parse_args()
    if arguments.deferred:
        os.environ["BENCHMARK_DEFERRED"] = "1"
    prepare()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = serve(port)
    try:
        report(measure(server, port, arguments))
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(20)


if __name__ == "__main__":
    main()
