import pytest

from django_webhook_guard.verifiers.layouts import Layout, read_layout, read_template


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("{signature}", Layout()),
        ("sha256={signature}", Layout(prefix="sha256=")),
        ("v1,{signature}", Layout(prefix="v1,")),
        ("{{x}}{signature}", Layout(prefix="{x}")),
        ("t={timestamp},v1={signature}", Layout(separator=",", signature="v1", timestamp="t")),
        ("h1={signature};ts={timestamp}", Layout(separator=";", signature="h1", timestamp="ts")),
    ],
)
def test_layouts(text, layout):
    assert read_layout(text) == layout


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sha256=",
        "{timestamp}",
        "{signature},{signature}",
        "a={signature},b={signature}",
        "{signature}, and more",
        "t={timestamp},v1={signature},",
        "{timestamp}{signature}",
        "{timestamp}.{signature}",
        "{nonce}={signature}",
        "{signature",
        "{signature!r}",
        "{signature:>9}",
        "{}",
    ],
)
def test_what_is_no_layout_is_named(text):
    with pytest.raises(ValueError, match=r"^layout '"):
        read_layout(text)


def test_templates():
    assert read_template("v0:{timestamp}:{body}") == ((b"v0:", "timestamp"), (b":", "body"))
    assert read_template("{id}.{nonce}\n") == ((b"", "id"), (b".", "nonce"), (b"\n", None))
    assert read_template("{id}{{}}{body}") == ((b"", "id"), (b"{}", "body"))
    assert read_template("{body}{timestamp}") == ((b"", "body"), (b"", "timestamp"))


@pytest.mark.parametrize(
    "text",
    ["{bodi}", "{}", "{0}", "{body", "{body.x}", "{body!s}", "{timestamp:d}", "{id}{body}", "{nonce}{timestamp}"],
)
def test_what_is_no_template_is_named(text):
    with pytest.raises(ValueError, match=r"^signed '"):
        read_template(text)
