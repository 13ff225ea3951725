"""Real server processes for the tests: gunicorn or runserver on a loopback port, a database of their own, a client."""

import hashlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from getpass import getuser
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier
from urllib.parse import urlsplit

from django.db.utils import load_backend
from gunicorn.config import Config

from tests import senders
from tests.settings import database as database_settings

ROOT = Path(__file__).parent.parent
SETTINGS = "tests.project.live_settings"
# Releases that can be controlled over a socket would share one in the user's folder.
QUIET = ["--no-control-socket"] if "control_socket_disable" in Config().settings else []


class Dropped(Exception):
    """The server went away without an answer."""


@dataclass(frozen=True)
class Answer:
    """What a sender heard."""

    status: int
    text: str
    headers: dict
    seconds: float

    @property
    def decision(self):
        return json.loads(self.text)["status"]


# -- the database ------------------------------------------------------------------------------------------------------


class LiveDatabase:
    """A database that servers and tests share, made with ``migrate`` and dropped at the end.

    Args:
        url: Where: of PostgreSQL and MariaDB the name is made unique, SQLite becomes a file.
        folder: Where that file goes.
        env: Environment of every process that uses it.
    """

    _made = 0

    def __init__(self, url, folder, **env):
        split = urlsplit(url)
        LiveDatabase._made += 1
        name = f"{split.path.strip('/') or 'webhooks'}_live_{os.getpid()}_{LiveDatabase._made}"
        if split.scheme == "sqlite":
            self.url = f"sqlite:///{folder / 'live.sqlite3'}"
        else:
            self.url = split._replace(path=f"/{name}").geturl()
        self.env = env
        self.name = name
        self._settings = {"TIME_ZONE": None, "CONN_HEALTH_CHECKS": False, "CONN_MAX_AGE": 0, "AUTOCOMMIT": True}
        self._settings |= {"ATOMIC_REQUESTS": False, "OPTIONS": {}, **database_settings(self.url)}
        if split.scheme == "sqlite":
            self._settings["OPTIONS"] = {"timeout": 30}  # only reads; leaves the file's mode to the servers

    def behind(self, port):
        """Return the same database as it is reached through a pooler on a port, its server side cursors off."""
        reached = copy(self)
        user = urlsplit(self.url).netloc.rpartition("@")[0]
        netloc = f"{user}@127.0.0.1:{port}" if user else f"127.0.0.1:{port}"
        reached.url = urlsplit(self.url)._replace(netloc=netloc, query="disable_server_side_cursors=True").geturl()
        reached._settings = {**self._settings, **database_settings(reached.url)}
        return reached

    @property
    def vendor(self):
        return self._connection().vendor

    def _connection(self):
        return load_backend(self._settings["ENGINE"]).DatabaseWrapper(self._settings, "live")

    def create(self):
        if self.vendor != "sqlite":
            self._outside(f"CREATE DATABASE {self.name}")
        self.manage("migrate", "--run-syncdb", "-v0")
        return self

    def drop(self):
        if self.vendor == "postgresql":
            self._outside(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")
        elif self.vendor == "mysql":
            self._outside(f"DROP DATABASE IF EXISTS {self.name}")

    def _outside(self, sql):
        connection = self._connection()
        with closing(connection), connection._nodb_cursor() as cursor:
            cursor.execute(sql)

    def query(self, sql, params=()):
        """Return rows as dicts, read on a connection of its own; of other statements the number of rows."""
        with closing(self._connection()) as connection, connection.cursor() as cursor:
            cursor.execute(sql, params)
            if cursor.description is None:
                return cursor.rowcount
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def manage(self, *arguments, **env):
        """Run a management command in a process of its own; return its CompletedProcess."""
        done = subprocess.run(
            [sys.executable, "-m", "django", *arguments],
            cwd=ROOT, env=self.environ(**env), capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        if done.returncode and "LIVE_KILL" not in env:
            raise RuntimeError(f"{' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
        return done

    def sweep(self, **env):
        return self.manage("webhook_sweep", "--batch", "10000", **env)

    def environ(self, **env):
        given = {**self.env, **env}
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": SETTINGS,
            "DATABASE_URL": self.url,
            **{name: str(value) for name, value in given.items()},
        }

    @property
    def an_hour_ago(self):
        """That moment in SQL, for a statement with parameters."""
        return {"postgresql": "now() - interval '1 hour'", "mysql": "UTC_TIMESTAMP(6) - INTERVAL 1 HOUR"}.get(
            self.vendor, "strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', '-1 hour')"
        )

    def end_leases(self):
        """Do what waiting does: the leases of all runs that died are over; return how many."""
        return self.query(
            "UPDATE django_webhook_guard_webhookreceipt "
            f"SET lease_until = {self.an_hour_ago}, due_at = {self.an_hour_ago} WHERE status = %s",
            ["processing"],
        )

    # -- what is in it

    def receipts(self, event):
        """Return the receipts that hold an event's body."""
        return self.query(
            "SELECT * FROM django_webhook_guard_webhookreceipt WHERE body_digest = %s ORDER BY id",
            [hashlib.sha256(event.body).hexdigest()],
        )

    def receipt(self, event):
        (found,) = self.receipts(event)
        return found

    def effects(self, event):
        """Return handler → number of effects of an event."""
        rows = self.query(
            "SELECT handler, COUNT(*) AS n FROM project_effect WHERE name = %s GROUP BY handler", [event.id]
        )
        return {row["handler"]: row["n"] for row in rows}

    def attempts(self, event):
        return self.query(
            "SELECT * FROM django_webhook_guard_webhookattempt WHERE receipt_id = %s ORDER BY number, id",
            [self.receipt(event)["id"]],
        )

    def make_due(self):
        """Let every backoff be over."""
        self.query("UPDATE django_webhook_guard_webhookreceipt SET due_at = received_at WHERE status = 'failed'")

    def open(self):
        """Return how many receipts somebody still owes a run."""
        (row,) = self.query(
            "SELECT COUNT(*) AS n FROM django_webhook_guard_webhookreceipt "
            "WHERE status IN ('received', 'processing', 'failed')"
        )
        return row["n"]

    def sessions(self):
        """Return how many connections others have to it."""
        if self.vendor == "sqlite":
            return 0
        if self.vendor == "postgresql":
            sql = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        else:
            sql = "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
        return len(self.query(sql))

    def cut(self):
        """Kill every server's connection, as a database that restarts does; return how many."""
        if self.vendor == "postgresql":
            sql = (
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            return len(self.query(sql))
        sql = "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
        found = self.query(sql)
        for row in found:
            self.query(f"KILL {row['id']}")
        return len(found)


# -- PgBouncer ---------------------------------------------------------------------------------------------------------


@contextmanager
def pooling(program, database, folder, *, size):
    """Run PgBouncer before a database, one of its connections per transaction; yield the database as reached so.

    Args:
        program: Its binary.
        database: A LiveDatabase on PostgreSQL.
        folder: Where its log goes.
        size: How many connections it keeps at most.
    """
    port, log = _free_port(), folder / "pgbouncer.log"
    target = database_settings(database.url)
    given = {"host": target["HOST"], "port": target["PORT"], "password": target["PASSWORD"]}
    where = " ".join(f"{name}='{value}'" for name, value in given.items() if value)
    with TemporaryDirectory() as home, log.open("wb") as output:
        users, config = Path(home, "users"), Path(home, "pgbouncer.ini")
        users.write_text(f'"{target["USER"] or getuser()}" ""\n')
        config.write_text(
            "[databases]\n"
            f"{database.name} = {where}\n"
            "[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {users}\n"
            f"pool_mode = transaction\ndefault_pool_size = {size}\n"
            + ("user = nobody\n" if os.geteuid() == 0 else "")  # it refuses to run as root
        )
        Path(home).chmod(0o755)  # of its users it reads after that change
        process = subprocess.Popen(
            [program, str(config)], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            deadline = time.monotonic() + 20
            while not _listens(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"PgBouncer did not come up:\n{log.read_text(errors='replace')}")
                time.sleep(0.05)
            yield database.behind(port)
        finally:
            process.kill()
            process.wait()


def _listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


# -- the server --------------------------------------------------------------------------------------------------------


class Server:
    """A web server over the live project, in a process group of its own.

    Args:
        database: What it uses.
        log: The file that takes its output.
        kind: ``sync`` or ``gthread`` for gunicorn's workers, ``uvicorn``, or ``runserver``.
        workers: Number of worker processes; one of uvicorn has no parent that would start it again.
        threads: Threads of each.
        options: Further arguments of gunicorn or uvicorn.
        env: Environment.
    """

    def __init__(self, database, log, *, kind="gthread", workers=2, threads=8, options=(), **env):
        self.log_path = log
        if kind == "runserver":
            self.port = _free_port()
            command = ["-m", "django", "runserver", "--noreload", f"127.0.0.1:{self.port}"]
            descriptors = ()
        else:
            # The socket is handed down listening: no port is lost to somebody else, and early requests wait in it.
            listener = socket.create_server(("127.0.0.1", 0), backlog=512)
            self.port, descriptors = listener.getsockname()[1], (listener.fileno(),)
            threads = threads if kind == "gthread" else 1
            command = ["-m", "uvicorn", "tests.project.asgi:application", "--fd", str(listener.fileno())]
            command += [*(["--workers", str(workers)] if workers > 1 else []), *options]
            command = command if kind == "uvicorn" else [
                "-m", "gunicorn", "tests.project.wsgi:application", "--preload", "--bind", f"fd://{listener.fileno()}",
                "--worker-class", kind, "--workers", str(workers), "--threads", str(threads), "--log-level", "info",
                *QUIET, *options,
            ]  # fmt: skip
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                cwd=ROOT, env=database.environ(PYTHONUNBUFFERED="1", **env), pass_fds=descriptors,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        if descriptors:
            listener.close()
        self._wait()

    def _wait(self):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            try:
                if self.request("GET", "/webhooks/stripe/", timeout=10).status == 405:
                    return
            except (OSError, Dropped):
                time.sleep(0.05)
        self.kill()
        raise RuntimeError(f"the server did not come up:\n{self.log()}")

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def log(self):
        return self.log_path.read_text(errors="replace")

    def errors(self):
        """Return what the log holds at ERROR or above, and tracebacks."""
        return [
            line for line in self.log().splitlines()
            if "[ERROR]" in line or "[CRITICAL]" in line or line.startswith("Traceback")
        ]  # fmt: skip

    def workers(self):
        """Return the process ids of the workers."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        try:
            found = [int(pid) for pid in children.read_text().split()]
            # Python's own helper process beside uvicorn's workers is none.
            return [pid for pid in found if b"resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_bytes()]
        except OSError:
            return []

    def stop(self, sent=signal.SIGTERM, timeout=40):
        """Ask it to end, and see to it."""
        if self.process.poll() is None:
            self.process.send_signal(sent)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout)
        self.kill()

    def kill(self):
        """``kill -9`` for everything in its process group."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    # -- the client

    def request(self, method, path, body=None, headers=(), *, timeout=60):
        """Send one request over a connection of its own.

        Raises:
            Dropped: No answer came.
        """
        start = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            with suppress(BrokenPipeError, ConnectionResetError):
                # A server that has read enough answers and closes while the body is still on its way.
                connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            text = response.read().decode()
        except (http.client.HTTPException, ConnectionError) as error:
            raise Dropped(repr(error)) from error
        finally:
            connection.close()
        return Answer(response.status, text, dict(response.headers), time.monotonic() - start)

    def post(self, source, body, headers, *, timeout=60):
        headers = {"Content-Type": "application/json", **headers}
        return self.request("POST", f"/webhooks/{source}/", body, headers, timeout=timeout)

    def raw(self, data, *, half_close=False, timeout=15):
        """Send bytes as they are; return everything that came back."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            found = b""
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(data)
                if half_close:
                    connection.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):
                while chunk := connection.recv(65536):
                    found += chunk
        return found


def _free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextmanager
def serving(database, log, **options):
    server = Server(database, log, **options)
    try:
        yield server
    finally:
        server.kill()  # how servers stop is what test_shutdown.py is about


# -- deliveries --------------------------------------------------------------------------------------------------------


class Event:
    """One event and the sender that delivers it: ``stripe``, ``github`` or ``partner``.

    Args:
        sender: How it is signed.
        event_id: Its id, in the body of each.
        event_type: What handlers match.
        source: The source, where it is not named as the sender.
        secret: What it is signed with, where that is not the sender's usual one.
        content: More for the body, which says how the handlers behave.
    """

    def __init__(self, sender, event_id, event_type, *, source=None, secret=None, **content):
        self.sender, self.id, self.type = sender, event_id, event_type
        self.source = source or sender
        body = {"id": event_id, "data": {"object": {"id": event_id}}, "repository": {"full_name": event_id}, **content}
        kind, _, action = event_type.partition(".")
        body |= {"action": action} if sender == "github" else {"type": event_type}
        self.body = senders.dumps(body)
        self._extra = {"event": kind, "guid": f"guid-{event_id}"} if sender == "github" else {}
        if sender == "partner":
            self._extra = {"key": event_id}
        if secret is not None:
            self._extra["secret"] = secret

    def signed(self, **signing):
        """Return fresh headers, as a try of the sender's has them."""
        return senders.SIGNERS[self.sender](self.body, **self._extra, **signing)

    def deliver(self, server, *, headers=None, kill=None, timeout=60):
        headers = self.signed() if headers is None else headers
        if kill is not None:
            headers = {**headers, "X-Kill-At": kill}
        return server.post(self.source, self.body, headers, timeout=timeout)

    def until_held(self, server, *, headers=None, seconds=60):
        """Deliver until it is answered with a 2xx, as senders do; return all answers."""
        answers, deadline = [], time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                answers.append(self.deliver(server, headers=headers))
            except Dropped:
                pass
            else:
                if answers[-1].status < 300:
                    return answers
            time.sleep(0.2)
        raise AssertionError(f"{self.id} was never accepted: {[answer.status for answer in answers[-5:]]}")


def at_once(number, call):
    """Call a function with 0, 1, … in as many threads at the same moment; return results in order."""
    barrier = Barrier(number)

    def wait_and_call(index):
        barrier.wait()
        return call(index)

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(wait_and_call, range(number)))
