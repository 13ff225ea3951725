import pytest

from tests import senders


@pytest.fixture
def configure(sources, monkeypatch):
    """Give a shipped provider a source of its name, for which ``post`` signs: ``configure("slack", TENANT=True)``."""

    def add(name, **options):
        signer, secret = senders.OTHERS[name]
        monkeypatch.setitem(senders.SIGNERS, name, signer)
        sources(**{name: {"PROVIDER": name, "SECRETS": [secret], **options}})

    return add
