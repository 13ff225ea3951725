"""The example project, in processes of its own: its settings are not those of the tests."""

import os
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

import pytest
from django.conf import settings
from django.db import connection

ROOT = Path(__file__).parent.parent


def stranger(database_url):
    """Return the environment of a stranger: nothing of the tests' in it."""
    ours = ("DJANGO_", "DATABASE_", "WEBHOOK_", "SECRET_KEY", "ALLOWED_HOSTS", "DEBUG")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "DATABASE_URL": database_url, "PYTHONUNBUFFERED": "1"}


@pytest.fixture
def environment(tmp_path):
    return stranger(f"sqlite:///{tmp_path / 'db.sqlite3'}")


@pytest.fixture(scope="module")
def live(tmp_path_factory, django_db_blocker):
    """The environment of demos, on an empty database of the kind that ``DATABASE_URL`` names."""
    if connection.vendor == "sqlite":
        yield stranger(f"sqlite:///{tmp_path_factory.mktemp('demo') / 'db.sqlite3'}")
        return
    name = f"webhook_guard_demo_{os.getpid()}"
    with django_db_blocker.unblock():
        outside(f"CREATE DATABASE {name}")
        try:
            yield stranger(urlsplit(settings.DATABASE_URL)._replace(path=f"/{name}").geturl())
        finally:
            outside(f"DROP DATABASE {name}")


def outside(sql):
    with connection._nodb_cursor() as cursor:
        cursor.execute(sql)


def manage(*arguments, env):
    return subprocess.run(
        [sys.executable, "manage.py", *arguments], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120
    )


@contextmanager
def taken_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def test_it_works_without_any_environment_and_has_its_migrations(environment):
    ended = manage("check", "--fail-level", "WARNING", env=environment)
    assert ended.returncode == 0, ended.stderr
    ended = manage("makemigrations", "--check", "--dry-run", env=environment)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_sources_come_from_the_environment(environment):
    ended = manage("check", env={**environment, "WEBHOOK_SOURCES": "github,partner", "WEBHOOK_PARTNER_SECRETS": ""})
    assert "source 'github': SECRETS holds no usable secret" in ended.stderr
    assert "source 'partner': SECRETS holds no usable secret" in ended.stderr
    assert "'stripe', which is not configured" in ended.stderr


def test_no_secret_is_the_same_twice(environment):
    show = "from django.conf import settings as s; print(s.SECRET_KEY, s.WEBHOOK_GUARD['SOURCES'])"
    env = {**environment, "DJANGO_SETTINGS_MODULE": "example_project.settings"}
    shown = {
        subprocess.run([sys.executable, "-c", show], cwd=ROOT, env=env, capture_output=True, check=True).stdout
        for _ in range(2)
    }
    assert len(shown) == 2


def test_a_port_that_is_in_use_is_said_before_anything_is_done(environment):
    with taken_port() as port:
        ended = manage("demo", "--once", "--port", str(port), env=environment)
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"CommandError: Port {port} of 127.0.0.1 is in use")
    assert ended.stdout == ""


@pytest.fixture(scope="module")
def failing(tmp_path_factory):
    """A demo whose shop has no handlers, on a database of its own: most of its time it waits, so others run beside."""
    if connection.vendor != "sqlite":
        pytest.skip("asks nothing of the database; it runs on SQLite")
    folder = tmp_path_factory.mktemp("failing")
    # Every Python process begins with a sitecustomize.
    (folder / "sitecustomize.py").write_text(
        "import sys, types\nsys.modules['example_project.shop.webhook_handlers'] = types.ModuleType('empty')\n"
    )
    env = {**stranger(f"sqlite:///{folder / 'db.sqlite3'}"), "PYTHONPATH": str(folder)}
    with ThreadPoolExecutor(1) as beside:
        yield beside.submit(manage, "demo", "--once", "--port", str(free_port()), env=env)


@pytest.fixture
def beside(request):
    """Start on SQLite what a later test looks at."""
    if connection.vendor == "sqlite":
        request.getfixturevalue("failing")


@pytest.mark.slow
def test_demo_goes_as_it_expects(live, beside):
    ended = manage("demo", "--once", "--port", str(free_port()), env=live)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "All 10 steps went as expected." in ended.stdout
    assert "DIFFERS" not in ended.stdout


@pytest.mark.slow
def test_demo_can_be_played_again_and_leaves_the_admin_up_until_ctrl_c(anywhere, live):
    with demo(live) as (process, port):
        shown = read_until(process.stdout, "password")
        assert re.search(r"password  \S{12,}", shown), shown
        page = got(f"http://127.0.0.1:{port}/admin/").decode()
        assert "Django administration" in page
        (sheet, *_) = re.findall(r'href="(/static/admin/[^"]+\.css)"', page)
        assert b"body" in got(f"http://127.0.0.1:{port}{sheet}")
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=30)
    assert (process.returncode, rest.strip()) == (0, "Stopped.")
    assert is_free(port)


@pytest.mark.slow
def test_a_demo_that_is_terminated_stops_its_server(anywhere, live):
    with demo(live) as (process, port):
        read_until(process.stdout, "Sending")
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=30)
    # Python may add a word about an object that the interrupt left half made.
    assert (process.returncode, "Stopped." in rest.splitlines()) == (0, True)
    assert is_free(port)


@pytest.mark.slow
def test_demo_fails_where_something_differs(failing):
    ended = failing.result()
    assert ended.returncode == 1
    assert "DIFFERS: expected 200 processed, 4x 200 duplicate / processed, attempts 1 / 1" in ended.stdout
    assert re.search(r"CommandError: \d of 10 steps differ", ended.stderr)
    assert "The server wrote:" in ended.stderr


@contextmanager
def demo(env):
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "manage.py", "demo", "--port", str(port)],
        cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        yield process, port
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def got(url):
    with build_opener(ProxyHandler({})).open(url, timeout=20) as response:
        return response.read()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_free(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def read_until(stream, word):
    lines = []
    for line in stream:
        lines.append(line)
        if word in line:
            break
    return "".join(lines)
