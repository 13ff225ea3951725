import logging
import time
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_webhook_guard import intake, statements
from django_webhook_guard.exceptions import RetryLater
from django_webhook_guard.models import WebhookReceipt, WebhookSeen
from django_webhook_guard.providers import Provider
from django_webhook_guard.secrets import Secret
from django_webhook_guard.signals import webhook_dead
from django_webhook_guard.verifiers import HMACVerifier
from tests import senders

SECRET = "acme-s3cret-0123456789"
STAMPED = Provider(
    name="stamped",
    verifier=HMACVerifier(header="X-Acme", signed="{timestamp}.{body}", timestamp_header="X-Stamp"),
    varies=frozenset({"stamp"}),
)

pytestmark = pytest.mark.django_db(databases=["default", "other"])
EVENT = {"id": "evt_1", "type": "x"}


def shared_secret(source, tenant):
    return [Secret(senders.PARTNER_SECRET)]


def ago(seconds):
    return timezone.now() - timedelta(seconds=seconds)


def late(seconds=1000):
    return int(time.time()) - seconds


def change(**values):
    WebhookReceipt.objects.update(**values)


def receipt():
    return WebhookReceipt.objects.get()


@pytest.fixture
def runs(handler):
    """The attempts of a handler that wants everything."""
    seen = []
    handler(["stripe", "github", "partner"], "*", name="h")(lambda event: seen.append(event.attempt))
    return seen


# -- the state table ---------------------------------------------------------------------------------------------------

#: state, what else the row says, status, decision, Retry-After, whether it runs; for a late delivery as well
TABLE = [
    ("received", {"due_at": -5}, 200, "processed", None, True),
    ("processing", {"lease_until": 30}, 503, "busy", 30, False),
    ("processing", {"lease_until": -1}, 200, "processed", None, True),
    ("failed", {"due_at": 900}, 200, "processed", None, True),
    ("failed", {"due_at": 900, "attempts": 2}, 503, "busy", 900, False),
    ("failed", {"due_at": -1, "attempts": 2}, 200, "processed", None, True),
    ("failed", {"due_at": 900, "excused": 1, "reason": "retry_later"}, 503, "busy", 900, False),
    ("failed", {"due_at": 900, "attempts": 2, "excused": 1, "reason": "retry_later"}, 503, "busy", 900, False),
    ("failed", {"due_at": 900, "attempts": 2, "excused": 1}, 200, "processed", None, True),
    ("failed", {"due_at": -1, "excused": 1, "reason": "retry_later"}, 200, "processed", None, True),
]
ENDED = [
    ("dead", {"reason": "exhausted", "attempts": 20, "processed_at": -3601}, 200, "processed", None, True),
    ("dead", {"reason": "exhausted", "attempts": 20, "processed_at": -10}, 503, "busy", 3590, False),
    ("dead", {"reason": "gave_up"}, 200, "duplicate", None, False),
    ("processed", {}, 200, "duplicate", None, False),
    ("ignored", {"reason": "skipped"}, 200, "duplicate", None, False),
    ("discarded", {}, 200, "duplicate", None, False),
]
HELD = ("quarantined", {"reason": "replayed"}, 202, "quarantined", None, False)


def set_state(status, values):
    moments = {"due_at", "lease_until", "processed_at"}
    done = "h" if status in ("ignored", "dead") and values.get("reason") != "exhausted" else ""
    changed = {name: ago(-value) if name in moments else value for name, value in values.items()}
    change(**{"status": status, "last_handler": done, "processed_at": None, **changed})


def check(response, runs, status, decision, retry_after, runs_again):
    assert (response.status_code, response.json()["status"]) == (status, decision)
    assert len(runs) == 1 + runs_again
    if retry_after is None:
        assert "Retry-After" not in response
    else:
        assert -1 <= retry_after - int(response["Retry-After"]) <= 2  # SQLite rounds its clock to milliseconds


@pytest.mark.parametrize(("state", "values", "status", "decision", "retry_after", "again"), [*TABLE, *ENDED, HELD])
def test_a_redelivery_is_answered_by_the_state(post, runs, state, values, status, decision, retry_after, again):
    post("stripe", EVENT)
    set_state(state, values)
    attempts = receipt().attempts
    check(post("stripe", EVENT), runs, status, decision, retry_after, again)
    assert receipt().attempts == attempts + again
    assert receipt().status == ("processed" if again else state)


@pytest.mark.parametrize(("state", "values", "status", "decision", "retry_after", "again"), [*TABLE, HELD])
def test_a_late_delivery_may_end_what_is_open(post, runs, state, values, status, decision, retry_after, again):
    post("stripe", EVENT)
    set_state(state, values)
    check(post("stripe", EVENT, at=late()), runs, status, decision, retry_after, again)


@pytest.mark.parametrize(("state", "values"), [row[:2] for row in ENDED])
def test_a_late_delivery_of_what_has_ended_is_refused(post, runs, state, values):
    post("stripe", EVENT)
    set_state(state, values)
    check(post("stripe", EVENT, at=late()), runs, 400, "late", None, False)
    assert receipt().deliveries == 1


def test_a_late_delivery_begins_nothing(post, runs):
    assert post("stripe", EVENT, at=late()).status_code == 400
    assert post("partner", EVENT, at=late(), key="k").status_code == 400
    assert WebhookReceipt.objects.count() == WebhookSeen.objects.count() == len(runs) == 0


def test_an_ignored_receipt_runs_once_there_is_a_handler(post, handler):
    assert post("stripe", EVENT).json()["status"] == "ignored"
    assert post("stripe", EVENT).json()["status"] == "duplicate"
    handler("stripe", "x", name="new")(lambda event: "done")
    assert post("stripe", EVENT).json()["status"] == "processed"
    assert receipt().result == "done"
    assert post("stripe", EVENT).json()["status"] == "duplicate"


def test_a_spent_take_over_is_buried_and_told(post, runs):
    told = []
    webhook_dead.connect(lambda sender, **about: told.append(about["reason"]), weak=False, dispatch_uid="t")
    post("stripe", EVENT)
    change(status="processing", attempts=20, lease_until=ago(1), last_handler="")
    response = post("stripe", EVENT)
    webhook_dead.disconnect(dispatch_uid="t")
    check(response, runs, 503, "busy", 3600, False)
    assert (receipt().status, receipt().reason, receipt().attempts) == ("dead", "exhausted", 20)
    assert told == ["exhausted"]


def test_a_failed_receipt_is_buried_where_fewer_attempts_are_allowed_now(post, runs, sources):
    post("stripe", EVENT)
    change(status="failed", attempts=5, due_at=ago(1), last_handler="")
    sources(stripe={"RETRY": {"max_attempts": 5}})
    check(post("stripe", EVENT), runs, 503, "busy", 3600, False)
    assert (receipt().status, receipt().reason, receipt().attempts) == ("dead", "exhausted", 5)


def test_the_one_more_attempt_of_a_dead_receipt_is_not_followed_by_another(post, handler):
    runs = []

    @handler("stripe", "*", name="h")
    def fail(event):
        runs.append(event.attempt)
        raise ValueError

    post("stripe", EVENT)
    change(status="dead", reason="exhausted", attempts=20, processed_at=ago(3601))
    assert post("stripe", EVENT).status_code == 500
    assert (receipt().status, receipt().reason) == ("dead", "exhausted")
    assert [post("stripe", EVENT).status_code for _ in range(3)] == [503, 503, 503]
    assert runs == [1, 21]


def test_four_impatient_senders_do_not_use_up_the_attempts(post, handler):
    runs = []

    @handler("stripe", "*", name="h")
    def fail(event):
        runs.append(event.attempt)
        raise ValueError

    answers = [post("stripe", EVENT).status_code for _ in range(12)]
    assert answers == [500, 500] + [503] * 10
    assert runs == [1, 2]


# -- counting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "counted"),
    [
        ({}, True),
        ({"status": "failed", "attempts": 2, "due_at": ago(-3600)}, True),
        ({"status": "quarantined"}, True),
        ({"status": "processing", "lease_until": ago(-3600)}, False),
    ],
)
def test_deliveries_are_counted_at_most_once_a_second(post, runs, values, counted):
    post("stripe", EVENT)
    change(last_delivered_at=ago(2), **values)
    for _ in range(4):
        post("stripe", EVENT)
    assert receipt().deliveries == 1 + counted


def test_of_copies_that_read_the_row_at_the_same_time_one_is_counted(post):
    post("stripe", EVENT)
    change(last_delivered_at=ago(2))
    row = statements.read("default", receipt().fingerprint)
    for _ in range(3):
        statements.count("default", row, intake.COUNT_EVERY)
    assert receipt().deliveries == 2


def test_a_redelivery_never_changes_what_is_stored(post, runs, caplog):
    post("stripe", EVENT)
    change(last_delivered_at=ago(2))
    before = WebhookReceipt.objects.values().get()
    post("stripe", {**EVENT, "type": "y", "extra": 1}, extra={"User-Agent": "other"})
    after = WebhookReceipt.objects.values().get()
    assert {name for name in before if before[name] != after[name]} == {"deliveries", "last_delivered_at"}


# -- statements --------------------------------------------------------------------------------------------------------


def verbs(queries):
    return [query["sql"].split()[0] for query in queries]


@pytest.mark.django_db(transaction=True)
def test_an_unhandled_event_costs_one_insert(post):
    post("stripe", EVENT)
    with CaptureQueriesContext(connection) as queries:
        assert post("stripe", {**EVENT, "id": "evt_2"}).json()["status"] == "ignored"
    assert [query["sql"].count("INSERT INTO") for query in queries] == [1]


@pytest.mark.django_db(transaction=True)
def test_a_handled_event_costs_an_insert_and_the_closing_transaction(post, handler):
    handler("stripe", "*", name="h")(lambda event: None)
    post("stripe", EVENT)
    with CaptureQueriesContext(connection) as queries:
        assert post("stripe", {**EVENT, "id": "evt_2"}).json()["status"] == "processed"
    claim = ["WITH"] if connection.vendor == "postgresql" else ["INSERT"]
    fence = ["UPDATE"] if connection.vendor == "sqlite" else []
    own = [verb for verb in verbs(queries) if verb != "SET"]
    assert own == [*claim, "BEGIN", *fence, "UPDATE", "COMMIT"]


@pytest.mark.django_db(transaction=True)
def test_a_duplicate_costs_one_statement_or_two(post, runs):
    post("stripe", EVENT)
    with CaptureQueriesContext(connection) as queries:
        assert post("stripe", EVENT).json()["status"] == "duplicate"
    assert len(queries) == (1 if connection.vendor == "postgresql" else 2)


# -- which event -------------------------------------------------------------------------------------------------------


def test_d4_ids_that_differ_in_case_are_two_events(post, runs):
    for id_ in ("evt_AbC", "evt_aBc", "evt_aBc ", "evt_aBç"):
        assert post("stripe", {"id": id_, "type": "x"}).json()["status"] == "processed"
    assert len(runs) == WebhookReceipt.objects.count() == 4


@pytest.mark.parametrize(("length", "status"), [(191, 200), (255, 200), (256, 400), (1000, 400), (10_000, 400)])
def test_d5_a_long_id_has_the_same_limit_on_every_database(post, runs, length, status):
    id_ = "é" * (length - 1)
    assert post("stripe", {"id": id_ + "a", "type": "x"}).status_code == status
    assert post("stripe", {"id": id_ + "b", "type": "x"}).status_code == status
    assert len(runs) == (2 if status == 200 else 0)
    if runs:
        assert WebhookReceipt.objects.filter(event_id=id_ + "a").count() == 1


def test_d5_ids_that_differ_beyond_the_limit_are_not_mixed_up(post, runs):
    answers = [post("stripe", {"id": "x" * 299 + last, "type": "x"}).status_code for last in "ab"]
    assert answers == [400, 400]
    assert not WebhookReceipt.objects.exists()


def stamped(body, at):
    return {"X-Stamp": str(at), "X-Acme": senders.hexmac(SECRET, f"{at}.".encode() + body)}


def test_d7_equal_bodies_under_other_stamps_are_other_events(post, sources, handler):
    sources(acme={"PROVIDER": "tests.test_intake.STAMPED", "SECRETS": [SECRET]})
    runs = []
    handler("acme", "*", name="h")(lambda event: runs.append(event.signed_at))
    now = int(time.time())
    answers = [post("acme", b"{}", headers=stamped(b"{}", at)).json()["status"] for at in (now - 2, now - 1, now, now)]
    assert answers == ["processed", "processed", "processed", "duplicate"]
    assert len(runs) == 3


def test_d8_the_same_id_of_two_sources_is_two_events(post, runs, sources, handler):
    sources(globex={"PROVIDER": "stripe", "SECRETS": [SECRET]})
    handler("globex", "*", name="h")(lambda event: runs.append(event.source))
    body = senders.dumps(EVENT)
    post("stripe", EVENT)
    post("globex", EVENT, headers=senders.stripe(body, secret=SECRET))
    assert runs == [1, "globex"]


def test_l1_a_persons_redelivery_runs_what_failed_and_not_what_worked(post, handler):
    runs = []

    @handler("github", "*", name="h")
    def once_broken(event):
        runs.append(event.event_type)
        if len(runs) == 1:
            raise ValueError

    statuses = [post("github", {"a": 1}, guid="g1").status_code for _ in range(3)]
    assert statuses == [500, 200, 200]
    assert len(runs) == 2


def test_l2_one_guid_with_two_bodies_is_two_events(post, runs, sources, handler):
    sources(hooks={"PROVIDER": "github", "SECRETS": [SECRET]})
    handler("hooks", "*", name="h")(lambda event: runs.append(event.source))
    body = senders.dumps({"b": 2})
    assert post("github", {"a": 1}, guid="g").json()["status"] == "processed"
    assert post("hooks", body, headers=senders.github(body, guid="g", secret=SECRET)).json()["status"] == "processed"
    assert post("github", {"b": 2}, guid="g").json()["status"] == "processed"
    assert post("github", {"a": 1}, guid="third").json()["status"] == "quarantined"
    assert len(runs) == 3


def test_l2_a_signed_id_with_another_body_is_a_duplicate_with_a_warning(post, runs, sources, caplog):
    sources(acme={"PROVIDER": "tests.test_intake.STAMPED", "SECRETS": [SECRET], "EVENT_ID": "id"})
    now = int(time.time())
    for body in (b'{"id": 1}', b'{"id": 1, "a": 2}'):
        response = post("acme", body, headers=stamped(body, now))
    assert response.json()["status"] == "duplicate"
    assert [r.message for r in caplog.records if r.levelno == logging.WARNING and "another body" in r.message]


def test_a_body_that_varies_by_design_warns_of_nothing(post, caplog):
    post("stripe", {**EVENT, "pending_webhooks": 1})
    assert post("stripe", {**EVENT, "pending_webhooks": 0}).json()["status"] == "duplicate"
    assert "another body" not in caplog.text


# -- replays -----------------------------------------------------------------------------------------------------------


def captured(body=b'{"n": 1}', **signing):
    return body, senders.partner(body, **signing)


def test_a_retry_that_is_signed_again_under_one_key_takes_effect_once(post, runs):
    answers = [post("partner", {"n": 1}, key="k").json()["status"] for _ in range(5)]
    assert answers == ["processed"] + ["duplicate"] * 4
    assert len(runs) == 1
    assert WebhookSeen.objects.count() == 5


@pytest.mark.parametrize("first", [0, 1])
def test_a_captured_delivery_under_another_id_is_held(post, runs, first):
    """Also one that the sender had signed again for its retry."""
    captures = [captured(), captured()]
    for body, headers in captures:
        post("partner", body, headers={**headers, "Idempotency-Key": "k1"})
    body, headers = captures[first]
    for key in ("k2", "k3", None):
        forged = headers if key is None else {**headers, "Idempotency-Key": key}
        response = post("partner", body, headers=forged)
        assert (response.status_code, response.json()["status"]) == (200, "quarantined")
    held = WebhookReceipt.objects.get(status="quarantined")
    assert (held.reason, held.event_id, held.attempts) == ("replayed", "k2", 0)
    assert len(runs) == 1
    assert post("partner", {"n": 2}, key="k2").json()["status"] == "processed"


def test_a_captured_delivery_without_key_is_held_under_any_other(post, runs):
    body, headers = captured()
    assert post("partner", body, headers=headers).json()["status"] == "processed"
    assert post("partner", body, headers={**headers, "Idempotency-Key": "k"}).json()["status"] == "quarantined"
    assert post("partner", body, headers=headers).json()["status"] == "duplicate"
    assert len(runs) == 1


def test_a_captured_delivery_at_another_door_of_the_same_secret_is_held(post, handler, sources):
    door = {"PROVIDER": "signed-nonce", "SECRETS": shared_secret}
    sources(partner=door, second=door, third={**door, "TENANT": "url"})
    runs = []
    handler(["partner", "second", "third"], "*", name="h")(lambda event: runs.append(event.source))
    body, headers = captured()
    urls = ["/webhooks/partner/", "/webhooks/second/", "/webhooks/third/a/", "/webhooks/third/b/"]
    answers = [post("partner", body, path=url, headers=headers).json()["status"] for url in urls]
    assert answers == ["processed", "quarantined", "quarantined", "quarantined"]
    assert runs == ["partner"]


def test_a_captured_delivery_with_a_signed_id_is_held_at_another_door_of_the_same_secret(post, handler, sources):
    listed = {"PROVIDER": "stripe", "SECRETS": [senders.PARTNER_SECRET]}
    sources(stripe=listed, partner=None, second={"PROVIDER": "stripe", "SECRETS": shared_secret})
    runs = []
    handler(["stripe", "second"], "*", name="h")(lambda event: runs.append(event.source))
    body = senders.dumps({"id": "evt_1", "type": "x"})
    headers = senders.stripe(body, secret=senders.PARTNER_SECRET)
    answers = [post(door, body, headers=headers).json()["status"] for door in ("stripe", "second", "stripe")]
    assert answers == ["processed", "quarantined", "duplicate"]
    assert runs == ["stripe"]


def test_a_captured_delivery_under_another_tenant_is_held(post, runs, sources):
    sources(partner={"SECRETS": shared_secret, "TENANT": "url"})
    body, headers = captured()
    answers = [
        post("partner", body, path=f"/webhooks/partner/{tenant}/", headers=headers).json()["status"] for tenant in "aba"
    ]
    assert answers == ["processed", "quarantined", "duplicate"]
    assert len(runs) == 1


def test_a_nonce_that_comes_again_with_another_body_is_held(post, runs):
    now = int(time.time())
    for body, decision in ((b"{}", "processed"), (b'{"a": 1}', "quarantined"), (b'{"a": 1}', "quarantined")):
        response = post("partner", body, headers=senders.partner(body, nonce="n1", at=now))
        assert response.json()["status"] == decision
    held = WebhookReceipt.objects.get(status="quarantined")
    assert (held.reason, held.idempotency_key) == ("key_reused", "n1")
    assert len(runs) == 1


def test_a_forged_type_does_not_choose_the_handlers_of_a_known_event(post, handler):
    """The type of GitHub is a header that nothing signs."""
    runs = []
    handler("github", "deployment", name="deploy")(lambda event: runs.append("deploy"))
    broken = handler("github", "push", name="push")

    @broken
    def fail(event):
        runs.append("push")
        raise ValueError

    assert post("github", {"a": 1}, guid="g", event="push").status_code == 500
    assert post("github", {"a": 1}, guid="g", event="deployment").status_code == 500
    assert receipt().handlers == ["push"]
    assert runs == ["push", "push"]


def test_a_forged_type_does_not_wake_an_ignored_event(post, handler):
    runs = []
    handler("github", "deployment", name="deploy")(lambda event: runs.append("deploy"))
    assert post("github", {"a": 1}, guid="g", event="push").json()["status"] == "ignored"
    assert post("github", {"a": 1}, guid="g", event="deployment").json()["status"] == "duplicate"
    assert not runs


def test_an_event_runs_as_the_source_that_it_reached_first(post, handler, sources):
    sources(
        partner={"NAMESPACE": "one"},
        second={"PROVIDER": "signed-nonce", "SECRETS": [senders.PARTNER_SECRET], "NAMESPACE": "one"},
    )
    runs = []
    handler("second", "*", name="second")(lambda event: runs.append(event.source))

    @handler("partner", "*", name="first")
    def fail(event):
        runs.append(event.source)
        raise RetryLater(0)

    body, headers = captured(key="k")
    post("partner", body, headers=headers)
    WebhookReceipt.objects.update(due_at=timezone.now())
    post("partner", body, path="/webhooks/second/", headers=headers)
    assert runs == ["partner", "partner"]
    assert receipt().handlers == ["first"]


# -- former names ------------------------------------------------------------------------------------------------------


@pytest.fixture
def renamed(sources):
    """Rename the partner."""
    new = {"PROVIDER": "signed-nonce", "SECRETS": [senders.PARTNER_SECRET], "FORMERLY": ["partner"]}
    return lambda **options: sources(partner=None, renamed={**new, **options})


def test_a_renamed_source_knows_its_events(post, handler, renamed):
    runs = []

    @handler(["partner", "renamed"], "*", name="h")
    def twice_broken(event):
        runs.append(event.source)
        if len(runs) == 1:
            raise ValueError

    body, headers = captured(key="k")
    assert post("partner", body, headers=headers).status_code == 500
    renamed()
    assert post("partner", body, path="/webhooks/renamed/", headers=headers).json()["status"] == "processed"
    assert post("partner", {"n": 1}, path="/webhooks/renamed/", key="k").json()["status"] == "duplicate"
    assert runs == ["partner", "renamed"]


def test_a_late_delivery_ends_what_is_open_under_a_former_name(post, handler, renamed):
    runs = []

    @handler(["partner", "renamed"], "*", name="h")
    def once_broken(event):
        runs.append(event.source)
        if len(runs) == 1:
            raise ValueError

    body, headers = captured(key="k", at=late(100))
    assert post("partner", body, headers=headers).status_code == 500
    renamed(TOLERANCE=50)
    assert post("partner", body, path="/webhooks/renamed/", headers=headers).json()["status"] == "processed"
    assert post("partner", body, path="/webhooks/renamed/", headers=headers).json()["status"] == "late"


@pytest.mark.parametrize("again", [False, True])
def test_a_captured_delivery_is_held_after_a_rename(post, handler, renamed, again):
    runs = []
    handler(["partner", "renamed"], "*", name="h")(lambda event: runs.append(event.source))
    body, headers = captured()
    post("partner", body, headers={**headers, "Idempotency-Key": "k1"})
    renamed()
    if again:
        body, headers = captured()  # a retry after the rename, signed again
        post("partner", body, path="/webhooks/renamed/", headers={**headers, "Idempotency-Key": "k1"})
    forged = {**headers, "Idempotency-Key": "k2"}
    assert post("partner", body, path="/webhooks/renamed/", headers=forged).json()["status"] == "quarantined"
    assert runs == ["partner"]


# -- transactions and faults -------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("source", ["stripe", "partner"])
def test_d2_a_duplicate_inside_a_test_case_leaves_the_transaction_whole(post, runs, source):
    outer = transaction.atomic()
    outer._from_testcase = True
    signing = {"key": "k"} if source == "partner" else {}
    with outer:
        answers = [post(source, EVENT, **signing).json()["status"] for _ in range(2)]
        assert WebhookReceipt.objects.count() == 1
    assert answers == ["processed", "duplicate"]
    assert WebhookReceipt.objects.count() == len(runs) == 1


@pytest.mark.parametrize("source", ["stripe", "partner"])
@pytest.mark.django_db(transaction=True)
def test_the_view_refuses_an_outer_transaction(post, runs, caplog, source):
    with transaction.atomic():
        response = post(source, EVENT)
    assert response.status_code == 503
    assert "durable" in caplog.text
    assert not runs
    assert not WebhookReceipt.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("source", ["stripe", "partner"])
def test_the_view_refuses_a_connection_that_commits_nothing(post, caplog, source):
    transaction.set_autocommit(False)
    try:
        assert post(source, EVENT).status_code == 503
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    assert "Autocommit" in caplog.text
    assert not WebhookReceipt.objects.exists()


def test_a_claim_looks_again_while_the_row_changes(post, runs, monkeypatch):
    post("stripe", EVENT)
    set_state("received", {})
    monkeypatch.setattr(statements, "lease", lambda *args: False)
    check(post("stripe", EVENT), runs, 503, "busy", 1, False)


def test_a_receipt_that_vanishes_between_insert_and_read_is_inserted_again(post, runs, monkeypatch):
    insert, calls = statements.insert, []

    def first_loses(using, new):
        calls.append(new)
        return statements.Inserted(None, None) if len(calls) == 1 else insert(using, new)

    monkeypatch.setattr(statements, "insert", first_loses)
    assert post("stripe", EVENT).json()["status"] == "processed"
    assert len(calls) == 2


def test_what_a_database_refuses_in_a_header_is_not_kept(post):
    assert post("stripe", EVENT, extra={"User-Agent": "a\0b" + "é" * 5000}).status_code == 200
    kept = receipt().headers["user-agent"]
    assert kept.startswith("abé")
    assert len(kept) == 1024


@pytest.mark.parametrize("created", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999+00:00", 0, -1, 1e300, None])
def test_a_strange_moment_is_no_server_error(post, runs, created):
    assert post("stripe", {**EVENT, "created": created}).status_code == 200
    receipt().refresh_from_db()
    assert len(runs) == 1
