"""``webhook_drill`` and ``webhook_send`` against servers as they run in production."""

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("source", ["stripe", "github", "partner", "github-docs"])
def test_a_running_server_passes_the_drill(sync, database, source):
    done = database.manage("webhook_drill", source, "--url", sync.url)
    rows = done.stdout.splitlines()[2:]
    assert [row.split()[-1] for row in rows] == ["ok"] * 3
    assert sync.errors() == []


def test_what_one_server_kept_another_takes_for_a_duplicate(sync, threads, database, new, tmp_path):
    event = new("stripe")
    assert event.deliver(sync).decision == "processed"
    line = tmp_path / "line"
    database.manage("webhook_export", str(database.receipt(event)["id"]), "--output", str(line))
    done = database.manage("webhook_send", f"{threads.url}/webhooks/stripe/", "--event", str(line))
    assert done.stdout.startswith("200 OK") and "duplicate" in done.stdout
    assert database.effects(event) == {"handler": 1}


def test_a_server_with_another_secret_fails_the_drill(sync, database):
    with pytest.raises(RuntimeError, match="the secrets that this process has"):
        database.manage("webhook_drill", "stripe", "--url", f"{sync.url}/webhooks/once/")
