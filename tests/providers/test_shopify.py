import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_webhook_guard.conf import configuration
from django_webhook_guard.delivery import Delivery
from django_webhook_guard.exceptions import VerificationError
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.providers.shopify import SHOPIFY, shopify_header
from django_webhook_guard.secrets import Secret
from tests.senders import SHOPIFY_SECRET, shopify

ORDER = {"id": 1, "admin_graphql_api_id": "gid://shopify/Order/1"}
SHOP = "acme.myshopify.com"
FAMILIES = ["X-Shopify-", "Shopify-"]


@pytest.fixture(autouse=True)
def _configured(configure):
    configure("shopify")


def proves(body, headers, secret=SHOPIFY_SECRET):
    named = {name.lower(): value for name, value in headers.items()}
    try:
        return SHOPIFY.verifier.verify(Delivery(method="POST", url="/", headers=named, body=body), [Secret(secret)])
    except VerificationError:
        return None


@pytest.mark.parametrize("prefix", FAMILIES)
def test_the_vectors_that_the_package_accepted(prefix):
    escaped, raw = b'{"id":1,"title":"Caf\\u00e9"}', '{"id":1,"title":"Café"}'.encode()
    for body, signature, other in (
        (escaped, "79Cv/YkxunFkuUIfGPCt53VxJDDl1SkHY0Sl9qONd1E=", raw),
        (raw, "1kCkB4zIwIQzcrZQJBl2CrT8/I3X0dVcDLtyHnzz0Ec=", escaped),
    ):
        assert proves(body, {f"{prefix}Hmac-Sha256": signature}, "shpss_test").content == body
        assert not proves(other, {f"{prefix}Hmac-Sha256": signature}, "shpss_test")
        assert not proves(body, {f"{prefix}Hmac-Sha256": f"{signature},{signature}"}, "shpss_test")


@given(body=st.binary(max_size=100), prefix=st.sampled_from(FAMILIES), flip=st.integers(1, 255))
@settings(deadline=None, max_examples=150)
def test_we_accept_what_an_independent_sender_signs(body, prefix, flip):
    headers = shopify(body, prefix=prefix)
    assert proves(body, headers)
    assert not proves(bytes([flip]) + body, headers)
    assert not proves(body, headers, "another-0123456789abcdef")


@pytest.mark.django_db
@pytest.mark.parametrize("prefix", FAMILIES)
def test_what_a_receipt_keeps_of_an_event(post, prefix):
    assert post("shopify", ORDER, event_id="e1", prefix=prefix).status_code == 200
    receipt = WebhookReceipt.objects.get()
    assert (receipt.event_id, receipt.event_type, receipt.key_origin) == ("e1", "orders/create", "paired")
    assert (receipt.object_key, receipt.signed_at) == ("gid://shopify/Order/1", None)
    assert receipt.occurred_at.isoformat() == "2026-11-30T12:00:00.123456+00:00"
    assert receipt.headers[f"{prefix}shop-domain".lower()] == SHOP
    assert not any("hmac" in name for name in receipt.headers)


@pytest.mark.django_db
def test_l5_one_event_may_touch_two_topics_and_a_retry_touches_none(post):
    first = {"event_id": "e1", "webhook_id": "w1"}
    assert post("shopify", ORDER, topic="orders/create", **first).json()["status"] == "ignored"
    assert post("shopify", ORDER, topic="orders/updated", event_id="e1", webhook_id="w2").json()["status"] == "ignored"
    assert post("shopify", ORDER, topic="orders/create", **first).json()["status"] == "duplicate"
    assert set(WebhookReceipt.objects.values_list("event_id", "event_type")) == {
        ("e1", "orders/create"),
        ("e1", "orders/updated"),
    }


@pytest.mark.django_db
def test_l5_the_id_header_is_a_setting(post, configure):
    configure("shopify", EVENT_ID=shopify_header("Webhook-Id"))
    for number, prefix in enumerate(FAMILIES):
        body = {**ORDER, "n": number}
        assert post("shopify", body, event_id="e1", webhook_id="w1", prefix=prefix).json()["status"] == "ignored"
        again = post("shopify", body, event_id="e2", webhook_id="w1", prefix=prefix)
        assert again.json()["status"] == "duplicate"
    assert set(WebhookReceipt.objects.values_list("event_id", flat=True)) == {"w1"}


@pytest.mark.django_db
def test_a_captured_body_under_another_id_is_held(post):
    assert post("shopify", ORDER, event_id="e1").json()["status"] == "ignored"
    for id in ("e2", "E1"):
        assert post("shopify", ORDER, event_id=id).json()["status"] == "quarantined"
    assert WebhookReceipt.objects.filter(reason="replayed").count() == 1


@pytest.mark.django_db
def test_b6_headers_of_both_families_are_two_truths(post):
    body = json.dumps(ORDER).encode()
    signed = shopify(body, event_id="e1")
    assert post("shopify", body, headers={**shopify(body, prefix="Shopify-"), **signed}).status_code == 401
    # also where they are beside the proof
    assert post("shopify", body, headers={**signed, "Shopify-Topic": "refunds/create"}).status_code == 401
    assert WebhookReceipt.objects.count() == 0
    assert post("shopify", body, headers=signed).status_code == 200


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("missing", "status"), [("X-Shopify-Event-Id", 400), ("X-Shopify-Hmac-Sha256", 401), ("X-Shopify-Topic", 200)]
)
def test_a_header_that_is_missing(post, missing, status):
    body = json.dumps(ORDER).encode()
    signed = shopify(body)
    del signed[missing]
    assert post("shopify", body, headers=signed).status_code == status
    assert not WebhookReceipt.objects.exclude(event_type="").exists()


@pytest.mark.django_db
def test_an_empty_body_is_malformed_though_signed(post):
    assert post("shopify", b"").status_code == 400
    assert WebhookReceipt.objects.count() == 0


@pytest.mark.django_db
def test_an_old_secret_still_proves_while_it_is_rotated(post, configure):
    configure("shopify", SECRETS=["shpss_new-0123456789abcdef", SHOPIFY_SECRET])
    assert post("shopify", ORDER).status_code == 200


# -- the shop as tenant ------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_the_shop_counts_only_if_the_secret_is_that_shop_s_alone(post, configure):
    configure("shopify", TENANT=True, SECRETS=[{"secret": SHOPIFY_SECRET, "tenant": SHOP}])
    assert post("shopify", ORDER, event_id="e1", shop=SHOP).status_code == 200
    assert WebhookReceipt.objects.get().tenant == SHOP
    for shop in ("other.myshopify.com", SHOP.upper(), f"{SHOP}.", f"{SHOP},{SHOP}"):
        assert post("shopify", {**ORDER, "n": shop}, shop=shop).status_code == 401
    body = json.dumps(ORDER).encode()
    without = {name: value for name, value in shopify(body).items() if name != "X-Shopify-Shop-Domain"}
    assert post("shopify", body, headers=without).status_code == 400
    assert WebhookReceipt.objects.count() == 1


def test_a_secret_of_all_shops_can_not_vouch_for_one(configure):
    configure("shopify", TENANT=True)
    assert {problem.id for problem in configuration().problems} >= {"E013", "E014"}
