import pytest
from django.db import DataError, IntegrityError, InterfaceError, OperationalError, connection, transaction

from django_webhook_guard import transactions
from django_webhook_guard.models import WebhookReceipt, WebhookSeen
from django_webhook_guard.transactions import (
    committed,
    durable,
    is_conflict,
    is_connection_lost,
    is_lock_timeout,
    is_sqlite_lock,
    is_unique_violation,
    repeated,
)
from tests.project.models import Unique


def caused(name, value, kind=OperationalError):
    error = kind("text")
    error.__cause__ = type("Cause", (Exception,), {name: value})()
    return error


@pytest.fixture
def raised():
    def run(work):
        with pytest.raises(IntegrityError) as caught, transaction.atomic():
            work()
        return caught.value

    return run


@pytest.mark.django_db
def test_a_unique_violation_is_told_by_the_driver(raised):
    WebhookSeen.objects.create(digest="a", fingerprint="f")
    Unique.objects.create(pk=1, name="a")
    assert is_unique_violation(raised(lambda: WebhookSeen.objects.create(digest="a", fingerprint="g")))
    assert is_unique_violation(raised(lambda: Unique.objects.create(name="a")))
    assert is_unique_violation(raised(lambda: Unique.objects.create(pk=1, name="b")))


@pytest.mark.django_db
def test_every_other_integrity_error_is_none(raised):
    assert not is_unique_violation(raised(lambda: Unique.objects.create(name=None)))
    assert not is_unique_violation(IntegrityError("UNIQUE constraint failed: webhook_receipt_fingerprint 1062"))


@pytest.mark.parametrize(
    ("error", "conflict", "timeout", "lock"),
    [
        (OperationalError(1213, "deadlock"), True, False, False),
        (OperationalError(1020, "changed"), True, False, False),
        (OperationalError(1205, "lock wait"), False, True, False),
        (caused("sqlstate", "40P01"), True, False, False),
        (caused("sqlstate", "40001"), True, False, False),
        (caused("sqlstate", "55P03"), False, True, False),
        (caused("sqlite_errorname", "SQLITE_BUSY"), False, False, True),
        (caused("sqlite_errorname", "SQLITE_BUSY_SNAPSHOT"), False, False, True),
        (caused("sqlite_errorname", "SQLITE_LOCKED_SHAREDCACHE"), False, False, True),
        (caused("sqlite_errorname", "SQLITE_FULL"), False, False, False),
        (OperationalError("database is locked"), False, False, False),
        (OperationalError(2006, "gone away"), False, False, False),
        (OperationalError(), False, False, False),
        (InterfaceError(1213, "deadlock"), False, False, False),
        (DataError(1406, "too long"), False, False, False),
        (ValueError(1213), False, False, False),
    ],
)
def test_an_error_is_what_its_driver_says(error, conflict, timeout, lock):
    assert (is_conflict(error), is_lock_timeout(error), is_sqlite_lock(error)) == (conflict, timeout, lock)


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (InterfaceError("connection already closed"), True),
        (OperationalError(2006, "gone away"), True),
        (OperationalError(1213, "deadlock"), False),
        (caused("sqlstate", "57P01"), True),
        (caused("sqlstate", "08006"), True),
        (caused("sqlstate", None), True),
        (caused("sqlstate", "53100"), False),
        (caused("sqlite_errorname", "SQLITE_BUSY"), False),
        (OperationalError("anything"), False),
        (ConnectionError("another server"), False),
    ],
)
def test_a_connection_that_was_cut_is_told_from_other_faults(error, lost):
    assert is_connection_lost(error) is lost


@pytest.mark.parametrize("failures", [0, 1, 4])
@pytest.mark.parametrize("error", [OperationalError(1213, ""), OperationalError(1205, "")])
def test_a_conflict_is_repeated_from_the_first_statement(error, failures):
    left = [error] * failures

    def work():
        if left:
            raise left.pop()
        return "done"

    assert repeated(work) == "done"


@pytest.mark.parametrize(
    ("error", "tries"),
    [(OperationalError(1213, ""), transactions.REPEATS), (OperationalError("gone"), 1), (ValueError(), 1)],
)
def test_repeating_ends(error, tries):
    calls = []

    def work():
        calls.append(1)
        raise error

    with pytest.raises(type(error)):
        repeated(work)
    assert len(calls) == tries


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("block", [committed, durable])
def test_an_outer_transaction_is_refused(block):
    with transaction.atomic(), pytest.raises(RuntimeError), block("default"):
        pass


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("block", [committed, durable])
def test_a_connection_that_commits_nothing_is_refused(block):
    transaction.set_autocommit(False)
    try:
        with pytest.raises(RuntimeError, match="Autocommit"), block("default"):
            pass
    finally:
        transaction.set_autocommit(True)


@pytest.mark.django_db(transaction=True)
def test_one_statement_in_autocommit_needs_no_transaction():
    with committed("default"):
        assert not connection.in_atomic_block
    with durable("default"):
        assert connection.in_atomic_block
    assert connection.get_autocommit()


@pytest.mark.django_db
@pytest.mark.parametrize("block", [committed, durable])
def test_inside_a_test_case_it_is_a_savepoint(block):
    with block("default"):
        assert not WebhookReceipt.objects.exists()
        assert connection.savepoint_ids
