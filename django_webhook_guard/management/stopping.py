"""How a command is stopped between two steps and not in the middle of one."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any


class Stop:
    """Told by a signal's handler, which may run between any two steps of the waiting: so there is no lock in it."""

    def __init__(self) -> None:
        self._told = False

    def tell(self) -> None:
        self._told = True

    def is_set(self) -> bool:
        return self._told

    def wait(self, timeout: float) -> None:
        end = monotonic() + timeout
        while not self._told and (left := end - monotonic()) > 0:
            sleep(min(left, 0.1))


@contextmanager
def stopped_by_signals() -> Iterator[Stop]:
    """Turn the first SIGTERM or SIGINT into a stop after what is being run; a second one ends that, too."""
    stop = Stop()
    former = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def tell(number: int, frame: Any) -> None:
        if stop.is_set():
            raise SystemExit(128 + number)
        stop.tell()

    for number in former:
        signal.signal(number, tell)
    try:
        yield stop
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
