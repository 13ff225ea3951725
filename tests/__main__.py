"""Run the tests once on every database that can be had here: ``python -m tests [--only NAME] [pytest's arguments]``.

What asks nothing of the database runs on the first one only; on two cores or more that one runs beside the others.
SQLite always; PostgreSQL at ``TEST_POSTGRES_URL`` and MariaDB at ``TEST_MARIADB_URL`` where the driver is installed and
the server answers. ``WEBHOOK_GUARD_REQUIRE``, a comma list of postgres, mariadb, pgbouncer, redis, rabbitmq and
chromium, turns "left out" into "failed".
"""

import argparse
import os
import shutil
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit
from xml.etree import ElementTree

from environ import Env

ROOT = Path(__file__).resolve().parent.parent
POSTGRES_URL = os.environ.get("TEST_POSTGRES_URL") or "postgres://postgres@127.0.0.1:5432/webhook_guard"
MARIADB_URL = os.environ.get("TEST_MARIADB_URL") or "mysql://root@127.0.0.1:3306/webhook_guard"
RABBITMQ_URL = os.environ.get("TEST_RABBITMQ_URL") or "amqp://guest:guest@127.0.0.1:5672//"
NOTHING_COLLECTED = 5


def without_postgres() -> str:
    """Return why PostgreSQL cannot be had, or an empty string."""
    try:
        import psycopg
    except ImportError:
        return "its driver is not installed (psycopg)"
    try:
        psycopg.connect(POSTGRES_URL, dbname="postgres", connect_timeout=5).close()
    except psycopg.Error as error:
        return f"no server at TEST_POSTGRES_URL: {one_line(error)}"
    return ""


def without_mariadb() -> str:
    """Return why MariaDB cannot be had, or an empty string."""
    try:
        import MySQLdb
    except ImportError:
        return "its driver is not installed (pip install --group mysql)"
    url = Env.db_url_config(MARIADB_URL)
    try:
        MySQLdb.connect(
            host=url["HOST"] or "127.0.0.1",
            port=int(url["PORT"] or 3306),
            user=url["USER"],
            password=url["PASSWORD"],
            connect_timeout=5,
        ).close()
    except MySQLdb.Error as error:
        return f"no server at TEST_MARIADB_URL: {one_line(error)}"
    return ""


def pgbouncer() -> str | None:
    """Return the path of PgBouncer's binary, which Debian keeps where only root looks."""
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")


def without_pgbouncer() -> str:
    """Return why PgBouncer cannot be had, or an empty string."""
    return "" if pgbouncer() else "no pgbouncer is installed"


def without_redis() -> str:
    """Return why a Redis of our own cannot be started, or an empty string."""
    return "" if shutil.which("redis-server") else "no redis-server is installed"


def without_rabbitmq() -> str:
    """Return why RabbitMQ cannot be had, or an empty string."""
    split = urlsplit(RABBITMQ_URL)
    try:
        socket.create_connection((split.hostname or "127.0.0.1", split.port or 5672), timeout=5).close()
    except OSError as error:
        return f"no server at TEST_RABBITMQ_URL: {one_line(error)}"
    return ""


def without_chromium() -> str:
    """Return why Chromium cannot be had, or an empty string."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return "playwright is not installed (pip install --group browser)"
    if any(shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")):
        return ""
    with sync_playwright() as playwright:
        found = Path(playwright.chromium.executable_path).exists()
    return "" if found else "no chromium is installed"


def one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


@dataclass(frozen=True)
class Database:
    """A database to run the tests on."""

    name: str
    url: str
    why_not: Callable[[], str]


DATABASES = (
    Database("sqlite", "sqlite://:memory:", lambda: ""),
    Database("postgres", POSTGRES_URL, without_postgres),
    Database("mariadb", MARIADB_URL, without_mariadb),
)
REQUIRABLE = {
    "postgres": without_postgres,
    "mariadb": without_mariadb,
    "pgbouncer": without_pgbouncer,
    "redis": without_redis,
    "rabbitmq": without_rabbitmq,
    "chromium": without_chromium,
}


@dataclass
class Totals:
    """What came of all runs.

    Args:
        passed: How many tests passed, over all runs.
        failed: The same for failures and errors; a run that broke off counts as one.
        ran: Tests that ran somewhere.
        skipped: Test → why it was skipped, on which databases.
        left_out: Database → why it was left out.
    """

    passed: int = 0
    failed: int = 0
    ran: set[str] = field(default_factory=set)
    skipped: dict[str, list[str]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def add(self, database: str, report: Path) -> None:
        """Add the JUnit report of one run."""
        for case in ElementTree.parse(report).iter("testcase"):
            name = f"{case.get('classname')}::{case.get('name')}"
            skip = case.find("skipped")
            if case.find("failure") is not None or case.find("error") is not None:
                self.failed += 1
                self.ran.add(name)
            elif skip is not None:
                self.skipped.setdefault(name, []).append(f"{database}: {skip.get('message')}")
            else:
                self.passed += 1
                self.ran.add(name)

    def merge(self, other: "Totals") -> None:
        """Add what came of another run."""
        self.passed += other.passed
        self.failed += other.failed
        self.ran |= other.ran
        for name, why in other.skipped.items():
            self.skipped.setdefault(name, []).extend(why)

    def nowhere(self) -> dict[str, str]:
        """Tests that ran on no database → why."""
        return {name: "; ".join(dict.fromkeys(why)) for name, why in self.skipped.items() if name not in self.ran}

    def told(self) -> str:
        """The summary: what did not run and why, then one line of numbers."""
        lines = [f"skipped: the whole run on {name}: {why}" for name, why in self.left_out.items()]
        reasons = Counter(self.nowhere().values())
        lines += [f"skipped: {name}: {why}" for name, why in self.nowhere().items() if reasons[why] <= 5]
        lines += [f"skipped: {times} tests: {why}" for why, times in reasons.items() if times > 5]
        elsewhere = len(self.skipped) - len(self.nowhere())
        if elsewhere:
            lines.append(f"not skipped, but made for some databases only and run there: {elsewhere} tests")
        skipped = len(self.left_out) + len(self.nowhere())
        lines.append(f"{self.passed} passed, {self.failed} failed, {skipped} skipped")
        return "\n".join(lines)


def run(database: Database, arguments: list[str]) -> Totals:
    """Run pytest on a database, in a process of its own; its output comes line by line, marked with the database."""
    print(f"\n== {database.name}", flush=True)
    found = Totals()
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        with subprocess.Popen(
            [sys.executable, "-m", "pytest", f"--junit-xml={report}", *arguments],
            cwd=ROOT,
            env={**os.environ, "DATABASE_URL": database.url},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            for line in process.stdout or ():
                print(f"{database.name:8} | {line.rstrip()}", flush=True)
        if report.exists():
            found.add(database.name, report)
    if process.returncode not in (0, NOTHING_COLLECTED) and not found.failed:
        print(f"{database.name}: pytest ended with {process.returncode}", flush=True)
        found.failed += 1
    return found


def run_all(chosen: list[tuple[Database, list[str]]]) -> Iterator[Totals]:
    """Run the databases, two at the same time where there is a core for each: the first beside the others."""
    lanes = [chosen[:1], chosen[1:]] if (os.cpu_count() or 1) > 1 else [chosen]
    with ThreadPoolExecutor(len(lanes)) as pool:
        for found in pool.map(lambda lane: [run(*each) for each in lane], lanes):
            yield from found


def required() -> dict[str, str]:
    """What ``WEBHOOK_GUARD_REQUIRE`` names and cannot be had → why."""
    names = [name.strip() for name in os.environ.get("WEBHOOK_GUARD_REQUIRE", "").split(",") if name.strip()]
    found = {}
    for name in names:
        why = REQUIRABLE[name]() if name in REQUIRABLE else f"not one of {', '.join(REQUIRABLE)}"
        if why:
            found[name] = why
    return found


def main() -> int:
    """Run everything, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests", description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "--only", action="append", choices=[database.name for database in DATABASES], help="only this database"
    )
    options, arguments = parser.parse_known_args()
    if not any(each.startswith("-m") for each in arguments):
        arguments = ["-m", "not long", *arguments]
    missing = required()
    for name, why in missing.items():
        print(f"WEBHOOK_GUARD_REQUIRE names {name}: {why}")
    if missing:
        return 1
    totals, chosen = Totals(), []
    for database in DATABASES:
        if options.only and database.name not in options.only:
            totals.left_out[database.name] = "not asked for"
        elif why := database.why_not():
            print(f"\n== {database.name} is left out: {why}", flush=True)
            totals.left_out[database.name] = why
        else:
            chosen.append((database, ["--asking-the-database", *arguments] if chosen else arguments))
    for found in run_all(chosen):
        totals.merge(found)
    print(f"\n{totals.told()}")
    return 1 if totals.failed or not totals.passed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
