import json

import pytest
from environ import Env

from django_webhook_guard import conf
from django_webhook_guard.environ import sources
from django_webhook_guard.exceptions import Misconfigured


def env(**variables):
    found = Env()
    found.ENVIRON = variables
    return found


def test_names_providers_and_secrets():
    found = sources(
        env(
            WEBHOOK_SOURCES="stripe, acme-shop",
            WEBHOOK_STRIPE_SECRETS="new-0123456789abcdef,old-0123456789abcdef",
            WEBHOOK_ACME_SHOP_PROVIDER="signed-nonce",
            WEBHOOK_ACME_SHOP_SECRETS="acme-0123456789abcdef",
        )
    )
    assert found == {
        "stripe": {"PROVIDER": "stripe", "SECRETS": ["new-0123456789abcdef", "old-0123456789abcdef"]},
        "acme-shop": {"PROVIDER": "signed-nonce", "SECRETS": ["acme-0123456789abcdef"]},
    }


def test_a_json_list_of_secrets():
    listed = [
        {"id": "v2", "secret": "new-0123456789abcdef"},
        {"secret": "a,b-0123456789abcdef", "not_after": "2027-01-15"},
    ]
    found = sources(env(WEBHOOK_SOURCES="stripe", WEBHOOK_STRIPE_SECRETS=" " + json.dumps(listed)))
    assert found["stripe"]["SECRETS"] == listed
    read = conf.read({"SOURCES": found})
    assert read.problems == ()
    assert read.sources["stripe"].secrets[0].key_id == "v2"


@pytest.mark.parametrize("variables", [{}, {"WEBHOOK_SOURCES": ""}, {"WEBHOOK_SOURCES": " , "}])
def test_no_sources(variables):
    assert sources(env(**variables)) == {}


@pytest.mark.parametrize(
    "variables", [{}, {"WEBHOOK_STRIPE_SECRETS": ""}, {"WEBHOOK_STRIPE_SECRETS": ","}, {"WEBHOOK_STRIPE_SECRETS": "[]"}]
)
def test_j2_without_secrets_the_source_is_there_and_accepts_nothing(variables):
    found = sources(env(WEBHOOK_SOURCES="stripe", **variables))
    assert found == {"stripe": {"PROVIDER": "stripe", "SECRETS": []}}
    assert [problem.id for problem in conf.read({"SOURCES": found}).problems] == ["E014"]


def test_j4_white_space_in_a_secret_is_not_taken_away():
    found = sources(env(WEBHOOK_SOURCES="stripe", WEBHOOK_STRIPE_SECRETS="s3cret-0123456789abcdef\n"))
    assert [problem.id for problem in conf.read({"SOURCES": found}).problems] == ["E013", "E014"]


@pytest.mark.parametrize("text", ['["s3cret-0123456789abcdef"', "[s3cret]", '["s3cret"] x'])
def test_a_list_that_can_not_be_read_is_not_shown(text):
    with pytest.raises(Misconfigured, match="WEBHOOK_STRIPE_SECRETS") as caught:
        sources(env(WEBHOOK_SOURCES="stripe", WEBHOOK_STRIPE_SECRETS=text))
    assert "s3cret" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("names", ["a-b,a_b", "a,A", "a,a"])
def test_two_names_of_one_variable(names):
    with pytest.raises(Misconfigured, match="both read WEBHOOK_A"):
        sources(env(WEBHOOK_SOURCES=names))


def test_the_process_environment_is_not_read(monkeypatch):
    monkeypatch.setenv("WEBHOOK_SOURCES", "stripe")
    assert sources(env()) == {}


def test_a_secret_may_begin_with_a_dollar_sign():
    found = sources(env(WEBHOOK_SOURCES="stripe", WEBHOOK_STRIPE_SECRETS="$3cret-0123456789abcdef"))
    assert found["stripe"]["SECRETS"] == ["$3cret-0123456789abcdef"]
