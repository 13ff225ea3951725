"""Wake a worker for a receipt. The row is the queue: a message that is lost, late or doubled does no harm."""

from django_webhook_guard.dispatchers.waking import ready, wake, wake_on_commit

__all__ = ["ready", "wake", "wake_on_commit"]
