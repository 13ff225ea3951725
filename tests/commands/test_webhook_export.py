"""``webhook_export``."""

import base64
import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from tests.test_admin import make

pytestmark = pytest.mark.django_db(databases=["default", "other"])
BODY = b'{"id": "evt_1", "customer": {"email": "ada@example.org"}, "big": 12345678901234567890}'


def export(*arguments, **options):
    out, err = StringIO(), StringIO()
    call_command("webhook_export", *map(str, arguments), stdout=out, stderr=err, **options)
    assert err.getvalue() == f"{len(out.getvalue().splitlines())} receipts\n"
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_line_holds_all_that_is_known():
    receipt = make(body=BODY, event_id="evt_1")
    (line,) = export("--source=stripe")
    assert (line["format"], line["id"], line["event_id"], line["status"]) == (1, receipt.pk, "evt_1", "dead")
    assert base64.b64decode(line["body"]) == BODY
    assert line["data"] == json.loads(BODY)
    assert line["headers"] == receipt.headers
    assert line["received_at"].endswith("Z")


def test_personal_values_are_masked_unless_asked_for(sources):
    sources(stripe={"PERSONAL": ["customer.email"]})
    make(body=BODY)
    (line,) = export("--source=stripe")
    assert line["data"]["customer"] == {"email": "•••"}
    assert "body" not in line
    assert "ada@" not in json.dumps(line)
    (line,) = export("--source=stripe", "--with-personal")
    assert base64.b64decode(line["body"]) == BODY


def test_a_source_that_is_not_here_has_no_content_that_could_be_masked():
    make(source="gone", body=BODY)
    (line,) = export("--source=gone")
    assert "ada@" not in json.dumps(line) and "body" not in line
    (line,) = export("--source=gone", "--with-personal")
    assert base64.b64decode(line["body"]) == BODY


def test_without_payload():
    make(body=BODY)
    (line,) = export("--source=stripe", "--no-payload")
    assert "body" not in line and "data" not in line


@pytest.mark.parametrize("body", [None, b"", b"not json", b"\xff", b"[" * 10_000])
def test_any_body_can_be_exported(body):
    make(body=body)
    (line,) = export("--source=stripe")
    assert line.get("body") == (None if body is None else base64.b64encode(body).decode())


def test_into_a_file_that_is_not_there_yet(tmp_path):
    make(), make(status="processed")
    path = tmp_path / "out.jsonl"
    err = StringIO()
    call_command("webhook_export", "--status=dead", f"--output={path}", stderr=err)
    assert len(path.read_text().splitlines()) == 1
    with pytest.raises(CommandError, match="File exists"):
        call_command("webhook_export", "--status=dead", f"--output={path}")


def test_something_must_be_said():
    with pytest.raises(CommandError, match="Say which receipts"):
        export()
