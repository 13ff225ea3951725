import hashlib
from dataclasses import FrozenInstanceError

import pytest

from django_webhook_guard.delivery import Delivery

DELIVERY = Delivery(method="POST", url="/hooks/a/?b=1&c=2", headers={"x-id": "1", "cookie": "c00kie"}, body=b"b0dy")


@pytest.mark.parametrize("name", ["x-id", "X-Id", "X-ID"])
def test_a_header_is_found_in_any_case(name):
    assert DELIVERY.header(name) == "1"
    assert DELIVERY.header("x-other") is None


def test_body_and_headers_are_not_in_its_repr():
    assert "b0dy" not in repr(DELIVERY)
    assert "c00kie" not in repr(DELIVERY)


def test_it_is_frozen():
    with pytest.raises(FrozenInstanceError):
        DELIVERY.body = b"other"


def test_the_digest_of_the_body():
    assert DELIVERY.body_digest == hashlib.sha256(b"b0dy").digest()


@pytest.mark.parametrize("host", ["", "https://hooks.example.org", "http://[::1]:8000"])
def test_path_and_query(host):
    delivery = Delivery(method="POST", url=host + "/hooks/a/?b=1&c=2", headers={})
    assert (delivery.path, delivery.query) == ("/hooks/a/", "b=1&c=2")
