"""A sender that is known by its signing scheme alone, declared by a source's ``OPTIONS``."""

from collections.abc import Mapping
from typing import Any

from django_webhook_guard.locators import Body, Header
from django_webhook_guard.providers.base import Provider
from django_webhook_guard.verifiers.hmac import HMACVerifier

#: The provider's name in settings.
GENERIC_HMAC = "generic-hmac"

_REQUIRED = ("header", "signed")
#: Options that say something about a part of the signed template.
_ABOUT = {
    "timestamp_header": "timestamp",
    "stamp": "timestamp",
    "id_header": "id",
    "nonce_header": "nonce",
    "nonce_pattern": "nonce",
}
OPTIONS = (*_REQUIRED, "layout", "prefix", "separator", "algorithm", "encoding", "decoding", *_ABOUT)


def generic_hmac(options: Mapping[str, Any]) -> Provider:
    """Build the provider of a source whose ``OPTIONS`` declare the scheme.

    The id is the header that the template signs; without one the source says ``EVENT_ID`` or ``KEY_FIELDS``, else
    the nonce or the signed content tells events apart.

    Args:
        options: The arguments of ``HMACVerifier`` but ``families``, all of them text; ``prefix`` is short for a
            ``layout`` of that prefix and the signature.

    Raises:
        ValueError: An option is not known, missing, no text, or cannot work; the message names it and its value.
    """
    _check(options)
    given = dict(options)
    prefix = given.pop("prefix", None)
    if prefix is not None:
        given["layout"] = prefix.replace("{", "{{").replace("}", "}}") + "{signature}"
    try:
        verifier = HMACVerifier(**given)
    except ValueError as error:
        raise ValueError(f"OPTIONS: {error}") from None
    _check_template(verifier, options)
    return Provider(
        name=GENERIC_HMAC,
        verifier=verifier,
        event_id=Header(verifier.id_header) if verifier.id_header else None,
        event_type=Body("type", optional=True),
        # Not known, so the check speaks up that needs an id of the sender, not the one that needs a wider window.
        varies=frozenset({"stamp"}) if verifier.covers & {"timestamp", "nonce"} else frozenset(),
        keep_headers=tuple(sorted(verifier.covered_headers)),
    )


def _check(options: Mapping[str, Any]) -> None:
    if not isinstance(options, Mapping):
        raise ValueError(f"OPTIONS is {type(options).__name__}, not a dict.")
    for name in options:
        if name not in OPTIONS:
            # Its value is not shown: it may be a secret in the wrong place.
            raise ValueError(f"OPTIONS has {name!r}, which is not known; known are {', '.join(sorted(OPTIONS))}.")
    for name in _REQUIRED:
        if name not in options:
            raise ValueError(f"OPTIONS: {name!r} is missing.")
    for name, value in options.items():
        if not isinstance(value, str):
            raise ValueError(f"OPTIONS: {name} {value!r}: give text.")
    if "prefix" in options and "layout" in options:
        raise ValueError(f"OPTIONS: prefix {options['prefix']!r}: layout {options['layout']!r} says it already.")


def _check_template(verifier: HMACVerifier, options: Mapping[str, str]) -> None:
    if "body" not in verifier.covers:
        raise ValueError(f"OPTIONS: signed {verifier.signed!r}: without {{body}} or {{body_sha256}} any body would do.")
    for name, part in _ABOUT.items():
        if name in options and part not in verifier.covers:
            raise ValueError(f"OPTIONS: {name} {options[name]!r}: {{{part}}} is not in signed, {verifier.signed!r}.")
