import json
from datetime import UTC, datetime, timedelta

import pytest
from django.core.signals import setting_changed
from django.test import override_settings
from hypothesis import given, settings
from hypothesis import strategies as st

from django_webhook_guard import conf, options
from django_webhook_guard import sources as sources_module
from django_webhook_guard.conf import Retention
from django_webhook_guard.exceptions import Misconfigured, SignatureMismatch, UnknownTenant
from django_webhook_guard.locators import Body, Either, Form, Header, Query
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.providers import PROVIDERS, Provider
from django_webhook_guard.retries import RetryPolicy
from django_webhook_guard.secrets import Secret
from django_webhook_guard.verifiers import HMACVerifier
from tests.senders import hexmac, stripe

A, B = "tenant-a-0123456789abcdef", "tenant-b-0123456789abcdef"
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
EVENT = {"id": "evt_1", "type": "x"}
NOT_A_PROVIDER = object()
MILLISECONDS = Provider(
    name="acme-ms",
    verifier=HMACVerifier(header="X-Acme", signed="{timestamp}.{body}", timestamp_header="X-Time", stamp="ms"),
    event_id="id",
)


# Look-ups, as a project writes them.
def of_tenant(source, tenant):
    try:
        return [Secret({"a": A, "b": B}[tenant])]
    except KeyError:
        raise UnknownTenant(f"none is called {tenant}") from None


def of_all_tenants(source, tenant):
    assert tenant is None
    return (Secret(secret, tenant=name) for name, secret in (("a", A), ("b", B), (None, "n0ne-0123456789abcdef")))


def returns_none(source, tenant):
    return None


def returns_text(source, tenant):
    return A


def returns_texts(source, tenant):
    return [A, {"secret": A}, None]


def returns_flawed(source, tenant):
    return [
        Secret(""),
        Secret("  "),
        Secret(None),
        Secret("short"),
        Secret(A + "\n"),
        Secret("sk_test_0123456789abcdef"),
    ]


def returns_expired(source, tenant):
    return [Secret(A, not_after="2020-01-01")]


def returns_number(source, tenant):
    return 5


def breaks(source, tenant):
    raise RuntimeError(f"the vault said {A}")


def breaks_halfway(source, tenant):
    yield Secret(A)
    raise RuntimeError(f"the vault said {A}")


def mismatches(source, tenant):
    raise SignatureMismatch("not for a look-up to say")


async def asynchronous(source, tenant):
    return [Secret(A)]


def here(name):
    return f"{__name__}.{name}"


@pytest.fixture
def errors(caplog):
    return lambda: [
        record.getMessage() for record in caplog.records if record.levelname == "ERROR" and "webhook" in record.msg
    ]


# -- reading -----------------------------------------------------------------------------------------------------------


def test_settings_are_read_at_use():
    guard = {"SOURCES": {"stripe": {"PROVIDER": "stripe", "SECRETS": [A], "TOLERANCE": 7}}}
    with override_settings(WEBHOOK_GUARD=guard):
        assert conf.get_source("stripe").tolerance == 7
        with override_settings(WEBHOOK_GUARD={**guard, "TOLERANCE": 8}), pytest.raises(conf.UnknownSource):
            conf.get_source("github")
    assert conf.get_source("stripe").tolerance == 300


def test_a_change_of_the_databases_is_seen():
    before = conf.configuration()
    assert conf.configuration() is before
    setting_changed.send(sender=None, setting="DATABASE_ROUTERS", value=None, enter=True)
    assert conf.configuration() is not before


def test_without_the_setting_there_is_no_source(settings, post):
    del settings.WEBHOOK_GUARD
    assert conf.configuration() == conf.Configuration(sources={}, problems=())
    assert post("stripe", EVENT).status_code == 404


def test_what_stands_above_is_the_default_of_every_source(settings):
    guard = settings.WEBHOOK_GUARD
    settings.WEBHOOK_GUARD = {
        **guard,
        "TOLERANCE": 60,
        "MAX_BODY": 9,
        "LEASE": 40,
        "RELEASE": "v7",
        "RETRY": {"base": 5},
    }
    stripe_, partner = conf.get_source("stripe"), conf.get_source("partner")
    assert stripe_.tolerance == partner.tolerance == 60
    assert (stripe_.max_body, stripe_.lease, stripe_.release, stripe_.retry) == (9, 40, "v7", RetryPolicy(base=5))


def test_a_source_s_own_value_wins(settings, sources):
    sources(stripe={"TOLERANCE": None, "RETRY": {"max_attempts": 3}})
    settings.WEBHOOK_GUARD = {**settings.WEBHOOK_GUARD, "TOLERANCE": 60, "RETRY": {"base": 5}}
    assert conf.get_source("stripe").tolerance is None
    assert conf.get_source("stripe").retry == RetryPolicy(max_attempts=3)
    assert conf.get_source("partner").tolerance == 60


@pytest.mark.parametrize(
    ("above", "own", "kept"),
    [
        ({}, {}, Retention()),
        ({"RETENTION": {"body": 7}}, {}, Retention(body=7)),
        ({"RETENTION": {"body": 7}}, {"RETENTION": {"row": 90}}, Retention(row=90)),
        ({"RETENTION": {"body": 7}}, {"RETENTION": {}}, Retention()),
        ({}, {"RETENTION": {"body": None, "headers": 0, "row": 1.5}}, Retention(body=None, headers=0, row=1.5)),
        ({}, {"RETENTION": {"unstamped_row": None}}, Retention(unstamped_row=None)),
        ({}, {"RETENTION": {"unstamped_row": 90}}, Retention(unstamped_row=90)),
    ],
)
def test_retention_is_merged_over_its_defaults(settings, sources, above, own, kept):
    sources(stripe=own)
    settings.WEBHOOK_GUARD = {**settings.WEBHOOK_GUARD, **above}
    assert conf.get_source("stripe").retention == kept
    assert (
        conf.configuration().retention == conf.get_source("github").retention == Retention(**above.get("RETENTION", {}))
    )


@pytest.mark.parametrize("given", [5, {"row": -1}, {"rows": 1}])
def test_a_retention_that_cannot_be_read_keeps_everything(settings, given):
    settings.WEBHOOK_GUARD = {**settings.WEBHOOK_GUARD, "RETENTION": given}
    known = conf.configuration()
    assert known.retention == known.sources["stripe"].retention == sources_module.KEPT
    assert not any(vars(sources_module.KEPT).values())


def test_the_defaults_of_a_source():
    source = conf.get_source("stripe")
    assert (source.tolerance, source.max_body, source.lease, source.route) == (300, 1 << 20, 60, True)
    assert (source.tenant, source.formerly, source.public_url, source.release) == (None, (), None, "")
    assert source.retry == RetryPolicy() and source.responses == {} and source.rules.namespace == "stripe"


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**400), 10**400),
    st.floats(),
    st.text(max_size=8),
    st.binary(max_size=8),
    st.sampled_from(
        ["url", "http://[", "a..b", ".", "stripe", (), [()], {}, Body(), Header(""), Either(), (Body("a"), 5)]
    ),
    st.lists(st.none() | st.text(max_size=3) | st.integers(), max_size=3),
    st.dictionaries(
        st.text(max_size=5) | st.sampled_from(["base", "factor", "failed", "secret"]),
        st.none() | st.floats(),
        max_size=2,
    ),
)
NAMES = st.sampled_from(sorted(options.PER_SOURCE | options.COMMON | {"OTHER"})) | st.integers()


@given(
    top=st.dictionaries(NAMES, ODD, max_size=3),
    options=st.dictionaries(NAMES, ODD, max_size=5),
    name=st.sampled_from(["stripe", "", "a b", 5, None]),
)
@settings(deadline=None, max_examples=600)
def test_no_value_of_the_setting_raises(top, options, name):
    raw = {**top, "SOURCES": {name: {"PROVIDER": "stripe", "SECRETS": [A], **options}}}
    read = conf.read(raw)
    assert read.problems or "stripe" in read.sources
    assert A not in repr(read)


# -- PROVIDER, locators ------------------------------------------------------------------------------------------------


def test_a_provider_by_name_and_by_path(sources):
    sources(acme={"PROVIDER": here("MILLISECONDS"), "SECRETS": [A]})
    assert conf.get_source("acme").provider is MILLISECONDS
    assert {
        name: conf.read({"SOURCES": {"x": {"PROVIDER": name, "SECRETS": [A]}}}).sources["x"].provider
        for name in PROVIDERS
    } == PROVIDERS


@pytest.mark.parametrize(
    "locator",
    [
        "a.0.b",
        Body("a", 0),
        Header("X-A"),
        Query("a"),
        Form("a"),
        Either("a", Header("X-A")),
        ("a", Header("X-A")),
        None,
    ],
)
@pytest.mark.parametrize("name", ["EVENT_ID", "EVENT_TYPE", "OCCURRED_AT", "OBJECT"])
def test_every_kind_of_locator(sources, name, locator):
    sources(stripe={name: locator})
    rules = conf.get_source("stripe").rules
    assert {
        "EVENT_ID": rules.event_id,
        "EVENT_TYPE": rules.event_type,
        "OCCURRED_AT": rules.occurred_at,
        "OBJECT": rules.object_key,
    }[name] == locator


def test_key_fields_take_the_place_of_the_provider_s_id(sources):
    sources(stripe={"KEY_FIELDS": ["a.b", ("c", Header("X-D"))]})
    rules = conf.get_source("stripe").rules
    assert rules.event_id is None
    assert rules.key_fields == (Body("a", "b"), Body("c"), Header("X-D"))


@pytest.mark.django_db
def test_an_event_id_of_the_project_s_choice(post, sources):
    sources(stripe={"EVENT_ID": ("data.ref", "n"), "EVENT_TYPE": "evento", "OBJECT": "data.ref"})
    assert post("stripe", {"evento": "pago", "n": 7, "data": {"ref": "r1"}}).status_code == 200
    receipt = WebhookReceipt.objects.get()
    assert (receipt.event_id, receipt.event_type, receipt.object_key, receipt.key_origin) == (
        "r1 7",
        "pago",
        "r1",
        "id",
    )
    assert post("stripe", {"evento": "pago", "n": 7}).status_code == 400


@pytest.mark.django_db
def test_key_fields_are_the_key(post, sources):
    sources(stripe={"KEY_FIELDS": ["order", "status"]})
    for status in ("paid", "shipped", "paid"):
        assert post("stripe", {"order": 1, "status": status, "id": "same", "type": "x"}).status_code == 200
    assert set(WebhookReceipt.objects.values_list("key_origin", "idempotency_key")) == {
        ("fields", "1 paid"),
        ("fields", "1 shipped"),
    }


@pytest.mark.parametrize(
    ("options", "keeps"),
    [
        ({}, False),
        ({"TENANT": True}, False),
        ({"EVENT_ID": Header("X-Id")}, True),
        ({"EVENT_ID": ("id", Header("X-Id"))}, True),
        ({"KEY_FIELDS": ["a", "b"]}, False),
        ({"KEY_FIELDS": ["a", Header("X-B")]}, True),
        ({"TENANT": "url"}, True),
        ({"TENANT": Header("X-Shop")}, True),
        ({"TENANT": "account"}, False),
    ],
)
def test_messages_are_remembered_only_where_id_or_tenant_is_not_signed(sources, options, keeps):
    sources(stripe={"SECRETS": [{"secret": A, "tenant": "a"}], **options})
    assert conf.get_source("stripe").keeps_seen is keeps


def test_messages_are_remembered_where_a_look_up_may_return_the_secret_of_another_source(sources):
    assert not conf.get_source("stripe").keeps_seen
    sources(second={"PROVIDER": "stripe", "SECRETS": lambda source, tenant: [Secret(A)]})
    assert conf.get_source("stripe").keeps_seen
    assert conf.get_source("second").keeps_seen


# -- TOLERANCE ---------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_c1_the_unit_of_a_stamp_is_a_setting(post, sources, caplog):
    sources(acme={"PROVIDER": here("MILLISECONDS"), "SECRETS": [A]})
    now = int(datetime.now(tz=UTC).timestamp())
    body = json.dumps(EVENT).encode()

    def answer(stamp):
        headers = {"X-Time": str(stamp), "X-Acme": hexmac(A, f"{stamp}.".encode() + body)}
        return post("acme", body, headers=headers).status_code

    assert answer(now * 1000) == 200
    assert answer(now) == 400
    assert "looks like seconds" in caplog.text


@pytest.mark.django_db
def test_c6_none_is_the_one_explicit_no_window(post, sources):
    sources(stripe={"TOLERANCE": None})
    assert post("stripe", EVENT, at=5).status_code == 200
    assert post("stripe", EVENT, headers={"Stripe-Signature": "v1=" + "00" * 32}).status_code == 401


def test_a_provider_without_window_may_be_given_one(sources):
    sources(github={"TOLERANCE": 60})
    assert conf.get_source("github").tolerance == 60


# -- SECRETS -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("secret", ["", "   "])
def test_j1_an_empty_secret_is_no_secret(post, sources, errors, secret):
    sources(stripe={"SECRETS": [secret]})
    assert post("stripe", EVENT, secret=secret).status_code == 503
    assert len(errors()) == 1


@pytest.mark.parametrize(
    "name",
    [
        "returns_none",
        "returns_text",
        "returns_texts",
        "returns_flawed",
        "returns_expired",
        "returns_number",
        "breaks",
        "breaks_halfway",
        "mismatches",
        "Body",
        "json.dumps",
    ],
)
def test_j2_a_look_up_that_gives_no_usable_secret(post, sources, errors, name):
    sources(stripe={"SECRETS": "json.dumps" if "." in name else here(name)})
    response = post("stripe", EVENT, secret=A)
    assert (response.status_code, response["Retry-After"]) == (503, "10")
    assert len(errors()) == 1 and A not in errors()[0]


@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")
def test_j2_an_async_look_up_gives_none(post, sources, errors):
    sources(stripe={"SECRETS": here("asynchronous")})
    assert post("stripe", EVENT, secret=A).status_code == 503
    assert "TypeError" in errors()[0]


def test_j2_a_look_up_that_breaks_is_named_by_type_and_place(post, sources, errors):
    sources(stripe={"SECRETS": here("breaks")})
    assert post("stripe", EVENT, secret=A).status_code == 503
    assert "RuntimeError at " in errors()[0] and "test_conf.py:" in errors()[0] and "vault" not in errors()[0]


@pytest.mark.django_db
def test_j3_a_rotation_names_the_key_by_its_id(post, sources):
    sources(stripe={"SECRETS": [{"id": "v2", "secret": A}, B]})
    assert post("stripe", {**EVENT, "id": "evt_1"}, secret=A).status_code == 200
    assert post("stripe", {**EVENT, "id": "evt_2"}, secret=B).status_code == 200
    assert post("stripe", {**EVENT, "id": "evt_3"}, secret="gone-0123456789abcdef").status_code == 401
    before = set(WebhookReceipt.objects.values_list("event_id", "key_id"))
    assert before == {("evt_1", "v2"), ("evt_2", Secret(B).key_id)}
    sources(stripe={"SECRETS": [B, A]})
    assert post("stripe", {**EVENT, "id": "evt_4"}, secret=B).status_code == 200
    assert WebhookReceipt.objects.get(event_id="evt_4").key_id == Secret(B).key_id


@pytest.mark.django_db
@pytest.mark.parametrize(("days", "status"), [(1, 200), (0, 200), (-1, 401)])
def test_a_secret_is_used_until_the_end_of_its_last_day(post, sources, days, status):
    last = (datetime.now(tz=UTC) + timedelta(days=days)).date().isoformat()
    sources(stripe={"SECRETS": [{"secret": A, "not_after": last}, B]})
    assert post("stripe", EVENT, secret=A).status_code == status


def test_when_the_last_secret_ends_nothing_is_accepted(post, sources, errors):
    sources(stripe={"SECRETS": [{"secret": A, "not_after": "2020-01-01"}]})
    assert post("stripe", EVENT, secret=A).status_code == 503
    assert len(errors()) == 1


@pytest.mark.django_db
def test_a_callable_itself_will_do(post, sources):
    sources(stripe={"SECRETS": lambda source, tenant: [Secret(A), "junk"]})
    assert post("stripe", EVENT, secret=A).status_code == 200


def test_live_secrets_of_a_list(sources):
    sources(stripe={"SECRETS": [A, {"secret": B, "not_after": "2026-11-29"}]})
    source = conf.get_source("stripe")
    assert [secret.secret for secret in source.live_secrets(None, NOW)] == [A]
    assert len(source.live_secrets(None, NOW - timedelta(days=1))) == 2


@pytest.mark.parametrize("text", ["", "   ", "short", A + "\n", "sk_test_0123456789abcdef", "changeme-changeme"])
def test_j1_a_flawed_secret_of_a_look_up_is_never_used(post, sources, errors, text):
    sources(stripe={"SECRETS": lambda source, tenant: [Secret(text)]})
    assert post("stripe", EVENT, secret=text).status_code == 503
    assert "no usable secret" in errors()[0]


def found(source, tenant):
    return [secret.tenant for secret in conf.get_source(source).live_secrets(tenant, NOW)]


def test_live_secrets_of_a_tenant_are_its_own(sources):
    sources(stripe={"TENANT": "url", "SECRETS": [{"secret": A, "tenant": "a"}, {"secret": B, "tenant": "b"}]})
    assert found("stripe", "a") == ["a"]
    with pytest.raises(UnknownTenant):
        found("stripe", "c")


def test_live_secrets_of_a_look_up_are_the_tenant_s_or_vouched_for(sources):
    def three(source, tenant):
        return [Secret(A, tenant="a"), Secret(B, tenant="b"), Secret("n0ne-0123456789abcdef")]

    common = {"PROVIDER": "stripe", "SECRETS": three}
    sources(one={**common, "TENANT": "url"}, two={**common, "TENANT": Header("X-Shop")})
    assert found("one", "a") == ["a", None]
    assert found("two", None) == ["a", "b"]


def test_a_text_is_redacted_of_every_listed_secret(sources):
    sources(stripe={"SECRETS": [A, B]})
    assert conf.get_source("stripe").redacted(f"a {A} b {B} {A}") == "a *** b *** ***"


# -- TENANT ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def shop(post, sources):
    def send(tenant, *, secret=A, path=None, extra=None, content=EVENT):
        body = json.dumps(content).encode()
        headers = stripe(body, secret=secret)
        return post("shops", body, path=path or f"/webhooks/shops/{tenant}/", headers=headers, extra=extra)

    def configure(**options):
        sources(shops={"PROVIDER": "stripe", **options})
        return send

    return configure


@pytest.mark.django_db
@pytest.mark.parametrize("secrets", ["list", "callable"])
def test_the_tenant_of_the_url_is_proven_by_its_own_secret(shop, secrets):
    listed = [{"secret": A, "tenant": "a"}, {"secret": B, "tenant": "b"}]
    send = shop(TENANT="url", SECRETS=listed if secrets == "list" else here("of_tenant"))
    assert send("b", secret=A).status_code == 401
    assert send("a", secret=A).status_code == send("b", secret=B).status_code == 200
    assert set(WebhookReceipt.objects.values_list("tenant", "event_id")) == {("a", "evt_1"), ("b", "evt_1")}


@pytest.mark.parametrize("secrets", [[{"secret": A, "tenant": "a"}], here("of_tenant")])
def test_an_unknown_tenant_is_a_quiet_401(shop, errors, secrets):
    send = shop(TENANT="url", SECRETS=secrets)
    assert send("c").status_code == send("A").status_code == 401
    assert errors() == []


@pytest.mark.parametrize(
    "tenant", ["%00", "a%00", "%20", "%0A", "x" * 256, "x" * 10_000, "%ED%A0%80", "%FF", "a/b", ""]
)
def test_a_tenant_that_can_be_none_is_never_looked_up_in_vain(shop, errors, tenant):
    send = shop(TENANT="url", SECRETS=here("of_tenant"))
    assert send(tenant).status_code in (401, 404)
    assert errors() == []


def test_a_tenant_path_of_a_source_without_tenants_and_the_reverse(shop):
    send = shop(SECRETS=[A])
    assert send("a").status_code == 404
    send = shop(TENANT="url", SECRETS=[{"secret": A, "tenant": "a"}])
    assert send(None, path="/webhooks/shops/").status_code == 404


@pytest.mark.django_db
def test_a_captured_message_at_another_tenant_s_door_is_held(shop):
    send = shop(TENANT="url", SECRETS=lambda source, tenant: [Secret(A)])
    assert send("a").json()["status"] == "ignored"
    assert send("a", content={**EVENT, "id": "evt_2"}).json()["status"] == "ignored"
    assert send("A").json()["status"] == "quarantined"


@pytest.mark.django_db
@pytest.mark.parametrize("secrets", ["list", "callable"])
def test_an_unsigned_tenant_must_be_the_secret_s(shop, secrets):
    listed = [{"secret": A, "tenant": "a"}, {"secret": B, "tenant": "b"}]
    send = shop(TENANT=Header("X-Shop"), SECRETS=listed if secrets == "list" else here("of_all_tenants"))
    path = "/webhooks/shops/"
    assert send(None, path=path, extra={"X-Shop": "b"}).status_code == 401
    assert send(None, path=path).status_code == 400
    assert send(None, path=path, secret="n0ne-0123456789abcdef", extra={"X-Shop": "a"}).status_code == 401
    assert send(None, path=path, extra={"X-Shop": "a"}).status_code == 200
    assert WebhookReceipt.objects.get().tenant == "a"


@pytest.mark.django_db
def test_a_signed_tenant_needs_no_secret_of_its_own_but_obeys_one(shop):
    send = shop(TENANT="shop.id", SECRETS=[A, {"secret": B, "tenant": "b"}])
    content = {**EVENT, "shop": {"id": "c"}}
    assert send(None, path="/webhooks/shops/", content=content).status_code == 200
    assert send(None, path="/webhooks/shops/", content=content, secret=B).status_code == 401
    assert send(None, path="/webhooks/shops/", content=EVENT).status_code == 400
    assert send(None, path="/webhooks/shops/", content={**EVENT, "shop": {"id": "b"}}, secret=B).status_code == 200


# -- NAMESPACE, FORMERLY -----------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_renamed_source_knows_its_former_events(post, sources):
    assert post("stripe", EVENT).json()["status"] == "ignored"
    renamed = {"PROVIDER": "stripe", "SECRETS": ["whsec_0123456789abcdef0123"], "FORMERLY": ["stripe"]}
    sources(stripe=None, payments=renamed)
    body = json.dumps(EVENT).encode()
    assert post("payments", body, headers=stripe(body)).json()["status"] == "duplicate"
    assert conf.source_of("stripe").name == "payments"
    assert sorted(conf.runnable_names()) == ["github", "partner", "payments", "stripe"]


@pytest.mark.django_db
def test_two_sources_of_one_namespace_share_their_receipts(post, sources):
    one = {"PROVIDER": "stripe", "SECRETS": [A], "NAMESPACE": "payments"}
    sources(stripe=one, second=one)
    body = json.dumps(EVENT).encode()
    assert post("stripe", body, secret=A).json()["status"] == "ignored"
    assert post("second", body, headers=stripe(body, secret=A)).json()["status"] == "duplicate"
    assert WebhookReceipt.objects.get().source == "stripe"


def test_a_source_without_secrets_still_runs_what_it_accepted(sources):
    sources(stripe={"SECRETS": []})
    assert conf.source_of("stripe") is not None
    assert conf.source_of("nobody") is None
    with pytest.raises(Misconfigured, match="E014"):
        conf.get_source("stripe")


# -- PUBLIC_URL, ROUTE, MAX_BODY, RESPONSES ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "base"),
    [
        ("https://hooks.example.org", "https://hooks.example.org"),
        ("https://hooks.example.org/", "https://hooks.example.org"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        (None, None),
    ],
)
def test_the_public_url(sources, given, base):
    sources(stripe={"PUBLIC_URL": given})
    assert conf.get_source("stripe").public_url == base


@pytest.mark.parametrize("path", ["/webhooks/stripe/", "/webhooks/stripe", "/webhooks/stripe/a/"])
def test_a_source_without_route_is_not_served_by_the_catch_all(post, sources, path):
    sources(stripe={"ROUTE": False})
    assert post("stripe", EVENT, path=path).status_code == 404


def test_the_limit_of_a_body(post, sources, caplog):
    sources(stripe={"MAX_BODY": 10})
    assert post("stripe", EVENT).status_code == 413
    assert "MAX_BODY, 10 bytes" in caplog.text


@pytest.mark.django_db
def test_responses_of_the_source_over_those_of_the_provider(post, sources):
    sources(stripe={"RESPONSES": {"ignored": 201, "rejected": 403}}, partner={"RESPONSES": {"quarantined": 299}})
    assert post("stripe", EVENT).status_code == 201
    assert post("stripe", EVENT, secret=A).status_code == 403
    assert post("partner", {"n": 1}, nonce="n-1").status_code == 200
    assert post("partner", {"n": 2}, nonce="n-1").status_code == 299
    assert conf.get_source("partner").responses["accepted"] == 200


def test_what_the_operators_screens_are_told(sources):
    sources(stripe={"CAPTURE_REJECTED": 20, "EXPECT_EVERY": 3600, "PERSONAL": ["customer.email", Body("lines", "*")]})
    source = conf.get_source("stripe")
    assert (source.capture_rejected, source.expect_every) == (20, 3600)
    assert source.personal == (Body("customer", "email"), Body("lines", "*"))
    other = conf.get_source("github")
    assert (other.capture_rejected, other.expect_every, other.personal) == (0, None, ())


def everything(request):
    return WebhookReceipt.objects.all()


async def is_awaited(request):
    return WebhookReceipt.objects.all()


def test_who_may_see_which_receipts_is_said_once_for_all_sources(settings, sources):
    settings.WEBHOOK_GUARD = {**settings.WEBHOOK_GUARD, "RECEIPTS_FOR": "tests.test_conf.everything"}
    assert conf.configuration().receipts_for is everything
    sources(stripe={"RECEIPTS_FOR": "tests.test_conf.everything"})
    (problem,) = [each for each in conf.configuration().problems if each.id == "E002"]
    assert "RECEIPTS_FOR may only stand in WEBHOOK_GUARD itself" in problem.message


@pytest.mark.django_db
@pytest.mark.parametrize("value", ["no.such.function", "django.VERSION", "tests.test_conf.is_awaited", 5, ""])
def test_where_that_cannot_be_read_nobody_sees_a_receipt(settings, value):
    settings.WEBHOOK_GUARD = {**settings.WEBHOOK_GUARD, "RECEIPTS_FOR": value}
    (problem,) = conf.configuration().problems
    assert problem.id == "E032" and problem.hint
    WebhookReceipt.objects.create(
        source="stripe", fingerprint="f", received_at=NOW, budget_from=NOW,
        last_delivered_at=NOW, body_size=0,
    )  # fmt: skip
    assert not conf.configuration().receipts_for(None).exists()


def test_what_cannot_be_read_as_personal_is_all_personal(sources):
    sources(stripe={"PERSONAL": "customer.email"})
    assert conf.configuration().sources["stripe"].personal == (Body(),)
