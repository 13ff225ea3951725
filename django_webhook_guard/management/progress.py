"""How far a long command is: a bar on a terminal, a line now and then elsewhere."""

from time import monotonic

from django.core.management.base import OutputWrapper

WIDTH = 30
#: Seconds between two looks at it.
EVERY = {True: 0.1, False: 10.0}


class Progress:
    """Tells how many of a number are done.

    Args:
        out: Where to.
        total: How many there are.
    """

    def __init__(self, out: OutputWrapper, total: int) -> None:
        self._out = out
        self._total = total
        self._terminal = out.isatty()
        self._next = 0.0 if self._terminal else monotonic() + EVERY[False]
        self._last: tuple[int, str] | None = None

    def tell(self, done: int, text: str) -> None:
        """Say how far it is, unless that was said a moment ago.

        Args:
            done: How many were looked at.
            text: What became of them.
        """
        self._last = (done, text)
        if monotonic() < self._next:
            return
        self._next = monotonic() + EVERY[self._terminal]
        if self._terminal:
            self._draw(done, text)
        else:
            self._out.write(f"{done} of {self._total}: {text}")
        self._out.flush()

    def end(self) -> None:
        """Leave the line with the bar."""
        if self._terminal and self._last is not None:
            self._draw(*self._last)
            self._out.write("")

    def _draw(self, done: int, text: str) -> None:
        full = WIDTH * min(done, self._total) // max(self._total, 1)
        self._out.write(f"\r[{'#' * full}{'.' * (WIDTH - full)}] {done} of {self._total}: {text}\x1b[K", ending="")
