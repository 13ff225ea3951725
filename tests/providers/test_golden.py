"""The event keys of the shipped providers are a stored format: a change here makes stored events new again."""

import hashlib
import json
from urllib.parse import urlencode

import pytest

from django_webhook_guard.models import WebhookReceipt, WebhookSeen
from tests.senders import GITLAB_TOKEN, SHOPIFY_SECRET
from tests.test_identity import sealed, seen_key

DATA = {"type": "t"}
BODY = json.dumps(DATA).encode()
DIGEST = hashlib.sha256(BODY).digest()
COMMAND = urlencode({"command": "/deploy", "trigger_id": "13.47.80"}).encode()

GOLDEN = [
    (
        "slack",
        {},
        {"type": "event_callback", "event_id": "Ev1"},
        ("id", "Ev1"),
        "6a0131e4f886938cefd7d80f54a4d78a86875372dab48973955b411c1b9fb374",
    ),
    ("slack", {}, COMMAND, ("id", "13.47.80"), "b5bb62ef683f5d2e11495cfe1cd48530894e5c93a52a44aba95653668702ea32"),
    (
        "slack",
        {"at": 1_700_000_000},
        DATA,
        ("content", hashlib.sha256(b"v0:1700000000:" + BODY).digest()),
        "f62208f8436074e673407bee6861497ab23cebfc08caacd45751659f5b2cbe8b",
    ),
    (
        "shopify",
        {"event_id": "e1"},
        DATA,
        ("paired", "e1", DIGEST, "orders/create"),
        "f0a3dfc1d9693cf88a0c5e42efa0d758e6336419c7e2642eabe8f67ec518fb55",
    ),
    (
        "standard-webhooks",
        {"id": "msg_1"},
        DATA,
        ("id", "msg_1"),
        "5f27383fb903bbddbb91c68ee895a28dea47d060676521664a7168b3cc0053bc",
    ),
    (
        "standard-webhooks",
        {"id": "msg_1", "prefix": "svix-"},
        DATA,
        ("id", "msg_1"),
        "5f27383fb903bbddbb91c68ee895a28dea47d060676521664a7168b3cc0053bc",
    ),
    ("gitlab", {"id": "i1"}, DATA, ("id", "i1"), "93b53923430bcc2e071fb95a17ed0e35cc22205ff3abb7917b060b9db9dc4920"),
    (
        "gitlab-token",
        {"key": "k1"},
        DATA,
        ("paired", "k1", DIGEST),
        "1e643dc826bfc13c6adf1486ee283322ffbdb88df69099adb8cb0a2b75a59967",
    ),
    (
        "gitlab-token",
        {"uuid": "u1"},
        DATA,
        ("paired", "u1", DIGEST),
        "8a080dfd34d7f6f5984261508319c2f81eb5c3dbc99d4d933cf039e3278f7f54",
    ),
]


@pytest.mark.django_db
@pytest.mark.parametrize(("name", "signing", "content", "key", "pinned"), GOLDEN)
def test_golden_fingerprints_of_providers(post, configure, name, signing, content, key, pinned):
    configure(name, TOLERANCE=None)
    assert post(name, content, **signing).status_code == 200
    assert WebhookReceipt.objects.get().fingerprint == sealed("v1", name, None, *key) == pinned


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "signing", "seen", "pinned"),
    [
        (
            "shopify",
            {"event_id": "e1"},
            (seen_key(SHOPIFY_SECRET), BODY, 0, "orders/create"),
            "04f40d0d177d23898f550aaf9f0063e94c81186c4c8672fd9450c50bd1a06a93",
        ),
        (
            "gitlab-token",
            {"key": "k1"},
            (seen_key(GITLAB_TOKEN), BODY, 0, None),
            "21e2adf5b15da50e3db36bba29219866ba8a829d5b16345c5e6fca27590c653b",
        ),
    ],
)
def test_golden_seen_digests_of_providers(post, configure, name, signing, seen, pinned):
    configure(name)
    assert post(name, DATA, **signing).status_code == 200
    assert WebhookSeen.objects.get().digest == sealed(*seen) == pinned
