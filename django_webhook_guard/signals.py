"""The package's signals.

``webhook_received`` is work: its receivers are one handler, named ``signal``, run inside that handler's
transaction and sent with ``send``, so that an error in one of them is a failed attempt. The others are for
onlookers: sent after the commit with ``send_robust``, best effort, and they never change an outcome. Receivers
may be plain or async functions, behind every door.

The sender is always the model ``WebhookReceipt``. No argument holds a payload or a secret.
"""

from django.dispatch import Signal

webhook_received = Signal()
"""Work to do: sent for every event while a receiver is connected. ``event`` (``WebhookEvent``)."""

webhook_duplicate = Signal()
"""A delivery of an event that is over. ``receipt_id``, ``source``, ``event_type``."""

webhook_rejected = Signal()
"""A delivery was refused: not verified, late, malformed or too large. ``source``, ``decision`` (the key of
``RESPONSES``), ``reason`` (a code such as ``bad_signature``, or an empty string)."""

webhook_quarantined = Signal()
"""A genuine event is held for a person; sent once for each. ``receipt_id``, ``source``, ``event_type``,
``reason`` (a code)."""

webhook_processed = Signal()
"""Every handler of an event has ended, at least one of them with its work done. ``receipt_id``, ``source``,
``event_type``."""

webhook_failed = Signal()
"""An attempt failed, and is tried again or was the last. ``receipt_id``, ``source``, ``event_type``, ``attempt``
(its number), ``error`` (the exception of the first handler that failed)."""

webhook_dead = Signal()
"""An event waits for a person. ``receipt_id``, ``source``, ``event_type``, ``reason`` (``exhausted`` or
``gave_up``)."""

webhook_alert = Signal()
"""Something began that a person should look at, or is over; sent once for each, by whichever process saw it first
(``webhook_health``, ``webhook_sweep --forever``). ``code``, ``source`` (or an empty string), ``words``, ``level``
(``warning``, ``error``, or an empty string where it is over), ``began``."""
