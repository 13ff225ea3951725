"""Slack: Events API, slash commands and interactions at one URL.

Source: https://docs.slack.dev/authentication/verifying-requests-from-slack/
"""

from typing import Any

from django_webhook_guard.exceptions import MalformedContent
from django_webhook_guard.locators import Body, Either
from django_webhook_guard.providers.base import Handshake, Provider
from django_webhook_guard.verifiers.hmac import HMACVerifier

#: Slack's have some fifty characters.
MAX_CHALLENGE = 255


def answer_challenge(data: Any) -> Handshake | None:
    """Answer a ``url_verification`` with its challenge, as plain text; None for everything else.

    Args:
        data: The verified content.

    Raises:
        MalformedContent: The challenge is no short printable ASCII text.
    """
    if not isinstance(data, dict) or data.get("type") != "url_verification":
        return None
    challenge = data.get("challenge")
    if not isinstance(challenge, str) or not 0 < len(challenge) <= MAX_CHALLENGE:
        raise MalformedContent(f"the challenge is no text of 1 to {MAX_CHALLENGE} characters")
    if not (challenge.isascii() and challenge.isprintable()):
        raise MalformedContent("the challenge is no printable ASCII")
    return Handshake(body=challenge.encode())


SLACK = Provider(
    name="slack",
    verifier=HMACVerifier(
        header="X-Slack-Signature",
        layout="v0={signature}",
        signed="v0:{timestamp}:{body}",
        timestamp_header="X-Slack-Request-Timestamp",
    ),
    # Commands and interactions have a trigger_id in place of an event_id, a few interactions neither.
    event_id=Either(Body("event_id"), Body("trigger_id"), optional=True),
    # "event_callback.app_mention", "/deploy", "block_actions"
    event_type=(Either(Body("type"), Body("command")), Body("event", "type", optional=True)),
    tenant=Either(Body("team_id"), Body("team", "id"), Body("enterprise_id"), Body("enterprise", "id")),
    occurred_at=Body("event_time"),
    # Slack does not say whether a retry is signed afresh. If it is not, the last of the three, six minutes after the
    # first try, comes late; nothing else changes.
    varies=frozenset({"stamp"}),
    retry_span=360,
    # Slack can be asked to send what failed again every hour for a day.
    resend_span=86_400,
    forms=True,
    form_json="payload",
    handshake=answer_challenge,
    # Commands and interactions want a 200.
    answers={"accepted": 200, "quarantined": 200},
    # A delivery that says that it is a retry may be the first to arrive: it is kept, and decides nothing.
    keep_headers=("x-slack-retry-num", "x-slack-retry-reason", "x-slack-request-timestamp"),
)
