"""Processes of this project, for the demo: a server, and commands beside it."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

MANAGE = Path(__file__).resolve().parent.parent / "manage.py"
#: How long the server may take to answer, in seconds.
PATIENCE = 60


class DemoFailed(Exception):
    """Something did not go as it should; the text holds what the process wrote last."""


def is_free(port: int) -> bool:
    """Tell whether nobody listens on the port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def running(port: int, environment: Mapping[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """Run ``manage.py runserver``, which also serves the admin's static files; stop it at the end.

    Args:
        port: A free port of 127.0.0.1.
        environment: Variables that the server gets besides the present ones.

    Raises:
        DemoFailed: It did not come up, or the block failed; what the server wrote is added.
    """
    with TemporaryFile() as log:
        server = subprocess.Popen(
            [sys.executable, str(MANAGE), "runserver", "--noreload", "--insecure", f"127.0.0.1:{port}"],
            cwd=MANAGE.parent,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait(server, port)
            yield server
        except (OSError, DemoFailed) as error:
            log.seek(0)
            written = log.read()[-4000:].decode(errors="replace")
            raise DemoFailed(f"{error}\nThe server wrote:\n{written}") from error
        finally:
            _stop(server)


def _wait(server: "subprocess.Popen[bytes]", port: int) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if server.poll() is not None:
            raise DemoFailed("The server ended at once.")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise DemoFailed(f"The server did not answer within {PATIENCE} seconds.")


def _stop(server: "subprocess.Popen[bytes]") -> None:
    server.terminate()
    try:
        server.wait(10)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def manage(*arguments: str, environment: Mapping[str, str]) -> None:
    """Run a command of ``manage.py`` in a process of its own.

    Args:
        arguments: The command and its options.
        environment: Variables that it gets besides the present ones.

    Raises:
        DemoFailed: It failed.
    """
    ended = subprocess.run(
        [sys.executable, str(MANAGE), *arguments],
        cwd=MANAGE.parent,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise DemoFailed(f"manage.py {' '.join(arguments)} failed:\n{ended.stderr}")
