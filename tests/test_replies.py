"""A handler that answers the sender itself."""

from datetime import timedelta

import pytest

from django_webhook_guard.events import Reply
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.sweeper import sweep

EVENT = {"id": "evt_1", "type": "x"}
DATABASE = pytest.mark.django_db(databases=["default", "other"])


def heard(response):
    return response.status_code, response.content, response["Content-Type"]


@DATABASE
@pytest.mark.parametrize("options", [{}, {"atomic": False}])
def test_a_reply_is_sent_kept_and_sent_again(post, handler, options):
    handler("stripe", "*", name="h", **options)(lambda event: Reply("sunny é", 201, "text/plain; charset=utf-8"))
    answer = (201, "sunny é".encode(), "text/plain; charset=utf-8")
    assert [heard(post("stripe", EVENT)) for _ in range(3)] == [answer] * 3
    kept = WebhookReceipt.objects.get()
    assert (kept.status, kept.deliveries) == ("processed", 1)


@DATABASE
def test_bytes_come_back_as_they_were(post, handler):
    handler("stripe", "*", name="h")(lambda event: Reply(bytes(range(256)), content_type="application/octet-stream"))
    assert post("stripe", EVENT).content == post("stripe", EVENT).content == bytes(range(256))


@DATABASE
def test_the_first_reply_counts_and_only_when_all_is_done(post, handler):
    def fails_once(event):
        if event.attempt == 1:
            raise RuntimeError
        return Reply("second")

    handler("stripe", "*", name="a")(lambda event: Reply("first"))
    handler("stripe", "*", name="b")(fails_once)
    assert post("stripe", EVENT).json()["status"] == "failed"
    assert [post("stripe", EVENT).content for _ in range(2)] == [b"first"] * 2


@DATABASE
def test_a_reply_of_a_handler_on_another_database_counts_too(post, handler):
    handler("stripe", "*", name="a", using="other")(lambda event: Reply("elsewhere"))
    assert [post("stripe", EVENT).content for _ in range(2)] == [b"elsewhere"] * 2


@DATABASE
def test_a_reply_that_the_sweeper_heard_is_told_to_the_sender_when_it_comes_back(post, handler):
    def fails_once(event):
        if event.attempt == 1:
            raise RuntimeError
        return Reply("late, but")

    handler("stripe", "*", name="h")(fails_once)
    post("stripe", EVENT)
    WebhookReceipt.objects.update(due_at=WebhookReceipt.objects.get().received_at)
    assert sweep() == {"processed": 1}
    assert post("stripe", EVENT).content == b"late, but"


@pytest.mark.parametrize(
    "wrong",
    [
        {"body": "x" * 4097},
        {"status": 500},
        {"status": 302},
        {"status": 199},
        {"content_type": "text/plain\r\nX-Forged: 1"},
        {"content_type": "téxt"},
        {"content_type": ""},
        {"content_type": "x" * 256},
        {"content_type": None},
        {"body": {"ok": True}},
        {"body": None},
        {"body": "\ud800"},
        {"status": 200.5},
        {"status": True},
    ],
)
def test_a_reply_that_cannot_be_sent_is_an_error_of_the_handler(wrong):
    with pytest.raises(ValueError, match="Reply: "):
        Reply(**wrong)


def test_what_is_kept_is_read_back():
    reply = Reply("a", 202, "text/plain")
    assert Reply.of(reply.kept()) == Reply(b"a", 202, "text/plain")
    assert Reply.of("") is None


@DATABASE
def test_a_reply_of_another_database_is_kept_while_another_handler_fails(post, handler):
    handler("stripe", "*", name="a", using="other")(lambda event: Reply("elsewhere"))
    handler("stripe", "*", name="b")(lambda event: 1 / (event.attempt - 1))
    assert post("stripe", EVENT).status_code == 500
    assert [post("stripe", EVENT).content for _ in range(2)] == [b"elsewhere"] * 2


@DATABASE
def test_a_run_that_lost_its_lease_tells_what_the_other_one_replied(post, handler):
    def slow(event):
        if event.attempt == 1:
            WebhookReceipt.objects.update(lease_until=event.received_at - timedelta(hours=1))
            assert post("stripe", EVENT).content == b"hello"
        return Reply("hello")

    handler("stripe", "*", name="h", atomic=False)(slow)
    assert post("stripe", EVENT).content == b"hello"
