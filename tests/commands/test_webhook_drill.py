import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from django_webhook_guard.exceptions import UnknownTenant
from django_webhook_guard.handlers import DRILL
from django_webhook_guard.locators import Body, Form, Query
from django_webhook_guard.management.commands import webhook_drill
from django_webhook_guard.management.sending import Answer
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.providers import PROVIDERS
from django_webhook_guard.secrets import Secret
from django_webhook_guard.signals import webhook_received
from tests import senders

pytestmark = pytest.mark.django_db
GENERIC = {
    "PROVIDER": "generic-hmac",
    "SECRETS": ["acme-0123456789abcdef"],
    "PUBLIC_URL": "https://hooks.example.org",
    "OPTIONS": {
        "header": "X-Acme", "prefix": "v2=",
        "signed": "{method}|{url}|{path}|{query}|{timestamp}|{nonce}|{body_sha256}",
        "timestamp_header": "X-Time", "stamp": "rfc3339", "nonce_header": "X-Nonce", "nonce_pattern": "[0-9]{8,40}",
        "algorithm": "sha512", "encoding": "base64",
    },
}  # fmt: skip


def drill(*arguments, **options):
    out = StringIO()
    try:
        call_command("webhook_drill", *arguments, stdout=out, **options)
    except CommandError as error:
        return out.getvalue().splitlines(), str(error)
    return out.getvalue().splitlines(), ""


def vault_is_away(source, tenant):
    raise RuntimeError("pl4nted")


def tenants(source, tenant):
    if tenant == "nobody":
        raise UnknownTenant
    return [Secret(f"s3cret-of-{tenant}-0123456789", tenant=tenant)]


def declines(event):
    return False


def passed(*arguments, **options):
    lines, error = drill(*arguments, **options)
    assert error == ""
    assert [line.split()[-1] for line in lines[2:]] == ["ok"] * 3
    return lines


SOURCES = [
    {"PROVIDER": "stripe", "SECRETS": [senders.STRIPE_SECRET]},
    {"PROVIDER": "github", "SECRETS": [senders.GITHUB_SECRET]},
    {"PROVIDER": "signed-nonce", "SECRETS": [senders.PARTNER_SECRET]},
    *(
        {"PROVIDER": name, "SECRETS": [secret]}
        for name, (_, secret) in senders.OTHERS.items()
        if name != "gitlab-token"
    ),
    GENERIC,
    {**GENERIC, "EVENT_ID": ("id", "x.0.y"), "EVENT_TYPE": ("kind", "verb")},
    {**GENERIC, "KEY_FIELDS": ["shop", "n"], "EVENT_TYPE": "a.b.c"},
    {**GENERIC, "TENANT": "shop.name", "EVENT_TYPE": "kind"},
    {"PROVIDER": "shopify", "TENANT": True, "SECRETS": [{"secret": senders.SHOPIFY_SECRET, "tenant": "acme"}]},
    {"PROVIDER": "stripe", "SECRETS": [senders.STRIPE_SECRET], "PROCESSING": "deferred"},
    {"PROVIDER": "stripe", "SECRETS": [senders.STRIPE_SECRET], "RESPONSES": {"rejected": 403}},
    {"PROVIDER": "tests.test_batches.MANY", "SECRETS": ["acme-s3cret-0123456789"]},
]


@pytest.mark.parametrize("options", SOURCES, ids=lambda options: options["PROVIDER"])
def test_every_scheme_is_signed_so_that_its_own_verifier_takes_it(sources, sent, options):
    sources(stripe=None, github=None, partner=None, drilled=options)
    lines = passed("drilled", url="http://127.0.0.1:8000")
    assert lines[0] == "to http://127.0.0.1:8000/webhooks/drilled/"
    row = WebhookReceipt.objects.get()
    assert (row.event_type, row.status) == (DRILL, "ignored")


def test_every_shipped_provider_was_tried():
    tried = {options["PROVIDER"] for options in SOURCES}
    assert set(PROVIDERS) - {"gitlab-token"} <= tried


def test_the_table(sent):
    assert drill("stripe", url="https://hooks.example.org")[0] == [
        "to https://hooks.example.org/webhooks/stripe/",
        "sent                expected    answered                    ",
        "a signed event      2xx         200 ignored                 ok",
        "the same again      duplicate   200 duplicate               ok",
        "one tampered with   401         401 rejected                ok",
    ]


def test_neither_patterns_nor_receivers_see_it_and_who_names_it_does(sent, handler):
    seen = []
    handler("stripe", "*", name="all")(lambda event: seen.append("all"))
    handler("stripe", "webhook_guard.*", name="some")(lambda event: seen.append("some"))
    webhook_received.connect(receiver)
    try:
        passed("stripe")
        assert seen == []
        handler("stripe", DRILL, name="drill")(lambda event: seen.append("drill"))
        passed("stripe")
    finally:
        webhook_received.disconnect(receiver)
    assert seen == ["drill"]


def receiver(sender, event, **kwargs):
    raise AssertionError("a receiver was given a drill")


def test_a_deferred_copy_is_known_by_its_receipt(sources, sent, handler):
    sources(stripe={"PROCESSING": "deferred"})
    handler("stripe", DRILL, name="drill")(lambda event: None)
    lines = passed("stripe")
    assert "202 accepted" in lines[2] and "202 accepted" in lines[3]


def test_a_held_copy_is_known_by_its_receipt(sources, sent):
    sources(stripe={"SCHEMA": "tests.test_schemas.Order"})
    lines = passed("stripe")
    assert "202 quarantined" in lines[2] and "202 quarantined" in lines[3]


def test_a_tenant_of_the_url(sources, sent):
    sources(shops={"PROVIDER": "stripe", "TENANT": "url", "SECRETS": "tests.commands.test_webhook_drill.tenants"})
    assert passed("shops", tenant="north")[0].endswith("/webhooks/shops/north/")
    assert WebhookReceipt.objects.get().tenant == "north"
    assert "give --tenant" in drill("shops")[1]


def test_where_it_goes(sources, sent):
    sources(stripe={"PUBLIC_URL": "https://hooks.example.org"})
    assert drill("stripe")[0][0] == "to https://hooks.example.org/webhooks/stripe/"
    assert drill("stripe", url="http://127.0.0.1:1/webhooks/github/")[0][0] == "to http://127.0.0.1:1/webhooks/github/"
    sources(stripe={"ROUTE": False, "PUBLIC_URL": None})
    assert "whole address" in drill("stripe")[1]


def test_without_the_packages_urls_the_address_must_be_given(sent, settings):
    settings.ROOT_URLCONF = "django.contrib.auth.urls"
    assert "are not included" in drill("stripe")[1]


@pytest.mark.parametrize(
    ("server", "hint"),
    [
        ({"SECRETS": ["another-0123456789abcdef"]}, "the secrets that this process has"),
        ({"ACCEPT": "tests.commands.test_webhook_drill.declines"}, "ACCEPT declines the event"),
        ({"UNHANDLED": "drop"}, "its UNHANDLED drops it"),
        (None, "Is the address right"),
    ],
)
def test_what_is_wrong_ends_in_an_error_with_a_hint(sources, sent, monkeypatch, server, hint):
    there = webhook_drill.send

    def elsewhere(message, *, timeout):
        sources(stripe=server)
        return there(message, timeout=timeout)

    monkeypatch.setattr(webhook_drill, "send", elsewhere)
    lines, error = drill("stripe")
    assert hint in error
    assert any(line.endswith("WRONG") for line in lines)
    assert "of 3 answers are wrong" in error


def answer(status, said="x", receipt="r"):
    return Answer(status=status, reason="", body=json.dumps({"status": said, "receipt": receipt}).encode())


NOT_JSON = Answer(status=200, reason="OK", body=b"OK")
TAKEN, COPY, REFUSED = answer(200, "processed"), answer(200, "duplicate"), answer(401, "rejected")


@pytest.mark.parametrize(
    ("answers", "right", "hint"),
    [
        ((TAKEN, COPY, REFUSED), [True, True, True], ""),
        ((answer(301), answer(301), answer(301)), [False, False, False], "redirects"),
        ((TAKEN, answer(500), REFUSED), [True, False, True], "was not taken for one"),
        ((TAKEN, COPY, COPY), [True, True, False], "took what nobody signed"),
        ((TAKEN, TAKEN, REFUSED), [True, False, True], "server's log"),
        ((NOT_JSON, NOT_JSON, REFUSED), [True, False, True], "server's log"),
        ((answer(202, "accepted"), answer(202, "accepted"), REFUSED), [True, True, True], ""),
        ((answer(202, "accepted"), answer(202, "accepted", "s"), REFUSED), [True, False, True], "server's log"),
        ((answer(202, "accepted", ""), answer(202, "accepted", ""), REFUSED), [True, False, True], "server's log"),
        ((TAKEN, answer(200, "processed"), answer(400)), [True, False, False], "2 of 3"),
    ],
)
def test_what_is_right_and_what_is_not(monkeypatch, answers, right, hint):
    given = iter(answers)
    monkeypatch.setattr(webhook_drill, "send", lambda message, *, timeout: next(given))
    lines, error = drill("stripe")
    assert [line.endswith("ok") for line in lines[2:]] == right
    assert hint in error and bool(error) is not all(right)


def test_a_part_of_the_key_in_the_query(sources, sent):
    sources(drilled={**GENERIC, "EVENT_ID": Query("id")})
    passed("drilled")
    assert "/drilled/?id=drill_" in sent[0].url
    passed("drilled", url="http://127.0.0.1:1/webhooks/drilled/?a=1")
    assert "/?a=1&id=drill_" in sent[-1].url


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["shops", "--tenant=nobody"], "has no tenant 'nobody'"),
        (["named", "--tenant=other"], "no secret for tenant 'other'"),
        (["broken"], "E004"),
        (["away"], "failed with RuntimeError"),
    ],
)
def test_without_a_secret_nothing_is_sent(sources, sent, arguments, told):
    sources(
        shops={"PROVIDER": "stripe", "TENANT": "url", "SECRETS": "tests.commands.test_webhook_drill.tenants"},
        named={
            "PROVIDER": "github",
            "TENANT": True,
            "SECRETS": [{"secret": "acme-0123456789abcdef", "tenant": "acme"}],
        },
        broken={"PROVIDER": "nobody", "SECRETS": ["x"]},
        away={"PROVIDER": "stripe", "SECRETS": "tests.commands.test_webhook_drill.vault_is_away"},
    )
    assert told in drill(*arguments)[1]
    assert sent == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({**GENERIC, "EVENT_ID": Form("id")}, "cannot make up"),
        ({**GENERIC, "EVENT_ID": Body()}, "cannot make up"),
        ({**GENERIC, "EVENT_TYPE": ("kind", Body("n", optional=True)), "EVENT_ID": "n"}, "Send an exported one"),
        ({"PROVIDER": "gitlab-token", "SECRETS": [senders.GITLAB_TOKEN]}, "proven by a TokenVerifier"),
        ({**GENERIC, "EVENT_TYPE": None}, "says nowhere where an event's type is"),
        ({**GENERIC, "EVENT_TYPE": ("a", "b", "c")}, "has 3 parts"),
        ({**GENERIC, "EVENT_TYPE": "a", "EVENT_ID": "a.b"}, "inside of another value"),
        ({**GENERIC, "EVENT_TYPE": "a.b", "EVENT_ID": "a"}, "No event can be made up"),
        ({**GENERIC, "OPTIONS": {**GENERIC["OPTIONS"], "nonce_pattern": "acme-[0-9]+"}}, "cannot be signed"),
    ],
)
def test_what_cannot_be_made_up_is_said(sources, sent, options, told):
    sources(drilled=options)
    _, error = drill("drilled")
    assert told in error
    assert sent == []


def test_an_unknown_source_is_refused_with_those_that_are_known(sent):
    assert "known: stripe, github, partner" in drill("strip")[1]
