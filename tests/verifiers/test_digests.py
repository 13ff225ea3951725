import base64
import hashlib

import pytest

from django_webhook_guard.delivery import Delivery
from django_webhook_guard.exceptions import MalformedContent
from django_webhook_guard.verifiers.digests import check_body_digests

BODY = b'{"hello": "world"}'
#: Published in RFC 9530, appendix B.
SHA256 = "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:"
SHA512 = "sha-512=:WZDPaVn/7XgHaAy8pmojAkGWoRx2UFChF41A2svX+TaPm+AbwAgBWnrIiYllu7BNNyealdVLvRwEmTHWXvJwew==:"


def check(body=BODY, **headers):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    check_body_digests(Delivery(method="POST", url="/", headers=headers, body=body))


@pytest.mark.parametrize("value", [SHA256, SHA512, f"{SHA256}, {SHA512}", f"{SHA256},unixsum=:AAAA:", "unixsum=:AAAA:"])
def test_content_digest_that_agrees(value):
    check(content_digest=value)


@pytest.mark.parametrize(
    "value", [SHA256.replace("X", "Y", 1), f"{SHA256}, {SHA512.replace('W', 'X', 1)}", "sha-256=::", "sha-256=:AAA:"]
)
def test_content_digest_that_disagrees(value):
    with pytest.raises(MalformedContent, match="disagrees"):
        check(content_digest=value)


def test_the_published_digest_with_a_line_feed():
    check(BODY + b"\n", content_digest="sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:")
    with pytest.raises(MalformedContent):
        check(BODY + b"\n", content_digest=SHA256)


@pytest.mark.parametrize("value", ["", ",", "sha-256", "sha-256=X48E9qOo", SHA256 + ",", "sha-256=:\xe9:", SHA256[:-1]])
def test_content_digest_that_can_not_be_read(value):
    with pytest.raises(MalformedContent, match="cannot be read"):
        check(content_digest=value)


def encodings(algorithm):
    digest = algorithm(BODY).digest()
    return [digest.hex(), digest.hex().upper(), base64.b64encode(digest).decode(), f" {digest.hex()} "]


@pytest.mark.parametrize("value", encodings(hashlib.md5) + encodings(hashlib.sha256))
@pytest.mark.parametrize("header", ["content_md5", "x_content_sha256"])
def test_a_plain_digest_goes_by_its_length_in_hex_or_base64(header, value):
    check(**{header: value})
    with pytest.raises(MalformedContent, match="disagrees"):
        check(BODY + b" ", **{header: value})


@pytest.mark.parametrize("value", ["", "zz", "00" * 20, "0" * 31, "0 " * 16, "é" * 32, "AAAA", "," * 64])
def test_a_plain_digest_that_can_not_be_read(value):
    with pytest.raises(MalformedContent, match="cannot be read"):
        check(content_md5=value)


def test_one_wrong_digest_among_several_is_enough():
    with pytest.raises(MalformedContent):
        check(content_digest=SHA256, content_md5="0" * 32)
