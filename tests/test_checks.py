import math

import pytest
from django.core.checks import Error, Warning, run_checks
from django.db import connections, models
from django.test.utils import isolate_apps

from django_webhook_guard import checks, conf
from django_webhook_guard.handlers import unregister, webhook_handler
from django_webhook_guard.locators import Header
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.providers import Provider
from django_webhook_guard.secrets import Secret
from django_webhook_guard.verifiers import HMACVerifier

GOOD = "g00d-0123456789abcdef"
NAN, INF = math.nan, math.inf


def messages():
    return run_checks(tags=["django_webhook_guard"])


def ids():
    return [message.id.removeprefix("django_webhook_guard.") for message in messages()]


def test_the_test_project_has_the_one_warning_about_github():
    assert ids() == ["W003"]


#: Options of one source that make it unusable, by the id of their check.
FATAL = {
    "E022": [{"LATE": "hold"}, {"INVALID": None}, {"UNHANDLED": True}, {"LATE": []}, {"PROCESSING": "later"}],
    "E023": [
        {"ACCEPT": "no.such.function"},
        {"ACCEPT": "django.VERSION"},
        {"ACCEPT": 5},
        {"ACCEPT": "tests.test_policies.is_awaited"},
    ],
    "E024": [
        {"SCHEMA": "no.such.Serializer"},
        {"SCHEMA": "django.VERSION"},
        {"SCHEMA": "django.db.models.Model"},
        {"SCHEMA": 5},
        {"SCHEMA": {"": "rest_framework.serializers.Serializer"}},
        {"SCHEMA": {5: "rest_framework.serializers.Serializer"}},
        {"SCHEMA": {"*": None}},
    ],
    "E025": [{"SECRETS_TTL": -1}, {"SECRETS_TTL": "60"}, {"SECRETS_TTL": NAN}, {"SECRETS_TTL": True}],
    "E026": [
        {"PROVIDER": "generic-hmac"},
        {"PROVIDER": "generic-hmac", "OPTIONS": []},
        {"PROVIDER": "generic-hmac", "OPTIONS": {"header": "X-A", "signed": "{timestamp}"}},
        {"PROVIDER": "generic-hmac", "OPTIONS": {"header": "X-A", "signed": "{body}", "secret": "x"}},
        {"OPTIONS": {"header": "X-A", "signed": "{body}"}},
    ],
    "E031": [
        {"CAPTURE_REJECTED": -1},
        {"CAPTURE_REJECTED": 1_001},
        {"CAPTURE_REJECTED": True},
        {"CAPTURE_REJECTED": "5"},
        {"EXPECT_EVERY": 0},
        {"EXPECT_EVERY": "60"},
        {"EXPECT_EVERY": NAN},
        {"PERSONAL": "customer.email"},
        {"PERSONAL": [""]},
        {"PERSONAL": [5]},
        {"PERSONAL": [None]},
        {"PERSONAL": [("a", "b")]},
    ],
    "E028": [
        {"DISPATCHER": "rq"},
        {"DISPATCHER": None},
        {"DISPATCHER": "no.such.function"},
        {"DISPATCHER": "django.VERSION"},
        {"DISPATCHER": "tests.test_policies.is_awaited"},
        {"DISPATCHER_OPTIONS": None},
        {"DISPATCHER_OPTIONS": {"countdown": 5}},
        {"DISPATCHER_OPTIONS": {"queue": 5}},
        {"DISPATCHER_OPTIONS": {"priority": True}},
    ],
    "E027": [
        {"RETENTION": value}
        for value in (
            5,
            None,
            [],
            {"rows": 1},
            {"body": -1},
            {"body": "30"},
            {"headers": True},
            {"row": NAN},
            {"row": INF},
            {"row": 10**400},
            {"unstamped_row": "key"},
            {"unstamped_row": []},
        )
    ],
    "E002": [{"TOLERENCE": 60}, {"secrets": [GOOD]}, {"SOURCES": {}}],
    "E004": [
        {"PROVIDER": "stirpe"},
        {"PROVIDER": None},
        {"PROVIDER": 5},
        {"PROVIDER": ""},
        {"PROVIDER": "no.such.PROVIDER"},
        {"PROVIDER": "django.VERSION"},
        {"PROVIDER": "django_webhook_guard.providers.Provider"},
    ],
    "E005": [
        {"PROVIDER": "signed-nonce", "TENANT": True},
        {"TENANT": False},
        {"TENANT": ""},
        {"TENANT": 5},
        {"EVENT_ID": 5},
        {"EVENT_ID": ["id"]},
        {"EVENT_ID": ()},
        {"EVENT_ID": ("id", None)},
        {"EVENT_TYPE": b"type"},
        {"OCCURRED_AT": 1.5},
        {"OBJECT": ("a", ("b",))},
        {"KEY_FIELDS": "id"},
        {"KEY_FIELDS": 5},
        {"KEY_FIELDS": [None]},
        {"KEY_FIELDS": [""]},
        {"KEY_FIELDS": [()]},
        {"KEY_FIELDS": [["a"]]},
    ],
    "E006": [
        {"NAMESPACE": ""},
        {"NAMESPACE": " "},
        {"NAMESPACE": None},
        {"NAMESPACE": 5},
        {"FORMERLY": "old"},
        {"FORMERLY": [""]},
        {"FORMERLY": [5]},
        {"FORMERLY": None},
        {"FORMERLY": ["github"]},
        {"FORMERLY": ["stripe"]},
    ],
    "E007": [{"TOLERANCE": value} for value in (0, 0.0, -1, NAN, INF, -INF, "300", "", True, [], 10**400, 1e300)],
    "E008": [{"MAX_BODY": value} for value in (0, -1, 0.5, 1e6, NAN, "1", None, True, 10**400)]
    + [{"LEASE": value} for value in (0, -1, NAN, INF, "60", None, True)],
    "E009": [
        {"RETRY": value}
        for value in (
            5,
            None,
            {"bse": 1},
            {"base": 0},
            {"base": "2"},
            {"base": NAN},
            {"factor": 0.5},
            {"factor": None},
            {"jitter": 1.1},
            {"jitter": -0.1},
            {"max_attempts": 1.5},
            {"max_attempts": 0},
            {"max_attempts": True},
            {"max_age": INF},
            {"max_delay": 10**400},
        )
    ],
    "E010": [
        {"RESPONSES": value}
        for value in (
            5,
            None,
            [],
            {"proccessed": 200},
            {"processed": 302},
            {"processed": "200"},
            {"processed": True},
            {"processed": 99},
            {"processed": 600},
            {"processed": None},
            {"failed": 200},
            {"rejected": 200},
            {"late": 202},
            {"malformed": 204},
            {"busy": 200},
            {"unavailable": 200},
        )
    ],
    "E011": [
        {"PUBLIC_URL": value}
        for value in (
            5,
            "",
            "hooks.example.org",
            "ftp://hooks.example.org",
            "https://",
            "https://a.example/path",
            "https://a.example?x=1",
            "https://a.example#x",
            "https://user:pw@a.example",
            "https://a.example\n",
            "http://[",
            "http://[::1",
        )
    ]
    + [{"ROUTE": value} for value in (None, 0, 1, "yes")],
    "E012": [{"SECRETS": value} for value in ("", "whsec_0123456789abcdef", "no.such.callable", "django.VERSION")],
    "E014": [{"SECRETS": value} for value in (None, [], (), b"s3cret", 5, {GOOD}, {"secret": GOOD})]
    + [
        {"SECRETS": [value]}
        for value in ("", "   ", None, 5, GOOD + "\n", "sk_test_0123456789abcdef", "changeme-changeme")
    ]
    + [{"SECRETS": [{"secret": GOOD, **extra}]} for extra in ({"not_after": "soon"}, {"idd": "v1"}, {"not_after": 5})]
    + [{"SECRETS": [{"id": "v1"}]}, {"SECRETS": [GOOD], "TENANT": "url"}],
}
CASES = [pytest.param(id, options, id=f"{id}-{options}"[:60]) for id, listed in FATAL.items() for options in listed]


@pytest.mark.parametrize(("id", "options"), CASES)
def test_a_source_with_an_error_is_reported_and_accepts_nothing(sources, post, caplog, id, options):
    sources(stripe=options)
    assert id in ids()
    caplog.clear()
    response = post("stripe", {"id": "evt_1", "type": "x"})
    assert (response.status_code, response["Retry-After"]) == (503, "10")
    lines = [
        record.getMessage() for record in caplog.records if record.levelname == "ERROR" and "webhook" in record.msg
    ]
    assert len(lines) == 1 and "'stripe'" in lines[0]
    assert post("github", {}, headers={}).status_code == 401


@pytest.mark.parametrize(("id", "options"), CASES)
def test_an_error_names_source_and_next_step_and_never_a_secret(sources, id, options):
    sources(stripe=options)
    found = [message for message in messages() if message.id.endswith(id)]
    assert all(isinstance(message, Error) and message.hint and "'stripe'" in message.msg for message in found)
    shown = str(messages())
    assert not any(text in shown for text in (GOOD, "whsec_0123456789abcdef", "sk_test_", "changeme", "user:pw"))


@pytest.mark.parametrize("raw", [5, [], "stripe", {"SOURCES": []}, {"SOURCES": None}, {"SOURCES": "stripe"}])
def test_e001_a_setting_that_is_no_dict(settings, post, raw):
    settings.WEBHOOK_GUARD = raw
    assert ids() == ["E001"]
    assert post("stripe", {"id": "evt_1"}).status_code == 503


@pytest.mark.parametrize("key", ["TOLERENCE", "SECRETS", "TENANT", "PROVIDER", "sources", 5])
def test_e002_above_the_sources_concerns_all_of_them(settings, post, key):
    settings.WEBHOOK_GUARD = {**settings.WEBHOOK_GUARD, key: [GOOD]}
    assert "E002" in ids()
    assert GOOD not in str(messages())
    assert post("stripe", {"id": "evt_1", "type": "x"}).status_code == 503


@pytest.mark.parametrize("name", ["", "a b", "a/b", "é", "a" * 101, "---", None, 5, ("a",)])
@pytest.mark.parametrize("options", [{"PROVIDER": "stripe", "SECRETS": [GOOD]}, None])
def test_e003_a_name_that_is_none(settings, name, options):
    settings.WEBHOOK_GUARD = {"SOURCES": {name: options}}
    assert ids() == ["E003"]
    assert GOOD not in str(messages())


def test_e003_a_source_without_a_dict(settings, post):
    settings.WEBHOOK_GUARD = {"SOURCES": {"stripe": [GOOD]}}
    assert ids() == ["E003"]
    assert post("stripe", {"id": "evt_1"}).status_code == 503


def test_e006_two_sources_with_one_former_name(sources):
    sources(stripe={"FORMERLY": ["old"]}, github={"FORMERLY": ["old"]})
    assert "E006" in ids()


@pytest.mark.parametrize(
    ("secret", "flaw"),
    [
        ("", "is blank"),
        (" \t", "is blank"),
        (GOOD + "\n", "has white space around it"),
        (" " + GOOD, "has white space around it"),
        ("short", "is shorter than 14 bytes"),
        ("sk_test_0123456789abcdef", "looks like an API key"),
        ("pk_live_0123456789abcdef", "looks like an API key"),
        ("ghp_0123456789abcdef0123", "looks like an API key"),
        ("your-webhook-secret", "looks like a placeholder"),
        (None, "is neither text nor a dict"),
        ({"secret": None}, "is not text"),
        ({"secret": GOOD, "id": 2}, "has as id no"),
        ({"secret": GOOD, "id": "x" * 65}, "has as id no"),
        ({"secret": GOOD, "tenant": 42}, "has as tenant no"),
        ({"secret": GOOD, "not_after": "soon"}, "is neither text nor a dict"),
        (Secret("short"), "is shorter than 14 bytes"),
    ],
)
def test_e013_j1_j4_j8_a_flawed_secret_is_reported_and_never_used(sources, secret, flaw):
    sources(stripe={"SECRETS": ["whsec_0123456789abcdef0123", secret]})
    (found,) = [message for message in messages() if message.id.endswith("E013")]
    assert flaw in found.msg
    assert [each.key_id for each in conf.get_source("stripe").secrets] == ["e20ac3bd"]


def test_e013_a_secret_goes_by_its_name_or_its_number(sources):
    sources(stripe={"SECRETS": [{"id": "v1", "secret": "short"}, "short"]})
    shown = " ".join(message.msg for message in messages())
    assert "secret 'v1' is shorter" in shown and "secret number 2 is shorter" in shown


@pytest.mark.parametrize("tenant", ["url", Header("X-Shop")])
def test_e013_a_secret_without_tenant_can_not_vouch_for_one(sources, tenant):
    sources(stripe={"TENANT": tenant, "SECRETS": [GOOD, {"secret": "0ther-0123456789abcdef", "tenant": "a"}]})
    assert any("secret number 1 has no tenant" in message.msg for message in messages())
    assert [each.tenant for each in conf.get_source("stripe").secrets] == ["a"]


SHARED = [GOOD, "0ther-0123456789abcdef"]


@pytest.mark.parametrize(
    "second",
    [
        {},
        {"NAMESPACE": "third"},
        {"NAMESPACE": "stripe", "TENANT": "account"},
        {"NAMESPACE": "stripe", "EVENT_ID": "other"},
        {"NAMESPACE": "stripe", "KEY_FIELDS": ["a"]},
        {"NAMESPACE": "stripe", "SECRETS": [{"secret": GOOD, "tenant": "a"}]},
    ],
)
def test_e015_a_shared_secret_is_never_used(sources, post, second):
    sources(stripe={"SECRETS": [GOOD]}, second={"PROVIDER": "stripe", "SECRETS": [GOOD], **second})
    (found,) = [message for message in messages() if message.id.endswith("E015")]
    assert "second, stripe share a secret" in found.msg and GOOD not in str(found)
    assert post("stripe", {"id": "evt_1", "type": "x"}, secret=GOOD).status_code == 503


def test_e015_only_the_shared_one_is_taken_away(sources, post):
    sources(stripe={"SECRETS": SHARED}, second={"PROVIDER": "stripe", "SECRETS": [GOOD]})
    assert post("stripe", {"id": "evt_1", "type": "x"}, secret=GOOD).status_code == 401
    assert len(conf.get_source("stripe").secrets) == 1


def test_e015_one_secret_of_two_tenants(sources):
    listed = [{"secret": GOOD, "tenant": "a"}, {"secret": GOOD, "tenant": "b"}]
    sources(stripe={"TENANT": "url", "SECRETS": listed})
    assert "E015" in ids()
    assert conf.get_source("stripe").secrets == ()


def test_one_namespace_and_one_key_may_share_a_secret(sources):
    shared = {"PROVIDER": "stripe", "SECRETS": [GOOD], "NAMESPACE": "payments"}
    sources(stripe=shared, second={**shared, "EVENT_ID": "id", "TOLERANCE": 60})
    assert ids() == ["W003"]
    assert len(conf.get_source("stripe").secrets) == len(conf.get_source("second").secrets) == 1


@pytest.fixture
def database(monkeypatch):
    def change(**options):
        for name, value in options.items():
            monkeypatch.setitem(connections.settings["default"], name, value)
        conf._cache.clear()

    yield change
    monkeypatch.undo()
    conf._cache.clear()


def test_e016_without_autocommit_nothing_is_accepted(database, post, caplog):
    database(AUTOCOMMIT=False)
    assert "E016" in ids()
    assert post("stripe", {"id": "evt_1", "type": "x"}).status_code == 503
    assert [record.levelname for record in caplog.records if "AUTOCOMMIT" in record.getMessage()] == ["ERROR"]


@pytest.mark.parametrize(
    ("engine", "reported"), [("django.db.backends.mysql", True), ("django.db.backends.postgresql", False)]
)
def test_e017_a_time_zone_of_the_database_on_mysql(database, post, engine, reported):
    database(ENGINE=engine, TIME_ZONE="Europe/Berlin")
    assert ("E017" in ids()) is reported
    assert not reported or post("stripe", {"id": "evt_1", "type": "x"}).status_code == 503


def test_w001_a_short_lease_is_a_warning(sources):
    sources(stripe={"LEASE": 29})
    (found,) = [message for message in messages() if message.id.endswith("W001")]
    assert isinstance(found, Warning) and "29" in found.msg
    assert conf.get_source("stripe").lease == 29
    sources(stripe={"LEASE": 30})
    assert "W001" not in ids()


def test_w002_a_handler_without_source(handler):
    handler("gitbuh", "*", name="lost")(lambda event: None)
    (found,) = [message for message in messages() if message.id.endswith("W002")]
    assert "'lost' waits for source 'gitbuh'" in found.msg and "github, partner, stripe" in found.hint


def test_w003_goes_with_the_source(sources):
    sources(github=None)
    assert ids() == []


def test_e027_a_default_that_no_source_takes_is_reported_once(settings, sources):
    sources(stripe=None, partner=None, github={"RETENTION": {}})
    assert "E027" not in ids()
    settings.WEBHOOK_GUARD = {**settings.WEBHOOK_GUARD, "RETENTION": {"row": -1}}
    (found,) = [message for message in messages() if message.id.endswith("E027")]
    assert found.msg == "WEBHOOK_GUARD: RETENTION['row'] is -1." and found.hint
    sources(github=None, partner={"PROVIDER": "signed-nonce", "SECRETS": [GOOD]})
    (found,) = [message for message in messages() if message.id.endswith("E027")]
    assert "source 'partner'" in found.msg


@pytest.mark.parametrize(
    ("source", "options", "warned"),
    [
        ("stripe", {}, []),
        ("stripe", {"RETENTION": {"row": 33}}, ["row"]),
        ("stripe", {"RETENTION": {"row": 33.01}}, []),
        ("stripe", {"RETENTION": {"row": 33.01}, "TOLERANCE": 3600}, ["row"]),
        ("stripe", {"RETENTION": {"row": 33}, "TOLERANCE": None}, []),
        ("stripe", {"RETENTION": {"row": None, "unstamped_row": None}}, []),
        ("stripe", {"RETENTION": {"body": 0, "headers": 0}}, []),
        ("github", {"RETENTION": {"row": 2, "unstamped_row": 1}}, ["row", "unstamped_row"]),
        ("github", {"RETENTION": {"row": 4, "unstamped_row": 4}}, []),
    ],
)
def test_w007_a_row_that_would_go_while_its_event_may_come_again(sources, source, options, warned):
    sources(**{source: options})
    found = [message for message in messages() if message.id.endswith("W007")]
    assert all(isinstance(message, Warning) and f"source {source!r}" in message.msg for message in found)
    assert [message.msg.split("RETENTION['")[1].split("']")[0] for message in found] == warned


def test_w007_says_how_much_is_enough(sources):
    sources(stripe={"RETENTION": {"row": 7}})
    (found,) = [message for message in messages() if message.id.endswith("W007")]
    assert "RETENTION['row'] is 7 days, and an event of stripe may come again for 33.0069." in found.msg
    assert "give 34 or more" in found.hint


def test_e018_two_handlers_of_one_name(handler):
    one, two = (lambda event: None), (lambda event: None)
    handler("stripe", "a", name="same")(one)
    handler("github", "b", name="same")(two)
    assert "E018" not in ids()
    webhook_handler("stripe", "b", name="same")(two)
    assert ids().count("E018") == 1
    unregister(two)


def test_e018_a_former_name_that_is_taken_again(handler):
    handler("stripe", "a", name="new", formerly="old")(lambda event: None)
    handler("stripe", "b", name="old")(lambda event: None)
    assert ids().count("E018") == 1


def test_e020_a_handler_on_a_database_that_is_not_there(handler):
    handler("stripe", "*", name="lost", using="analytics")(lambda event: None)
    (found,) = [message for message in messages() if message.id.endswith("E020")]
    assert "'analytics'" in found.msg and "default, other" in found.hint


class Elsewhere:
    """A router that keeps the receipts on another database."""

    def db_for_write(self, model, **hints):
        return "other" if model._meta.app_label == "django_webhook_guard" else None

    def allow_migrate(self, db, app_label, **hints):
        return db != "default" if app_label == "django_webhook_guard" else None


@pytest.mark.parametrize(
    ("options", "found"),
    [({}, ["E029"]), ({"using": "other"}, []), ({"atomic": False}, []), ({"using": "default"}, ["E030"])],
)
def test_e029_and_e030_where_a_handler_writes(settings, sources, handler, options, found):
    sources(github=None)
    settings.DATABASE_ROUTERS = [Elsewhere()]
    handler("stripe", "*", name="h", **options)(lambda event: None)
    assert ids() == found


def test_w008_a_projects_rows_that_go_with_a_receipt(monkeypatch):
    with isolate_apps("tests.project") as registry:
        _invoice()
        monkeypatch.setattr(checks, "apps", registry)
        (found,) = checks.check_cascades(None)
    assert found.id.endswith("W008")
    assert "project.Invoice.receipt cascades from WebhookReceipt" in found.msg


def _invoice():
    class Invoice(models.Model):
        receipt = models.ForeignKey(WebhookReceipt, on_delete=models.CASCADE)
        kept = models.ForeignKey(WebhookReceipt, on_delete=models.SET_NULL, null=True, related_name="+")

        class Meta:
            app_label = "project"

    return Invoice


@pytest.mark.parametrize(
    ("tasks", "options", "found"),
    [
        ({}, {}, ["W009"]),
        ({"default": {"BACKEND": "django.tasks.backends.dummy.DummyBackend"}}, {}, ["W009"]),
        ({"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}}, {}, []),
        ({"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}}, {"backend": "fast"}, ["W009"]),
    ],
)
def test_w009_tasks_without_workers(settings, sources, tasks, options, found):
    settings.TASKS = tasks
    sources(github=None, stripe={"PROCESSING": "deferred", "DISPATCHER": "tasks", "DISPATCHER_OPTIONS": options})
    assert ids() == found


@pytest.mark.django_db
def test_e021_without_zones_nothing_is_accepted(settings, post):
    settings.USE_TZ = False
    assert "E021" in ids()
    assert post("stripe", {"id": "evt_1", "type": "x"}).status_code == 503


def test_no_check_asks_the_database():
    # Without the mark for a database every query is an error.
    assert messages()


STAMPED = {"header": "X-Signature", "layout": "t={timestamp},v1={signature}", "signed": "{timestamp}.{url}.{body}"}
KEEPS_STAMP = Provider(name="keeper", verifier=HMACVerifier(**STAMPED), event_id="id", retry_span=600)
SIGNS_AFRESH = Provider(name="fresh", verifier=HMACVerifier(**STAMPED), varies=frozenset({"stamp"}))


@pytest.mark.parametrize(("tolerance", "found"), [(599, ["E019"]), (600, []), (None, [])])
def test_e019_a_window_shorter_than_the_repeats_of_one_stamp(sources, tolerance, found):
    where = f"{__name__}.KEEPS_STAMP"
    source = {"PROVIDER": where, "SECRETS": [GOOD], "TOLERANCE": tolerance, "PUBLIC_URL": "https://a.example"}
    sources(github=None, keeper=source)
    assert ids() == found


@pytest.mark.parametrize(("options", "found"), [({}, ["W004"]), ({"EVENT_ID": "id"}, []), ({"KEY_FIELDS": ["n"]}, [])])
def test_w004_a_retry_that_cannot_be_told_from_a_new_event(sources, options, found):
    source = {"PROVIDER": f"{__name__}.SIGNS_AFRESH", "SECRETS": [GOOD], "PUBLIC_URL": "https://a.example"}
    sources(github=None, fresh={**source, **options})
    assert ids() == found


def test_w005_a_signed_url_and_no_public_url(sources):
    sources(github=None, fresh={"PROVIDER": f"{__name__}.SIGNS_AFRESH", "SECRETS": [GOOD], "EVENT_ID": "id"})
    assert ids() == ["W005"]


# -- ASGI --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asgi", "age", "options", "expected"),
    [
        ("project.asgi.application", 60, {}, ["W006"]),
        ("project.asgi.application", None, {}, ["W006"]),
        ("project.asgi.application", 0, {}, []),
        ("project.asgi.application", 60, {"pool": True}, []),
        (None, 60, {}, []),
    ],
)
def test_w006_persistent_connections_under_asgi(database, settings, asgi, age, options, expected):
    settings.ASGI_APPLICATION = asgi
    database(CONN_MAX_AGE=age, OPTIONS=options)
    assert [id for id in ids() if id == "W006"] == expected


def test_w006_a_routed_async_door_is_asgi_too(database, settings):
    database(CONN_MAX_AGE=60)
    assert "W006" not in ids()
    settings.ROOT_URLCONF = "tests.test_views_async"
    assert "W006" in ids()
