from urllib.parse import urlsplit

import pytest
from django.test import Client

from django_webhook_guard.management.commands import webhook_drill, webhook_send
from django_webhook_guard.management.sending import Answer


@pytest.fixture
def sent(monkeypatch):
    """Let what the commands send arrive at Django's test client; returns the messages."""
    messages = []

    def send(message, *, timeout):
        messages.append(message)
        split = urlsplit(message.url)
        path = split.path + (f"?{split.query}" if split.query else "")
        headers = {name: value for name, value in message.headers.items() if name != "content-type"}
        answer = Client(enforce_csrf_checks=True).post(
            path, message.body, content_type=message.headers["content-type"], headers=headers
        )
        return Answer(status=answer.status_code, reason=answer.reason_phrase, body=answer.content)

    for command in (webhook_drill, webhook_send):
        monkeypatch.setattr(command, "send", send)
    return messages
