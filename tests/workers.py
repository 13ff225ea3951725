"""Real worker processes, brokers and a payment server for the tests of deferred processing."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from uuid import uuid4

from tests.__main__ import RABBITMQ_URL as RABBITMQ
from tests.servers import ROOT

__all__ = ["RABBITMQ", "Payments", "Redis", "Worker", "working"]

#: Kind of worker → its command.
COMMANDS = {
    "sweeper": ["-m", "django", "webhook_sweep", "--forever", "--interval", "0.2", "-v2"],
    "tasks": ["-m", "django", "db_worker", "--interval", "0.1", "--no-startup-delay", "--queue-name", "*"],
    "celery": [
        "-m", "celery", "-A", "tests.project.broker", "worker", "--concurrency", "2", "--loglevel", "INFO",
        "--without-gossip", "--without-mingle", "--without-heartbeat",
    ],
}  # fmt: skip


class Worker:
    """A worker over the live project, in a process group of its own.

    Args:
        database: What it uses.
        log: The file that takes its output.
        kind: A key of ``COMMANDS``.
        env: Environment.
    """

    def __init__(self, database, log, kind, **env):
        self.kind, self.log_path = kind, log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, *COMMANDS[kind]],
                cwd=ROOT, env=database.environ(PYTHONUNBUFFERED="1", **env),
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def log(self):
        return self.log_path.read_text(errors="replace")

    def alive(self):
        return self.process.poll() is None

    def stop(self, timeout=20):
        """Ask it to end; return how it did."""
        if self.alive():
            self.process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout)
        code = self.process.poll()
        self.kill()
        return code

    def kill(self):
        """``kill -9`` for everything in its process group."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def working(database, log, kind, **env):
    worker = Worker(database, log, kind, **env)
    try:
        yield worker
    finally:
        worker.stop(timeout=5)


class Redis:
    """A Redis of our own, which may be stopped and started."""

    def __init__(self, folder):
        self.folder = folder
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.process = None

    def start(self):
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"],
            cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                if connection.recv(16).startswith(b"+PONG"):
                    return self
            time.sleep(0.05)
        raise RuntimeError("Redis does not come up")

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


class Payments:
    """The other side of ``event.once``: charges once per key, and forgets keys after a while.

    Args:
        forgets: Seconds after which a key is forgotten.
        draw: Returns what goes wrong with a call: nothing, ``refuse`` (not done, and says so), ``drop`` (done, and
            the answer is lost), ``slow``.
    """

    def __init__(self, forgets=3600, draw=lambda: ""):
        self.forgets, self.draw = forgets, draw
        self.charges = []  # (name, key)
        self.keys = {}  # name -> keys that it was asked with
        self._known, self._lock = {}, Lock()
        payments = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                payments.serve(self)

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"127.0.0.1:{self.server.server_address[1]}"
        Thread(target=self.server.serve_forever, daemon=True).start()

    def serve(self, request):
        body = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
        name, key, wrong = body["name"], request.headers["Idempotency-Key"], self.draw()
        if wrong == "refuse":
            return self._answer(request, 429, {})
        if wrong == "slow":
            time.sleep(0.3)
        with self._lock:
            self.keys.setdefault(name, set()).add(key)
            known = self._known.get(key)
            if known is None or time.monotonic() - known[0] > self.forgets:
                known = (time.monotonic(), {"id": f"ch_{uuid4().hex}"})
                self._known[key] = known
                self.charges.append((name, key))
        if wrong == "drop":
            return request.connection.close()
        return self._answer(request, 200, known[1])

    def _answer(self, request, status, content):
        body = json.dumps(content).encode()
        with suppress(OSError):
            request.send_response(status)
            request.send_header("Content-Length", str(len(body)))
            request.end_headers()
            request.wfile.write(body)

    def close(self):
        self.server.shutdown()
        self.server.server_close()
