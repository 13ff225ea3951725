"""The package's signals.

``webhook_received`` is work: its receivers are one handler, named ``signal``, run inside that handler's
transaction and sent with ``send``, so that an error in one of them is a failed attempt. The others are for
onlookers: sent after the commit with ``send_robust``, best effort, and they never change an outcome.

The sender is always the model ``WebhookReceipt``. Arguments:

=====================  =============================================================================
``webhook_received``   ``event`` (``WebhookEvent``)
``webhook_processed``  ``receipt_id``, ``source``, ``event_type``
``webhook_failed``     ``receipt_id``, ``source``, ``event_type``, ``attempt``, ``error`` (exception or None)
``webhook_dead``       ``receipt_id``, ``source``, ``event_type``, ``reason``
=====================  =============================================================================
"""

from django.dispatch import Signal

webhook_received = Signal()
webhook_processed = Signal()
webhook_failed = Signal()
webhook_dead = Signal()
