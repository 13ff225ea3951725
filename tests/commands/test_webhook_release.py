"""``webhook_release`` and ``webhook_discard``."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.sweeper import sweep

pytestmark = pytest.mark.django_db


@pytest.fixture
def held(post, sources, handler):
    """Three receipts that are held as late, and one that is processed."""
    sources(stripe={"LATE": "quarantine"})
    handler("stripe", "*", name="h")(lambda event: None)
    for number in range(3):
        post("stripe", {"id": f"evt_{number}", "type": "x"}, at=1_700_000_000)
    post("stripe", {"id": "evt_9", "type": "x"})
    return list(WebhookReceipt.objects.order_by("pk"))


def run(name, *arguments, **options):
    out = StringIO()
    call_command(f"webhook_{name}", *arguments, stdout=out, **options)
    return out.getvalue().splitlines()


def statuses():
    return list(WebhookReceipt.objects.order_by("pk").values_list("status", flat=True))


def test_a_receipt_is_named_by_number_or_reference(held):
    first, second, third, _ = held
    assert run("release", str(first.pk), second.reference) == [
        f"receipt {first.pk}: released", f"receipt {second.pk}: released", "webhook_sweep brings them.",
    ]  # fmt: skip
    assert run("discard", third.fingerprint, reason="a test", actor="anna") == [f"receipt {third.pk}: discarded"]
    assert statuses() == ["received", "received", "discarded", "processed"]
    assert sweep() == {"processed": 2}


def test_all_of_a_source_that_are_held_for_a_reason(held):
    assert run("release", source="stripe", held="late", limit=2)[2:] == [
        "webhook_sweep brings them.", "There are more: run it again, or give a higher --limit.",
    ]  # fmt: skip
    assert statuses() == ["received", "received", "quarantined", "processed"]


def test_a_dry_run_does_nothing(held):
    assert run("discard", source="stripe", held="late", dry_run=True) == [
        f"receipt {receipt.pk}: would be discarded" for receipt in held[:3]
    ]
    assert statuses() == ["quarantined"] * 3 + ["processed"]


def test_what_is_left_alone_is_said_and_ends_in_an_error(held, capsys):
    out = StringIO()
    with pytest.raises(CommandError, match="1 of 2 receipts were left alone"):
        call_command("webhook_release", str(held[0].pk), str(held[3].pk), stdout=out)
    assert out.getvalue().splitlines()[1] == f"receipt {held[3].pk}: left alone, it is processed"
    assert statuses()[0] == "received"


@pytest.mark.parametrize(
    ("arguments", "options", "told"),
    [
        ([], {}, "Give numbers or references"),
        ([], {"source": "stripe"}, "both --source and --held"),
        (["999999"], {}, "No receipt '999999'"),
        (["a" * 64], {}, "No receipt"),
        (["1; DROP TABLE"], {}, "No receipt"),
        (["9" * 30], {}, "No receipt"),
        (["1"], {"source": "stripe"}, "not both"),
        ([], {"source": "nobody", "held": "late"}, "No such receipt"),
    ],
)
def test_what_names_no_receipt_is_an_error_that_says_the_next_step(held, arguments, options, told):
    with pytest.raises(CommandError, match=told):
        run("release", *arguments, **options)
    assert statuses() == ["quarantined"] * 3 + ["processed"]


def test_a_source_that_this_process_has_not_is_left_alone(held):
    WebhookReceipt.objects.filter(pk=held[0].pk).update(source="gone")
    with pytest.raises(CommandError, match="1 of 1 receipts were left alone"):
        run("release", str(held[0].pk))
    assert run("discard", str(held[0].pk)) == [f"receipt {held[0].pk}: discarded"]


def test_a_reference_of_two_receipts_names_none(held):
    for number, receipt in enumerate(held[:2]):
        WebhookReceipt.objects.filter(pk=receipt.pk).update(fingerprint=f"{'ab' * 8}{number:048d}")
    with pytest.raises(CommandError, match="several receipts"):
        run("release", "ab" * 8)


def test_no_number_breaks_the_database(held):
    with pytest.raises(CommandError, match="whole number"):
        call_command("webhook_release", "--source=stripe", "--held=late", f"--limit={'9' * 25}")


def test_a_reason_is_one_line_of_the_log(held, caplog):
    caplog.set_level("INFO", "django_webhook_guard")
    run("discard", str(held[0].pk), reason="one\nforged: line", actor="a\x1b[31m")
    (line,) = [each.getMessage() for each in caplog.records if "discarded by" in each.getMessage()]
    assert "\n" not in line and "\x1b" not in line
