import pytest

pytestmark = pytest.mark.django_db


def test_a_delivery_is_received_with_and_without_the_last_slash(post):
    assert post("stripe", {"id": "evt_1", "type": "x"}).status_code == 200
    assert post("stripe", {"id": "evt_1", "type": "x"}, path="/webhooks/stripe").json()["status"] == "duplicate"
