"""The drill of ``manage.py demo``: what a sender, an attacker and a bad day can do to a receiver.

Every step sends real HTTP requests, looks at the database afterwards, and says what it expected.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from threading import Barrier
from uuid import uuid4

from django_webhook_guard.models import WebhookReceipt
from example_project import sender
from example_project.sender import Message
from example_project.shop.models import Invoice, Shipment, Warehouse

#: The acceptance window of the demo's server, in seconds: short, so that the drill can wait until it has passed.
TOLERANCE = 10
#: How long the sweeper may take to bring the failed order, in seconds; its first delay is about two.
PATIENCE = 20


@dataclass(frozen=True)
class Seen:
    """What came of a step.

    Args:
        answers: What was answered, in order of sending.
        receipts: Status and attempts of every receipt that the step's ids have.
        effects: How many invoices or shipments there are for them.
    """

    answers: tuple[str, ...]
    receipts: tuple[str, ...]
    effects: int

    @property
    def answered(self) -> str:
        """The answers in one line, equal ones counted."""
        return _counted(self.answers)

    @property
    def stored(self) -> str:
        """The receipts in one line, equal ones counted."""
        return _counted(self.receipts) or "nothing"

    def __str__(self) -> str:
        return f"{self.answered} / {self.stored} / {self.effects}"


@dataclass(frozen=True)
class Step:
    """A step as it went, beside what may come of it.

    Args:
        sent: What was sent, in words.
        seen: What came of it.
        wanted: What should have; more than one where a race may end either way.
        note: What the reader should know besides.
    """

    sent: str
    seen: Seen
    wanted: tuple[Seen, ...]
    note: str = ""

    @property
    def difference(self) -> str:
        """What was expected instead, or an empty string."""
        return "" if self.seen in self.wanted else "expected " + ", or ".join(map(str, self.wanted))


def _counted(texts: Iterable[str]) -> str:
    return ", ".join(text if times == 1 else f"{times}x {text}" for text, times in Counter(texts).items())


@dataclass(frozen=True, kw_only=True)
class Drill:
    """One playing of the drill, with ids of its own, so that it can be played again on the same database.

    Args:
        port: The server's port on 127.0.0.1.
        stripe_secret: The secret of its source ``stripe``.
        partner_secret: The secret of its source ``partner``.
        sweep: Makes one pass of ``webhook_sweep``.
        mark: What this playing's ids have in common.
    """

    port: int
    stripe_secret: str
    partner_secret: str
    sweep: Callable[[], object]
    mark: str = field(default_factory=lambda: uuid4().hex[:8])

    def steps(self) -> Iterator[Step]:
        """Play the steps one after the other."""
        self._close(main=False, north=True)
        first, clock = self._payment("five"), time.monotonic()
        yield self._five_identical(first)
        yield self._tampered()
        order = self._order("order")
        yield self._resigned(order)
        yield self._captured(order)
        yield self._out_of_order()
        yield self._pair()
        yield self._recovers()
        yield self._swept()
        yield self._left_failed()
        time.sleep(max(0.0, clock + TOLERANCE + 2 - time.monotonic()))
        yield self._after_the_window(first)

    # -- the steps

    def _five_identical(self, message: Message) -> Step:
        return Step(
            "five identical deliveries of one payment",
            self._payments(self._send(*[message] * 5), "five"),
            (Seen(("200 processed", *["200 duplicate"] * 4), ("processed, attempts 1",), 1),),
        )

    def _tampered(self) -> Step:
        genuine = self._payment("tampered")
        forged = replace(genuine, body=genuine.body.replace(b'"amount_paid": 4200', b'"amount_paid": 9200'))
        return Step(
            "a payment with another amount, under the old signature",
            self._payments(self._send(forged), "tampered"),
            (Seen(("401 rejected",), (), 0),),
        )

    def _resigned(self, order: Message) -> Step:
        return Step(
            "an order and its retry: fresh stamp, nonce, signature",
            self._orders(self._send(order, self._order("order")), "order"),
            (Seen(("200 processed", "200 duplicate"), ("processed, attempts 1",), 1),),
        )

    def _captured(self, order: Message) -> Step:
        message = replace(order, headers={**order.headers, "Idempotency-Key": self._id("captured")})
        return Step(
            "that order, captured, under another Idempotency-Key",
            self._orders(self._send(message), "captured", effects_of="order"),
            (Seen(("200 quarantined",), ("quarantined, attempts 0",), 1),),
            note="held for a person; the order still has its one shipment",
        )

    def _out_of_order(self) -> Step:
        newer, older = self._payment("newer"), self._payment("older", age=3600)
        return Step(
            "two payments out of order: the newer one first",
            self._payments(self._send(newer, older), "newer", "older"),
            (Seen(("200 processed",) * 2, ("processed, attempts 1",) * 2, 2),),
            note="both take effect: nothing drops an older event; a handler that minds compares occurred_at",
        )

    def _pair(self) -> Step:
        message, barrier = self._payment("pair"), Barrier(2)

        def send(number: int) -> str:
            barrier.wait()
            return self._send(message)[0]

        with ThreadPoolExecutor(2) as threads:
            answers = tuple(sorted(threads.map(send, range(2))))
        one = ("processed, attempts 1",), 1
        return Step(
            "one payment twice at the same moment",
            self._payments(answers, "pair"),
            (Seen(("200 duplicate", "200 processed"), *one), Seen(("200 processed", "503 busy"), *one)),
            note="503 busy: the other was still at work, so the sender has to come again"
            if "503 busy" in answers
            else "",
        )

    def _recovers(self) -> Step:
        self._close(main=True)
        failed = self._send(self._order("recovers"))
        self._close(main=False)
        return Step(
            "an order while the warehouse is closed; a retry after it opened",
            self._orders(failed + self._send(self._order("recovers")), "recovers"),
            (Seen(("500 failed", "200 processed"), ("processed, attempts 2",), 1),),
        )

    def _swept(self) -> Step:
        self._close(main=True)
        answers = self._send(self._order("swept"))
        self._close(main=False)
        end = time.monotonic() + PATIENCE
        while self._orders(answers, "swept").receipts == ("failed, attempts 1",) and time.monotonic() < end:
            time.sleep(0.5)
            self.sweep()
        return Step(
            "the same without a retry: webhook_sweep runs it",
            self._orders(answers, "swept"),
            (Seen(("500 failed",), ("processed, attempts 2",), 1),),
        )

    def _left_failed(self) -> Step:
        return Step(
            "an order for the warehouse 'north', which stays closed",
            self._orders(self._send(self._order("north", warehouse="north")), "north"),
            (Seen(("500 failed",), ("failed, attempts 1",), 0),),
            note="left for you: open 'north' in the admin, then retry the receipt there",
        )

    def _after_the_window(self, message: Message) -> Step:
        return Step(
            f"the very bytes of the first delivery, {TOLERANCE} seconds and more later",
            self._payments(self._send(message), "five"),
            (Seen(("400 late",), ("processed, attempts 1",), 1),),
            note=f"the window of this demo is {TOLERANCE} seconds; a source's own is 300 unless it says otherwise",
        )

    # -- sending

    def _id(self, name: str) -> str:
        return f"{name}-{self.mark}"

    def _payment(self, name: str, age: int = 0) -> Message:
        paid = {"id": f"in_{self._id(name)}", "customer": "cus_demo", "amount_paid": 4200, "currency": "eur"}
        event = {
            "id": f"evt_{self._id(name)}",
            "type": "invoice.payment_succeeded",
            "created": int(time.time()) - age,
            "data": {"object": paid},
        }
        return sender.stripe(event, self.stripe_secret)

    def _order(self, name: str, warehouse: str = "main") -> Message:
        event = {"type": "order.paid", "order": self._id(name), "warehouse": warehouse}
        return sender.partner(event, self.partner_secret, key=self._id(name))

    def _send(self, *messages: Message) -> tuple[str, ...]:
        return tuple(str(sender.send(message, self.port)) for message in messages)

    def _close(self, **closed: bool) -> None:
        for name, value in closed.items():
            Warehouse.objects.update_or_create(name=name, defaults={"closed": value})

    # -- looking

    def _payments(self, answers: tuple[str, ...], *names: str) -> Seen:
        ids = [self._id(name) for name in names]
        effects = Invoice.objects.filter(stripe_id__in=[f"in_{each}" for each in ids]).count()
        return Seen(answers, _receipts("stripe", [f"evt_{each}" for each in ids]), effects)

    def _orders(self, answers: tuple[str, ...], name: str, effects_of: str = "") -> Seen:
        effects = Shipment.objects.filter(order=self._id(effects_of or name)).count()
        return Seen(answers, _receipts("partner", [self._id(name)]), effects)


def _receipts(source: str, event_ids: list[str]) -> tuple[str, ...]:
    found = WebhookReceipt.objects.filter(source=source, event_id__in=event_ids).order_by("pk")
    return tuple(f"{receipt.status}, attempts {receipt.attempts}" for receipt in found)
