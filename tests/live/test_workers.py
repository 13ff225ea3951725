"""Deferred sources with real workers: the sweeper, Django Tasks, and Celery on Redis and on RabbitMQ."""

import base64
import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count

import pytest
import redis
from django.conf import settings

from tests.__main__ import without_rabbitmq, without_redis
from tests.servers import at_once, serving
from tests.workers import RABBITMQ, Payments, Redis, Worker, working

pytestmark = pytest.mark.slow
#: What an engine does on one database it does on the others: there only by hand.
by_hand_elsewhere = pytest.mark.slow if settings.DATABASE_URL.startswith("postgres") else pytest.mark.long
_logs = count(1)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory):
    if without_redis():
        pytest.skip(without_redis())
    server = Redis(tmp_path_factory.mktemp("redis")).start()
    yield server
    server.stop()


@pytest.fixture
def rabbitmq():
    if without_rabbitmq():
        pytest.skip(without_rabbitmq())


@pytest.fixture(scope="session")
def with_tasks(database):
    """The tables of the package that keeps Django's tasks."""
    database.manage("migrate", "-v0", LIVE_DISPATCHER="tasks")


@pytest.fixture
def engine(request, database, tmp_path):
    """Start a web server that defers, and its workers: ``with engine("celery", broker) as server``."""

    @contextmanager
    def start(kind, broker="", workers=1, sweeper=True, **env):
        env |= {"LIVE_PROCESSING": "deferred", "LIVE_DISPATCHER": kind, "LIVE_BROKER": broker}
        with ExitStack() as stack:

            def log(name):
                return tmp_path / f"{name}{next(_logs)}.log"

            server = stack.enter_context(serving(database, log("web"), kind="gthread", workers=2, threads=8, **env))
            server.workers_of = [stack.enter_context(working(database, log(kind), kind, **env)) for _ in range(workers)]
            if sweeper and kind != "sweeper":
                server.workers_of.append(stack.enter_context(working(database, log("sweeper"), "sweeper", **env)))
            yield server

    return start


def wait_until(condition, seconds=40):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come to pass")


def processed(database, events):
    return all(database.receipt(event)["status"] == "processed" for event in events)


def logs(server):
    return server.log() + "".join(worker.log() for worker in server.workers_of)


def delivered(server, events, copies=3):
    """Deliver copies of events, some at once; every answer must say that the event is held."""
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda event: event.deliver(server), [*events] * copies))
    assert {answer.decision for answer in answers} <= {"accepted", "duplicate"}
    return answers


def check(server, database, new):
    """Events of every kind arrive in copies, and each takes effect once, soon."""
    events = [new(sender, kind) for sender in ("stripe", "github") for kind in ("one.x", "both.x", "outside.x")]
    events.append(new("stripe", "both.x", fails={"second handler": 1}))
    answers = delivered(server, events)
    assert max(answer.seconds for answer in answers) < 2
    wait_until(lambda: processed(database, events))
    for event in events:
        assert len(database.receipts(event)) == 1
        expected = {"one.x": ["handler"], "both.x": ["handler", "second handler"], "outside.x": ["outsider"]}
        assert database.effects(event) == dict.fromkeys(expected[event.type], 1)
        assert event.deliver(server).decision == "duplicate"


def test_the_sweeper_alone_is_a_worker(engine, database, new):
    with engine("sweeper", workers=2) as server:
        check(server, database, new)


@pytest.mark.usefixtures("with_tasks")
def test_django_tasks(engine, database, new):
    with engine("tasks") as server:
        check(server, database, new)
        (row,) = database.query("SELECT args_kwargs FROM django_tasks_database_dbtaskresult ORDER BY id LIMIT 1")
        message = row["args_kwargs"]
    message = json.loads(message) if isinstance(message, str) else message
    assert [type(each) for each in message["args"]] == [int]
    assert not message["kwargs"]


@by_hand_elsewhere
def test_celery_on_redis(engine, database, new, redis_server):
    with engine("celery", redis_server.url) as server:
        check(server, database, new)


@by_hand_elsewhere
def test_celery_on_rabbitmq(rabbitmq, engine, database, new):
    with engine("celery", RABBITMQ, LIVE_QUEUE=database.name) as server:
        check(server, database, new)


@by_hand_elsewhere
def test_g3_a_message_holds_the_receipts_number_and_nothing_else(engine, database, new, redis_server):
    event = new("stripe", "one.x")
    with engine("celery", redis_server.url, workers=0, sweeper=False, LIVE_QUEUE="nobody") as server:
        assert event.deliver(server).decision == "accepted"
        (message,) = redis.Redis(port=redis_server.port).lrange("nobody", 0, -1)
    body = json.loads(message)["body"]
    arguments, named, _ = json.loads(base64.b64decode(body))
    assert arguments == [database.receipt(event)["id"]]
    assert named == {}
    assert event.id.encode() not in message
    database.sweep()


# -- brokers and workers that go away ----------------------------------------------------------------------------------


@by_hand_elsewhere
@pytest.mark.parametrize("seconds", [3, pytest.param(30, marks=pytest.mark.long)])
def test_a_broker_that_is_down_for_a_while(engine, database, new, tmp_path, seconds):
    """Deliveries are answered at once, and as fast as usual; all of them take effect in the end."""
    if without_redis():
        pytest.skip(without_redis())
    broker = Redis(tmp_path).start()
    try:
        with engine("celery", broker.url) as server:
            before, noticing, during, after = ([new("stripe", "one.x") for _ in range(n)] for n in (60, 4, 60, 10))
            usual = timed(lambda: delivered(server, before, copies=1))
            broker.stop()
            stopped = time.monotonic()
            assert max(answer.seconds for answer in delivered(server, noticing, copies=1)) < 2
            without = timed(lambda: delivered(server, during, copies=1))
            assert without < 2 * usual + 1
            time.sleep(max(0, seconds - (time.monotonic() - stopped)))
            broker.start()
            delivered(server, after, copies=1)
            events = [*before, *noticing, *during, *after]
            wait_until(lambda: processed(database, events), seconds=60)
            assert all(database.effects(event) == {"handler": 1} for event in events)
    finally:
        broker.stop()


def timed(call):
    start = time.monotonic()
    call()
    return time.monotonic() - start


@by_hand_elsewhere
def test_a_sweeper_that_is_told_to_stop_ends_its_run_first(engine, database, new, tmp_path):
    event, waiting = new("stripe", "one.x", sleep=1.5), new("stripe", "one.x")
    with engine("sweeper", workers=0) as server:
        assert event.deliver(server).decision == "accepted"
        worker = Worker(database, tmp_path / "stopped.log", "sweeper", LIVE_PROCESSING="deferred")
        wait_until(lambda: database.receipt(event)["status"] == "processing")
        assert waiting.deliver(server).decision == "accepted"
        assert worker.stop() == 0
        assert database.receipt(event)["status"] == "processed"
        assert database.receipt(waiting)["status"] == "received"
    database.sweep()
    assert database.effects(event) == database.effects(waiting) == {"handler": 1}


@by_hand_elsewhere
def test_a_second_signal_lets_the_receipt_go(engine, database, new, tmp_path):
    event = new("stripe", "one.x", sleep=20)
    with engine("sweeper", workers=0, LIVE_LEASE=600) as server:
        assert event.deliver(server).decision == "accepted"
        worker = Worker(database, tmp_path / "stopped.log", "sweeper", LIVE_PROCESSING="deferred", LIVE_LEASE=600)
        wait_until(lambda: database.receipt(event)["status"] == "processing")
        worker.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert worker.stop(timeout=10) == 128 + signal.SIGTERM
    database.sweep()
    assert database.receipt(event)["status"] == "processed"
    assert database.effects(event) == {"handler": 1}


def test_a_sweeper_survives_its_database(engine, database, new):
    if database.vendor == "sqlite":
        pytest.skip("a file does not go away")
    with engine("sweeper") as server:
        first, second = new("stripe", "one.x"), new("stripe", "one.x")
        delivered(server, [first])
        wait_until(lambda: processed(database, [first]))
        database.cut()
        second.until_held(server)
        wait_until(lambda: processed(database, [second]))
        assert server.workers_of[0].alive()


@by_hand_elsewhere
def test_an_old_worker_finishes_nothing_that_it_does_not_know(engine, database, new, tmp_path):
    event = new("stripe", "both.x")
    with engine("sweeper", workers=0) as server:
        delivered(server, [event])
        with working(database, tmp_path / "old.log", "sweeper", LIVE_PROCESSING="deferred", LIVE_OLD_RELEASE="1"):
            wait_until(lambda: database.receipt(event)["status"] == "failed")
        with working(database, tmp_path / "new.log", "sweeper", LIVE_PROCESSING="deferred"):
            wait_until(lambda: processed(database, [event]))
    assert database.effects(event) == {"handler": 1, "second handler": 1}


@by_hand_elsewhere
def test_a_zombie_of_a_worker_cannot_commit(engine, database, new):
    """The first worker sleeps beyond its lease; the second one takes over."""
    if database.vendor == "sqlite":
        pytest.skip("its one writer is the running handler, so that nobody takes over")
    event = new("stripe", "one.x", sleep=5)
    with engine("sweeper", workers=2) as server:
        delivered(server, [event])
        wait_until(lambda: processed(database, [event]))
        wait_until(lambda: "lost its lease" in logs(server))
    assert database.effects(event) == {"handler": 1}
    assert database.receipt(event)["attempts"] == 2


# -- many --------------------------------------------------------------------------------------------------------------


def test_f3_500_copies_of_one_event_while_it_runs(engine, database, new):
    """Fifty at a time: one effect, nobody waits for the run, and other events keep flowing."""
    event, others = new("stripe", "one.x", sleep=1.5), [new("stripe", "one.x") for _ in range(5)]
    allowed = {202, 200, 503} if database.vendor == "sqlite" else {202, 200}
    with engine("sweeper", workers=2) as server:
        answers = [event.deliver(server)]
        wait_until(lambda: database.receipt(event)["status"] == "processing")
        for other in others:
            answers += at_once(50, lambda _: event.deliver(server))
            answers.append(other.deliver(server))
        for _ in range(5):
            answers += at_once(50, lambda _: event.deliver(server))
        assert {answer.status for answer in answers} <= allowed
        if database.vendor != "sqlite":
            assert max(answer.seconds for answer in answers) < 1.4
        for other in others:
            other.until_held(server)
        wait_until(lambda: processed(database, [event, *others]))
        assert not server.errors()
    assert database.effects(event) == {"handler": 1}
    assert len(database.receipts(event)) == 1


@pytest.mark.parametrize("number", [2_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_d12_many_due_receipts_and_four_sweepers_run_each_once(database, new, tmp_path, number):
    event = new("stripe", "one.x")
    with serving(database, tmp_path / "web.log", LIVE_PROCESSING="deferred") as server:
        event.deliver(server)
    number //= 5 if database.vendor == "sqlite" else 1  # one writer at a time
    seed(database, database.receipt(event)["id"], number)
    with ExitStack() as stack:
        for index in range(4):
            stack.enter_context(
                working(
                    database, tmp_path / f"sweeper{index}.log", "sweeper", LIVE_PROCESSING="deferred", LIVE_LEASE=60
                )
            )
        wait_until(lambda: database.open() == 0, seconds=600)
    assert database.effects(event) == {"handler": number + 1}
    (row,) = database.query(
        "SELECT MAX(attempts) AS most, COUNT(*) AS n FROM django_webhook_guard_webhookreceipt WHERE event_id = %s",
        [event.id],
    )
    assert (row["most"], row["n"]) == (1, number + 1)


def seed(database, receipt_id, number):
    """Copy a received receipt under other fingerprints."""
    (row,) = database.query("SELECT * FROM django_webhook_guard_webhookreceipt WHERE id = %s", [receipt_id])
    columns = [name for name in row if name not in ("id", "fingerprint")]
    quoted = ", ".join(columns)
    table = "django_webhook_guard_webhookreceipt"
    numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {number}) "
    select = f"SELECT {_hashed(database.vendor)}, {quoted} FROM n, {table} r WHERE r.id = {receipt_id}"
    if database.vendor == "mysql":
        sql = f"INSERT INTO {table} (fingerprint, {quoted}) {numbers}{select}"
        database.query("SET GLOBAL max_recursive_iterations = 1000000")
    else:
        sql = f"{numbers}INSERT INTO {table} (fingerprint, {quoted}) {select}"
    assert database.query(sql) in (number, -1)  # SQLite does not say it of a statement that begins with WITH


def _hashed(vendor):
    return {
        "postgresql": "encode(sha256((r.fingerprint || i)::bytea), 'hex')",
        "mysql": "SHA2(CONCAT(r.fingerprint, i), 256)",
        "sqlite": "substr(r.fingerprint, 1, 48) || printf('%016x', i)",
    }[vendor]


# -- effects -----------------------------------------------------------------------------------------------------------


def test_each_event_is_charged_once_whatever_the_payment_server_does(engine, database, new):
    faults = iter(["drop", "refuse", "slow", "", "drop", "refuse"] + [""] * 100)
    payments = Payments(draw=lambda: next(faults))
    events = [new("stripe", "charge.x", object=f"account {number % 2}", version=number) for number in range(8)]
    try:
        with engine("sweeper", workers=2, LIVE_PAYMENTS=payments.address) as server:
            delivered(server, events)
            wait_until(lambda: processed(database, events))
    finally:
        payments.close()
    for event in events:
        assert len(payments.keys[event.id]) == 1
        assert [name for name, _ in payments.charges].count(event.id) == 1
        assert database.effects(event) == {"charger": 1}
    rows = database.query("SELECT name, version FROM project_standing WHERE name LIKE 'account%%' ORDER BY name")
    assert [row["version"] for row in rows] == [6, 7]
