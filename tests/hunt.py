"""A hunt over the whole suite: no secret of the test project is ever told.

It reads every log record at DEBUG with its traceback, every answer of a test client (pages, messages, debug pages),
every mail, and at the end of each test every row of the package. A test that itself puts a secret into what it sends
is marked ``tells_secrets``.
"""

import logging
from contextlib import suppress
from functools import wraps

import pytest
from django.core import mail
from django.db import DatabaseError, connection
from django.test.client import AsyncClientHandler, ClientHandler

from django_webhook_guard import models
from tests import senders

PLANTED = tuple(value for name, value in vars(senders).items() if name.endswith("_SECRET"))


class Finds(logging.Handler):
    """What was found in the test that runs now."""

    def __init__(self):
        super().__init__(logging.DEBUG)
        self.setFormatter(logging.Formatter("%(message)s"))
        self.found = []

    def look(self, where, text):
        for secret in PLANTED:
            if secret in text:
                start = max(text.index(secret) - 100, 0)
                self.found.append(f"{where}: …{text[start : start + 200]}…")

    def emit(self, record):
        try:
            text = self.format(record)
        except Exception:  # a record that is made wrong is another test's business
            return
        self.look(f"log of {record.name}", text + repr(record.__dict__.get("args")))


def _without_its_lines(record):
    """Let a record of a template tell its error, and not where it was raised.

    A page of the admin's lacks many variables, and each is such a record. What it shows of the context is looked at;
    to write its traceback takes more time than the page.
    """
    told, error = [], record.exc_info and record.exc_info[1]
    while error:
        told.insert(0, f"{type(error).__name__}: {error}")
        error = error.__cause__ or error.__context__
    record.exc_text = "\n".join(told)
    return True


finds = Finds()


def _watching(get_response):
    @wraps(get_response)
    def watched(self, request):
        response = get_response(self, request)
        if not response.streaming:
            finds.look(
                f"answer to {request.path}", f"{dict(response.items())} {response.content.decode(errors='replace')}"
            )
        return response

    return watched


def _watching_async(get_response):
    @wraps(get_response)
    async def watched(self, request):
        response = await get_response(self, request)
        if not response.streaming:
            finds.look(
                f"answer to {request.path}", f"{dict(response.items())} {response.content.decode(errors='replace')}"
            )
        return response

    return watched


def look_at_rows():
    """Look at everything that the package has stored."""
    if not models.WebhookReceipt.objects.exists():
        return
    for model in (models.WebhookReceipt, models.WebhookAttempt, models.WebhookCheckpoint, models.WebhookBatch):
        names = [field.attname for field in model._meta.concrete_fields]
        for row in model._base_manager.values_list(*names)[:200]:
            cells = [bytes(cell) if isinstance(cell, memoryview) else cell for cell in row]
            finds.look(f"row of {model.__name__}", repr(cells))


@pytest.fixture(scope="session", autouse=True)
def _hunt():
    """Watch everything for the whole session."""
    root = logging.getLogger()
    ClientHandler.get_response = _watching(ClientHandler.get_response)
    AsyncClientHandler.get_response_async = _watching_async(AsyncClientHandler.get_response_async)
    root.addHandler(finds)
    logging.getLogger("django.template").addFilter(_without_its_lines)
    yield
    logging.getLogger("django.template").removeFilter(_without_its_lines)
    root.removeHandler(finds)


@pytest.fixture(autouse=True)
def _nothing_is_told(request, caplog):
    """Fail a test in which a secret was told."""
    loggers = [logging.getLogger(name) for name in ("", "django", "django_webhook_guard")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.DEBUG)
    caplog.handler.setLevel(logging.WARNING)  # what a test sees unless it asks for more
    finds.found.clear()
    asks = request.node.get_closest_marker("django_db") is not None
    if asks:
        request.getfixturevalue("_django_db_helper")
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
    if asks and not connection.needs_rollback:
        with suppress(DatabaseError):  # PostgreSQL shows nothing to a transaction in which a statement failed
            look_at_rows()
    for sent in getattr(mail, "outbox", ()):
        finds.look("mail", f"{sent.subject} {sent.body} {getattr(sent, 'alternatives', '')}")
    found = list(finds.found)
    finds.found.clear()
    assert not found or request.node.get_closest_marker("tells_secrets"), found
