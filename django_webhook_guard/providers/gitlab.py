"""GitLab, with a signing token or with the older secret token.

Source: https://docs.gitlab.com/user/project/integrations/webhooks/
"""

from dataclasses import replace

from django_webhook_guard.locators import Body, Either, Header
from django_webhook_guard.providers.base import Provider
from django_webhook_guard.providers.standard_webhooks import VERIFIER
from django_webhook_guard.verifiers.token import TokenVerifier

_KEPT = (
    "x-gitlab-event",
    "x-gitlab-event-uuid",
    "x-gitlab-webhook-uuid",
    "x-gitlab-instance",
    "idempotency-key",
)

GITLAB = Provider(
    name="gitlab",
    # The format of Standard Webhooks, under its own names alone.
    verifier=replace(VERIFIER, families=()),
    event_id=Header("webhook-id"),
    # System hooks have no object_kind.
    event_type=Either(Body("object_kind"), Body("event_name"), optional=True),
    # Not the group's id where there is no project: a group and a project may have the same number.
    tenant=Body("project", "id"),
    object=Body("project", "path_with_namespace", optional=True),
    # A failure is noted there and not sent again by itself; a person can, from the hook's log.
    varies=frozenset({"stamp"}),
    retries=False,
    retry_span=0,
    resend_span=30 * 86_400,
    keep_headers=("webhook-id", "webhook-timestamp", *_KEPT),
)

GITLAB_TOKEN = replace(
    GITLAB,
    name="gitlab-token",
    verifier=TokenVerifier(header="X-Gitlab-Token"),
    # The same for all tries since 17.4; before it there is only the id that hooks fired by one event share.
    event_id=Either(Header("Idempotency-Key"), Header("X-Gitlab-Event-UUID"), optional=True),
    varies=frozenset(),
    keep_headers=_KEPT,
)
