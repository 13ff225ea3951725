"""``kill -9`` of server processes, at every named stage and at random moments, on every database.

    python -m benchmarks.crash_matrix                          # the three databases, and writes the table beside it
    python -m benchmarks.crash_matrix --kills 200 sqlite://    # one database, more random kills, prints only
    python -m benchmarks.crash_matrix --uvicorn async          # the same through uvicorn and the async door

With ``--uvicorn sync`` the handlers are plain functions there, with ``--uvicorn async`` coroutines.

After the kills every receipt that is due is swept, and every sender delivers again what was not accepted. Then each
event must have taken effect exactly once. The stages are put in by the test project, not by the package.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Event as Flag

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

from tests.live.test_crashes import CASES, MATRIX
from tests.servers import Dropped, Event, LiveDatabase, Server, serving

LEASE = 2
DATABASES = {
    "SQLite": "sqlite://",
    "PostgreSQL": "postgres://postgres@127.0.0.1:5432/webhooks",
    "MariaDB": "mysql://root@127.0.0.1:3306/webhooks",
}
#: Types whose handlers are coroutines and leave the same effects.
COROUTINES = {"one.x": "coroutine.x", "both.x": "coroutines.x"}
WORKER, SERVER = "at a random moment, one worker", "at a random moment, the whole server"
KINDS = [(sender, case) for sender in ("stripe", "github", "partner") for case in ("one", "both", "second fails")]


class Trial:
    """All kills on one database, and what they left.

    Args:
        database: Where.
        folder: Where the servers' output goes.
        seed: Of everything random.
        uvicorn: None for gunicorn and the plain door; else ``sync`` or ``async``, the kind of handlers behind uvicorn.
    """

    def __init__(self, database, folder, seed, uvicorn=None):
        self.database, self.folder, self.uvicorn = database, folder, uvicorn
        self.random = random.Random(seed)
        self.kills = Counter()
        self.events = {}  # event -> name of its case
        self.accepted = set()
        self._numbers = count(1)

    def event(self, sender, case, **content):
        event_type, more, _, _ = CASES[case]
        if self.uvicorn == "async":
            event_type = COROUTINES.get(event_type, event_type)
        event = Event(sender, f"evt_{next(self._numbers)}", event_type, **more, **content)
        self.events[event] = case
        return event

    def deliver(self, event, server, **options):
        try:
            answer = event.deliver(server, timeout=30, **options)
        except (Dropped, OSError):
            return False
        if answer.status not in (200, 500, 503) or (answer.status == 500 and self.events[event] != "second fails"):
            raise AssertionError(f"{event.id} was answered {answer.status}: {answer.text}")
        if answer.status == 200:
            self.accepted.add(event)
        return answer.status == 200

    def at_stages(self):
        """Kill a worker at every stage, twice: once the sender comes again, once a sweep does."""
        for recovery in ("redelivery", "sweep"):
            with serving(self.database, self.folder / f"{recovery}.log", **self._kind("sync", 1)) as server:
                events = []
                for sender, case, stage in MATRIX:
                    events.append(self.event(sender, case))
                    self.deliver(events[-1], server, kill=stage)
                    self.kills[stage] += 1
                died = server.log().count("killed at stage")
                if died != len(MATRIX):
                    raise AssertionError(f"{len(MATRIX)} kills were asked for, {died} happened")
                time.sleep(LEASE)
                if recovery == "sweep":
                    self.database.sweep()
                else:
                    for event in events:
                        event.until_held(server)

    def at_random(self, kills):
        """Kill workers, now and then the whole server, while senders deliver; half of them do not come again."""
        done, number = Flag(), count(1)
        server = self._server(number)
        current = [server]

        def send(persistent):
            draw = random.Random(self.random.random())
            while not done.is_set():
                event = self.event(*draw.choice(KINDS), sleep=draw.choice([0, 0, 0.01, 0.05]))
                while not self.deliver(event, current[0]) and not done.is_set():
                    time.sleep(0.1)
                    if not persistent:
                        break

        try:
            with ThreadPoolExecutor(6) as pool:
                senders = [pool.submit(send, bool(index % 2)) for index in range(6)]
                try:
                    for turn in range(kills):
                        time.sleep(self.random.uniform(0.05, 0.4))
                        if turn % 10 == 9:
                            current[0].kill()
                            current[0] = self._server(number)
                            self.kills[SERVER] += 1
                        else:
                            self._kill_a_worker(current[0])
                finally:
                    done.set()
                for sender in senders:
                    sender.result()
        finally:
            current[0].stop(timeout=10)

    def _server(self, number):
        return Server(self.database, self.folder / f"random{next(number)}.log", **self._kind("gthread", 2))

    def _kind(self, gunicorn, workers):
        """Return how to start a server; of uvicorn two workers, so that there is a parent that replaces them."""
        if self.uvicorn is None:
            return {"kind": gunicorn, "workers": workers, "threads": 4}
        return {"kind": "uvicorn", "workers": 2, "LIVE_ASYNC": "1"}

    def _kill_a_worker(self, server):
        while not (pids := server.workers()):
            time.sleep(0.01)
        os.kill(self.random.choice(pids), 9)
        self.kills[WORKER] += 1

    def settle(self):
        """Sweep, look at what was accepted, have the senders come again for the rest, and count.

        Returns:
            Counter of ``events``, ``lost``, ``doubled`` and ``stuck``.
        """
        time.sleep(LEASE)
        for _ in range(3):
            self.database.sweep()
            time.sleep(0.5)
        effects = self._effects()
        found = Counter(events=len(self.events), lost=sum(self._lacks(event, effects) for event in self.accepted))
        others = [event for event in self.events if event not in self.accepted]
        with (
            serving(self.database, self.folder / "settle.log", **self._kind("gthread", 2)) as server,
            ThreadPoolExecutor(4) as pool,
        ):
            list(pool.map(lambda event: event.until_held(server), others))
        effects = self._effects()
        found["lost"] += sum(self._lacks(event, effects) for event in others)
        found["doubled"] = sum(number > 1 for number in effects.values()) + self._double_receipts()
        found["stuck"] = self.database.open()
        return found

    def _effects(self):
        rows = self.database.query("SELECT name, handler, COUNT(*) AS n FROM project_effect GROUP BY name, handler")
        return {(row["name"], row["handler"]): row["n"] for row in rows}

    def _double_receipts(self):
        (row,) = self.database.query(
            "SELECT COUNT(*) - COUNT(DISTINCT body_digest) AS n FROM django_webhook_guard_webhookreceipt"
        )
        return row["n"]

    def _lacks(self, event, effects):
        return any((event.id, handler) not in effects for handler in CASES[self.events[event]][2])


def run(name, url, kills, seed, uvicorn):
    print(f"{name}: ", end="", flush=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        database = LiveDatabase(url, Path(folder), LIVE_LEASE=LEASE)
        try:
            trial = Trial(database.create(), Path(folder), seed, uvicorn)
            trial.at_stages()
            trial.at_random(kills)
            found = trial.settle()
        finally:
            database.drop()
    seconds = time.monotonic() - start
    print(f"{trial.kills.total()} kills, {dict(found)}, {seconds:.0f} s", flush=True)
    return trial.kills, found


def table(results, uvicorn):
    """Return the results as Markdown.

    Args:
        results: Name of the database → (kills by stage, what was found).
        uvicorn: None, or the kind of handlers behind uvicorn.
    """
    server = "gunicorn" if uvicorn is None else f"uvicorn, with {uvicorn} handlers"
    command = "python -m benchmarks.crash_matrix" + (f" --uvicorn {uvicorn}" if uvicorn else "")
    stages = [*dict.fromkeys(stage for _, _, stage in MATRIX), WORKER, SERVER]
    rows = [("killed …", *results), *[(stage, *(kills[stage] for kills, _ in results.values())) for stage in stages]]
    rows.append(("**kills**", *(f"**{kills.total()}**" for kills, _ in results.values())))
    for key, text in (
        ("events", "events sent"),
        ("lost", "lost: an event without its effects"),
        ("doubled", "doubled: an effect or a receipt that is there twice"),
        ("stuck", "stuck: a receipt that is still open"),
    ):
        rows.append((text, *(found[key] for _, found in results.values())))
    lines = ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    lines.insert(1, "|---|" + "---:|" * len(results))
    total = sum(kills.total() for kills, _ in results.values())
    return "\n".join(
        [
            "# Crash matrix" + (f": uvicorn, {uvicorn} handlers" if uvicorn else ""),
            "",
            f"{total} times `kill -9` of the processes of {server}, while they received webhooks. At named stages",
            "the process dies at exactly that line, once recovered by the sender's retry and once by `manage.py "
            "webhook_sweep`;",
            "at random moments six senders deliver without pause, half of which never come again.",
            "",
            *lines,
            "",
            f"Repeat it with `{command}`.",
            "",
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("urls", nargs="*", help="of databases; without any: the three, and the table is written")
    parser.add_argument("--kills", type=int, default=60, help="at random moments, per database (default: %(default)s)")
    parser.add_argument("--uvicorn", choices=["sync", "async"], help="through uvicorn, with this kind of handlers")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    django.setup()
    chosen = {url.partition(":")[0]: url for url in options.urls} or DATABASES
    results = {name: run(name, url, options.kills, options.seed, options.uvicorn) for name, url in chosen.items()}
    text = table(results, options.uvicorn)
    if options.urls:
        print(text)
    else:
        beside = Path(__file__)
        suffix = f"_uvicorn_{options.uvicorn}" if options.uvicorn else ""
        beside.with_name(f"{beside.stem}{suffix}.md").write_text(text)
    if any(found[key] for _, found in results.values() for key in ("lost", "doubled", "stuck")):
        sys.exit("not every event took effect once")


if __name__ == "__main__":
    main()
