"""How far a command has come: a bar on a terminal, now and then a line elsewhere."""

from time import monotonic
from typing import Any

#: Seconds between two lines where there is no terminal.
EVERY = 10.0
_WIDTH = 40


class Progress:
    """Says how much is done.

    Args:
        out: The command's output.
        total: How much there is.
        what: What is counted, such as ``receipts``.
    """

    def __init__(self, out: Any, total: int, what: str) -> None:
        self._out, self._total, self._what = out, total, what
        self._terminal = bool(getattr(out, "isatty", lambda: False)())
        self._told = monotonic()
        self.done = 0

    def step(self) -> None:
        """Count one more."""
        self.done += 1
        if self._terminal:
            filled = _WIDTH * self.done // max(1, self._total)
            self._out.write(f"\r[{'#' * filled}{' ' * (_WIDTH - filled)}] {self.done}/{self._total}", ending="")
            self._out.flush()
        elif monotonic() - self._told >= EVERY:
            self._told = monotonic()
            self._out.write(f"{self.done} of {self._total} {self._what}")

    def end(self) -> None:
        """Leave the line."""
        if self._terminal and self.done:
            self._out.write("")
