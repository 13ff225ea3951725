"""When a failed event runs again."""

import random
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Exponential backoff with an end.

    Args:
        base: Delay after the first failure, in seconds.
        factor: What the delay is multiplied by after each further failure.
        jitter: Part of the delay that is drawn at random, 0 to 1, so that failures spread out.
        max_delay: The longest delay, in seconds.
        max_attempts: Attempts until the receipt is dead.
        max_age: Age of the budget, in seconds, after which a failure makes the receipt dead.
    """

    base: float = 2
    factor: float = 2
    jitter: float = 0.1
    max_delay: float = 3600
    max_attempts: int = 20
    max_age: float = 3 * 86_400

    def delay(self, failures: int) -> float:
        """Return the seconds to wait after this many failures (1 for the first)."""
        exponent = min(max(failures, 1) - 1, 64)
        try:
            delay = min(self.base * float(self.factor) ** exponent, float(self.max_delay))
        except OverflowError:
            delay = float(self.max_delay)
        return delay * (1 + self.jitter * random.uniform(-1, 1))  # noqa: S311 - spreads load, no secret

    def exhausted(self, *, used: int, age: float) -> bool:
        """Tell whether an event may not run again.

        Args:
            used: Attempts that count.
            age: Seconds since the budget began.
        """
        return used >= self.max_attempts or age > self.max_age
