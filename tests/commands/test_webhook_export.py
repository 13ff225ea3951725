import base64
import json
import stat
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError

from django_webhook_guard.management import exporting, filtering
from django_webhook_guard.masking import MASK
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.providers import PROVIDERS
from tests import senders

pytestmark = pytest.mark.django_db
EVENT = {
    "id": "evt_1",
    "type": "x",
    "customer": {"email": "a@example.org", "name": "Anna"},
    "data": {"object": {"id": "o1"}},
}


def export(*arguments, **options):
    out = StringIO()
    call_command("webhook_export", *arguments, stdout=out, **options)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def receipt():
    return WebhookReceipt.objects.get()


def test_all_that_is_kept_is_written(post, handler):
    handler("stripe", "*", name="first")(lambda event: "did one")
    handler("stripe", "*", name="second", atomic=False)(lambda event: event.once("call", lambda key: 7) / 0)
    post("stripe", EVENT)
    (line,) = export("--source=stripe")
    row = receipt()
    assert line["receipt"] == row.pk and line["reference"] == row.reference
    kept = {field.name for field in WebhookReceipt._meta.concrete_fields} - {"id"}
    assert kept <= set(line)
    assert (line["event_id"], line["status"], line["handlers"]) == ("evt_1", "failed", ["first", "second"])
    assert base64.b64decode(line["body"]) == senders.dumps(EVENT)
    assert line["data"] == EVENT
    assert [(mark["handler"], mark["mark"], mark["result"]) for mark in line["marks"]] == [("first", "done", "did one")]
    assert [(effect["name"], effect["state"], effect["result"]) for effect in line["effects"]] == [
        ("call", "done", "7")
    ]
    assert [(each["number"], each["error_class"]) for each in line["attempt_rows"]] == [
        (1, "builtins.ZeroDivisionError")
    ]


def test_what_hangs_on_another_receipt_stays_there(post, handler):
    handler("stripe", "*", name="h")(lambda event: "worked" if event.event_id == "evt_2" else 1 / 0)
    for number in (1, 2):
        post("stripe", {**EVENT, "id": f"evt_{number}"})
    first, second = export("--source=stripe")
    assert (len(first["attempt_rows"]), len(second["attempt_rows"])) == (1, 0)
    assert (first["result"], second["result"]) == ("", "worked")


@pytest.mark.parametrize(("arguments", "expected"), [([], ["1", "2", "3"]), (["--order=newest"], ["3", "2", "1"])])
def test_batch_by_batch(post, monkeypatch, arguments, expected):
    monkeypatch.setattr(filtering.batches, "__kwdefaults__", {"newest": False, "size": 2})
    for number in (1, 2, 3):
        post("stripe", {**EVENT, "id": f"evt_{number}"})
    assert [line["event_id"][4:] for line in export("--source=stripe", *arguments)] == expected


def test_large_bodies_are_read_one_by_one(post, django_assert_max_num_queries):
    large = {**EVENT, "id": "evt_2", "text": "x" * exporting.SMALL}
    post("stripe", EVENT)
    post("stripe", large)
    with django_assert_max_num_queries(6):
        lines = export("--source=stripe")
    assert [line["data"] for line in lines] == [EVENT, large]


def test_without_payload(post):
    post("stripe", EVENT)
    (line,) = export("--source=stripe", "--no-payload")
    assert not {"body", "data"} & set(line)
    assert "example.org" not in json.dumps(line)


def test_an_expired_body_is_null(post):
    post("stripe", EVENT)
    WebhookReceipt.objects.update(body=None)
    (line,) = export("--source=stripe")
    assert (line["body"], line["data"]) == (None, None)


def test_a_body_that_cannot_be_read_is_written_all_the_same(sources, post):
    post("stripe", EVENT)
    WebhookReceipt.objects.update(body=b"\xff{", body_size=2)
    (line,) = export("--source=stripe")
    assert (base64.b64decode(line["body"]), line["data"]) == (b"\xff{", None)


def test_an_item_of_a_batch_has_its_part(sources, post):
    sources(many={"PROVIDER": "tests.test_batches.MANY", "SECRETS": ["acme-s3cret-0123456789"]})
    items = [{"id": "a"}, {"id": "b"}]
    body = json.dumps(items).encode()
    signed = senders.stripe(body, secret="acme-s3cret-0123456789")["Stripe-Signature"]
    post("many", body, headers={"X-Acme": signed})
    lines = export("--source=many")
    assert sorted((line["item"], str(line["data"])) for line in lines) == [(0, "{'id': 'a'}"), (1, "{'id': 'b'}")]
    assert {base64.b64decode(line["body"]) for line in lines} == {body}


def test_personal_values_are_masked_and_the_raw_body_is_left_out(sources, post):
    sources(stripe={"PERSONAL": ["customer.email", "data.object"], "OBJECT": "data.object.id"})
    post("stripe", EVENT)
    (line,) = export("--source=stripe")
    assert line["data"]["customer"] == {"email": MASK, "name": "Anna"}
    assert (line["body"], line["object_key"], line["event_id"]) == (None, MASK, "evt_1")
    assert "a@example.org" not in json.dumps(line) and "o1" not in json.dumps(line)
    (line,) = export("--source=stripe", "--with-personal")
    assert (line["data"], line["object_key"]) == (EVENT, "o1")
    assert base64.b64decode(line["body"]) == senders.dumps(EVENT)


def test_an_id_that_is_personal_is_masked_wherever_it_stands(sources, post):
    sources(stripe={"PERSONAL": ["id"]})
    post("stripe", EVENT)
    (line,) = export("--source=stripe")
    assert "evt_1" not in json.dumps(line)


def test_fields_that_are_the_key_and_are_personal_are_masked(sources, post):
    sources(stripe={"PERSONAL": ["customer.*"], "KEY_FIELDS": ["type", "customer.email"]})
    post("stripe", EVENT)
    (line,) = export("--source=stripe")
    assert (line["idempotency_key"], line["event_type"]) == (MASK, "x")
    assert "example.org" not in json.dumps(line)


def test_of_a_source_that_is_not_configured_nobody_knows_what_is_personal(post):
    post("stripe", EVENT)
    WebhookReceipt.objects.update(source="gone")
    (line,) = export("--source=gone")
    assert (line["body"], line["data"]) == (None, None)
    (line,) = export("--source=gone", "--with-personal")
    assert base64.b64decode(line["body"]) == senders.dumps(EVENT)


def test_no_secret_is_written(sources, post, handler):
    secret = 's3cret-"0123456789abcdef'
    sources(stripe={"SECRETS": [secret]})
    handler("stripe", "*", name="h")(lambda event: 1 / 0)
    content = {**EVENT, "echo": f"it is {secret}", secret: 1}
    post("stripe", content, secret=secret)
    WebhookReceipt.objects.update(result=secret)
    (line,) = export("--source=stripe", "--with-personal")
    assert secret not in str(line)
    assert line["body"] is None and line["data"]["echo"] == "it is ***"


def test_no_signature_is_kept_that_could_be_replayed(post):
    post("stripe", EVENT)
    post("partner", EVENT)
    post("github", EVENT)
    for line in export("--since=1d"):
        signature = PROVIDERS[{"partner": "signed-nonce"}.get(line["source"], line["source"])].verifier.header
        assert signature.lower() not in line["headers"]


def test_the_lines_are_plain_ascii(post):
    post("stripe", {**EVENT, "text": "\x1b[2J\x7f\x9b\u202eé", "id": "evt\x7f\x1b"})
    out = StringIO()
    call_command("webhook_export", "--source=stripe", stdout=out)
    assert out.getvalue().isascii() and out.getvalue().strip().isprintable()
    assert json.loads(out.getvalue())["data"]["text"] == "\x1b[2J\x7f\x9b\u202eé"


def test_a_file_is_new_and_only_its_owners(post, tmp_path):
    post("stripe", EVENT)
    file = tmp_path / "lines.jsonl"
    out = StringIO()
    call_command("webhook_export", "--source=stripe", f"--output={file}", stdout=out)
    assert out.getvalue() == f"1 receipts written to {file}\n"
    assert json.loads(file.read_text())["event_id"] == "evt_1"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with pytest.raises(CommandError, match="is there already"):
        export("--source=stripe", f"--output={file}")
    with pytest.raises(CommandError, match="No such file"):
        export("--source=stripe", f"--output={tmp_path / 'no' / 'file'}")


def test_nothing_chosen_is_an_error(post):
    with pytest.raises(CommandError, match="No such receipt"):
        export("--source=stripe")
    with pytest.raises(CommandError, match="or a filter"):
        export()


def test_a_database_that_fails_says_how_much_is_written(post, monkeypatch):
    def fails(receipts, choice):
        yield "{}"
        raise OperationalError

    post("stripe", EVENT)
    monkeypatch.setattr("django_webhook_guard.management.commands.webhook_export.exported", fails)
    with pytest.raises(CommandError, match=r"OperationalError.* after 1 lines"):
        export("--source=stripe")
