"""``kill -9`` of web servers, workers and sweepers of a deferred source, at named stages and at random moments.

    python -m benchmarks.deferred_matrix                                   # nine trials, and writes the table
    python -m benchmarks.deferred_matrix --events 300 sqlite:// sweeper    # one trial, prints only

While events flow, with copies, re-signed retries and versions out of order, processes die and are started again. Some
handlers write to the database, some charge at a payment server over HTTP, which charges once per key, refuses some
calls and loses the answer of others. Then everything is left in peace, and each event must have taken effect once.
The stages are put in by the test project, not by the package.
"""

import argparse
import os
import random
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import Event as Flag
from threading import Lock, Thread

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

from tests.servers import Dropped, Event, LiveDatabase, Server
from tests.workers import Payments, Redis, Worker

LEASE = 2
DATABASES = {
    "PostgreSQL": "postgres://postgres@127.0.0.1:5432/webhooks",
    "MariaDB": "mysql://root@127.0.0.1:3306/webhooks",
    "SQLite": "sqlite://",
}
ENGINES = ("sweeper", "tasks", "celery")
EXPECTED = {"one.x": {"handler"}, "both.x": {"handler", "second handler"}, "charge.x": {"charger"}}
IN_THE_WEB = ["before insert", "after insert", "after claim", "before wake", "after wake", "before answer"]
IN_A_WORKER = [
    "before lease", "after lease", "before handler", "inside handler", "after handler", "after checkpoint",
    "inside second handler", "before commit", "before closing commit", "after commit", "before finish",
    "after finish", "before telling", "effect begun", "after the charge", "before result", "after result",
    "between charge and booking", "inside charger",
]  # fmt: skip
RANDOM = {"web": "at a random moment, a web worker", "worker": "at a random moment, a worker or sweeper"}
OBJECTS = 20
_KILLED = re.compile(r"^killed at stage: (.+)$", re.MULTILINE)


@dataclass
class Found:
    """What a trial left.

    Args:
        kills: Stage → how often a process died there.
        counts: What of → how many.
        seconds: How long it took.
    """

    kills: Counter = field(default_factory=Counter)
    counts: Counter = field(default_factory=Counter)
    seconds: float = 0

    @property
    def faults(self):
        return {name: self.counts[name] for name in FAULTS if self.counts[name]}


FAULTS = {
    "lost": "lost: an accepted event without its effects",
    "doubled": "doubled: an effect in the database, or a receipt, that is there twice",
    "charged": "charged other than once, or asked for with more than one key",
    "disordered": "objects that stand at an older version",
    "stuck": "stuck: a receipt that is still open, or dead",
}


class Trial:
    """One engine on one database.

    Args:
        database: Where; made and migrated.
        folder: Where logs go.
        engine: One of ``ENGINES``.
        events: How many.
        kills: At least so many processes die.
        died: Stages at which processes died in earlier trials on this database; those come first that are rare.
        seed: Of everything random.
        seconds: When to stop killing at the latest.
    """

    def __init__(self, database, folder, engine, *, events, kills, died=(), seed=1, seconds=900):
        self.database, self.folder, self.engine, self.wanted = database, folder, engine, kills
        self.random = random.Random(seed)
        self.deadline = time.monotonic() + seconds
        self.numbers, self.lock, self.died = count(1), Lock(), Counter(died)
        self.done, self.found, self.workers = Flag(), Found(), []
        self.events = [self._event() for _ in range(events)]
        self.env = {"LIVE_PROCESSING": "deferred", "LIVE_DISPATCHER": engine, "LIVE_ATTEMPTS": 200}

    def _event(self):
        number = next(self.numbers)
        kind = self.random.choice(["one.x", "both.x", "charge.x"])
        more = {"object": f"object {number % OBJECTS}", "version": number} if kind == "charge.x" else {}
        if kind == "one.x" and self.random.random() < 0.1:
            more = {"fails": {"handler": 1}}
        sender = self.random.choice(["stripe", "partner"])
        if kind == "charge.x":  # what is newest is known per namespace, so an object has one sender
            sender = ["stripe", "partner"][number % OBJECTS % 2]
        return Event(sender, f"evt_{number}", kind, **more)

    # -- processes

    def _log(self, name):
        return self.folder / f"{name}-{next(self.numbers)}.log"

    def _worker(self, kind, *, deadly=True):
        env = dict(self.env)
        if deadly:
            died = self.died + self._killed()
            fewest = min(died[stage] for stage in IN_A_WORKER)
            stage = self.random.choice([stage for stage in IN_A_WORKER if died[stage] == fewest])
            env["LIVE_KILL"] = f"{stage}:{self.random.randint(1, 3)}"
        return Worker(self.database, self._log(kind), kind, **env)

    def _kinds(self):
        return ["sweeper", "sweeper", "sweeper"] if self.engine == "sweeper" else [self.engine, self.engine, "sweeper"]

    def _supervise(self):
        """Start again whatever has died, and kill at random."""
        next_kill = time.monotonic() + 1
        while not self.done.is_set():
            for index, worker in enumerate(self.workers):
                if not worker.alive():
                    self.workers[index] = self._worker(worker.kind)
            if time.monotonic() > next_kill:
                self._kill_one()
                next_kill = time.monotonic() + self.random.uniform(0.3, 1.2)
            time.sleep(0.05)

    def _kill_one(self):
        pids = self.server.workers()
        if self.random.random() < 0.3 and pids:
            os.kill(self.random.choice(pids), 9)
            self.found.kills[RANDOM["web"]] += 1
        else:
            self.random.choice(self.workers).kill()
            self.found.kills[RANDOM["worker"]] += 1

    def _killed(self):
        stages = Counter()
        for log in self.folder.glob("*.log"):
            stages.update(_KILLED.findall(log.read_text(errors="replace")))
        return stages

    # -- senders

    def _send(self, pause):
        while True:
            with self.lock:
                if not self.queue:
                    return
                event = self.queue.pop()
                draw = random.Random(self.random.random())
            time.sleep(pause() if not self.done.is_set() else 0)
            kill = draw.choice(IN_THE_WEB) if draw.random() < 0.06 and not self.done.is_set() else None
            self._until_held(event, kill)

    def _until_held(self, event, kill):
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                answer = event.deliver(self.server, kill=kill, timeout=30)
            except (Dropped, OSError):
                kill = None
                time.sleep(0.1)
                continue
            if answer.status in (200, 202):
                return
            if answer.status != 503:
                raise AssertionError(f"{event.id} was answered {answer.status}: {answer.text}")
            time.sleep(0.2)
        raise AssertionError(f"{event.id} was never accepted")

    # -- the trial

    def run(self):
        start = time.monotonic()
        self.queue = [event for event in self.events for _ in range(self.random.choice([1, 1, 2, 3]))]
        self.random.shuffle(self.queue)
        faults = random.Random(self.random.random())
        payments = Payments(draw=lambda: faults.choices(["", "refuse", "drop", "slow"], [85, 5, 5, 5])[0])
        self.env["LIVE_PAYMENTS"] = payments.address
        with ExitStack() as stack:
            stack.callback(payments.close)
            if self.engine == "celery":
                broker = Redis(self.folder).start()
                stack.callback(broker.stop)
                self.env["LIVE_BROKER"] = broker.url
            if self.engine == "tasks":
                self.database.manage("migrate", "-v0", LIVE_DISPATCHER="tasks")
            self.server = Server(self.database, self._log("web"), kind="gthread", workers=2, threads=8, **self.env)
            stack.callback(self.server.kill)
            stack.callback(lambda: [worker.kill() for worker in self.workers])
            self.workers = [self._worker(kind) for kind in self._kinds()]
            self._suffer()
            for worker in self.workers:
                worker.kill()
            self.workers = [self._worker(kind, deadly=False) for kind in self._kinds()]
            self._settle()
            self.found.kills.update(self._killed())
            self._count(payments)
        self.found.seconds = time.monotonic() - start
        return self.found

    def _suffer(self):
        supervisor = Thread(target=self._supervise)
        supervisor.start()
        # Events are spread over the whole time in which processes die.
        pause = random.Random(self.random.random())
        try:
            with ThreadPoolExecutor(6) as pool:
                sending = [pool.submit(self._send, lambda: pause.uniform(0, self._spread())) for _ in range(6)]
                while self._kills() < self.wanted and time.monotonic() < self.deadline:
                    if all(each.done() for each in sending) and self.database.open() == 0:
                        self.queue.extend(self.random.sample(self.events, min(20, len(self.events))))
                        break
                    time.sleep(1)
                self.done.set()
                for each in sending:
                    each.result()
        finally:
            self.done.set()
            supervisor.join()
        for event in self.queue:
            self._until_held(event, None)

    def _spread(self):
        left = max(1, self.wanted - self._kills())
        return min(1.5, 6 * left * 0.5 / max(1, len(self.queue)))

    def _kills(self):
        return self.found.kills.total() + self._killed().total()

    def _settle(self):
        deadline = time.monotonic() + 180
        while self.database.open() and time.monotonic() < deadline:
            self.database.make_due()
            time.sleep(0.5)

    def _count(self, payments):
        counts, rows = self.found.counts, self.database.query
        effects = Counter()
        for row in rows("SELECT name, handler, COUNT(*) AS n FROM project_effect GROUP BY name, handler"):
            effects[row["name"], row["handler"]] = row["n"]
        counts["events"] = len(self.events)
        counts["lost"] = sum(not effects[event.id, name] for event in self.events for name in EXPECTED[event.type])
        (receipts,) = rows(
            "SELECT COUNT(*) - COUNT(DISTINCT body_digest) AS n FROM django_webhook_guard_webhookreceipt"
        )
        counts["doubled"] = sum(number > 1 for number in effects.values()) + receipts["n"]
        charged, newest = Counter(name for name, _ in payments.charges), defaultdict(int)
        for event in self.events:
            if event.type == "charge.x":
                counts["charged"] += charged[event.id] != 1 or len(payments.keys[event.id]) != 1
                number = int(event.id.removeprefix("evt_"))
                newest[f"object {number % OBJECTS}"] = max(newest[f"object {number % OBJECTS}"], number)
        counts["charges"] = len(payments.charges)
        stands = {row["name"]: row["version"] for row in rows("SELECT name, version FROM project_standing")}
        counts["disordered"] = sum(stands.get(name) != version for name, version in newest.items())
        (open_,) = rows(
            "SELECT COUNT(*) AS n FROM django_webhook_guard_webhookreceipt WHERE status NOT IN ('processed', 'ignored')"
        )
        counts["stuck"] = open_["n"]
        (attempts,) = rows("SELECT SUM(attempts) AS n FROM django_webhook_guard_webhookreceipt")
        counts["attempts"] = int(attempts["n"])


def trial(url, engine, **options):
    """Run one trial on a database of its own, and return what was found."""
    with tempfile.TemporaryDirectory() as folder:
        database = LiveDatabase(url, Path(folder), LIVE_LEASE=LEASE)
        try:
            return Trial(database.create(), Path(folder), engine, **options).run()
        finally:
            database.drop()


def table(results):
    """Return the results as Markdown; ``results`` maps (database, engine) to what was found."""
    stages = [*IN_THE_WEB, *IN_A_WORKER, *RANDOM.values()]
    heads = [f"{name}, {engine}" for name, engine in results]
    rows = [("killed …", *heads)]
    rows += [(stage, *(found.kills[stage] for found in results.values())) for stage in stages]
    rows.append(("**kills**", *(f"**{found.kills.total()}**" for found in results.values())))
    for key, text in {"events": "events", "attempts": "attempts", "charges": "charges", **FAULTS}.items():
        rows.append((text, *(found.counts[key] for found in results.values())))
    lines = ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    lines.insert(1, "|---|" + "---:|" * len(results))
    total = sum(found.kills.total() for found in results.values())
    return "\n".join(
        [
            "# Crash matrix of deferred sources",
            "",
            f"{total} times `kill -9` of web workers, workers and sweepers, at named stages and at random moments,",
            "while events flowed with copies, re-signed retries and versions out of order. A payment server refused",
            "some calls and lost the answer of others.",
            "",
            *lines,
            "",
            "Repeat it with `python -m benchmarks.deferred_matrix`.",
            "",
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url", nargs="?", help="of a database; without it: all, and the table is written")
    parser.add_argument("engine", nargs="?", choices=ENGINES, default="sweeper")
    parser.add_argument("--events", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=100, help="per trial, at least (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    django.setup()
    wanted = (
        [(options.url.partition(":")[0], options.url, options.engine)]
        if options.url
        else [(name, url, engine) for name, url in DATABASES.items() for engine in ENGINES]
    )
    results = {}
    for name, url, engine in wanted:
        died = sum((each.kills for (on, _), each in results.items() if on == name), Counter())
        found = trial(url, engine, events=options.events, kills=options.kills, died=died, seed=options.seed)
        results[name, engine] = found
        print(f"{name}, {engine}: {found.kills.total()} kills, {dict(found.counts)}, {found.seconds:.0f} s", flush=True)
    if options.url:
        print(table(results))
    else:
        Path(__file__).with_suffix(".md").write_text(table(results))
    if any(found.faults for found in results.values()):
        sys.exit("not every event took effect once")


if __name__ == "__main__":
    main()
