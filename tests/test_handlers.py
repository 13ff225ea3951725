import asyncio
from datetime import timedelta
from functools import partial

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_webhook_guard.exceptions import GiveUp, RetryLater, Skip
from django_webhook_guard.handlers import DRILL, Handler, matching, registered, unregister


def function(event):
    return event


@pytest.mark.parametrize(
    ("patterns", "event_type", "wanted"),
    [
        ("invoice.*", "invoice.paid", True),
        ("invoice.*", "Invoice.paid", False),
        ("invoice.*", "charge.paid", False),
        (["a", "b"], "b", True),
        ("*", "", True),
        ("**", "", False),
        ("invoice.*", "", False),
        ("[ab]", "a", True),
        ("[ab]", "[ab]", False),
    ],
)
def test_patterns_choose_by_type(handler, patterns, event_type, wanted):
    handler("stripe", patterns)(function)
    assert bool(matching("stripe", event_type)) is wanted
    assert not matching("github", event_type)


@pytest.mark.parametrize(
    ("patterns", "wanted"),
    [("*", False), ("webhook_guard.*", False), ("webhook_guard.dril[l]", False), (["a", DRILL], True), (DRILL, True)],
)
def test_a_drill_is_only_for_a_handler_that_names_it(handler, patterns, wanted):
    handler("stripe", patterns)(function)
    assert bool(matching("stripe", DRILL)) is wanted
    assert matching("stripe", f"{DRILL}s") == (() if patterns not in ("*", "webhook_guard.*") else registered()[-1:])


def test_a_name_is_the_path_of_the_function(handler):
    handler("stripe", "*")(function)
    (found,) = matching("stripe", "x")
    assert found.name == "tests.test_handlers:function"
    assert (found.atomic, found.using, found.lease, found.formerly) == (True, None, None, ())


def test_handlers_come_in_order_of_registration(handler):
    names = ["c", "a", "b"]
    for name in names:
        handler("stripe", "*", name=name)(lambda event: None)
    assert [found.name for found in matching("stripe", "x")] == names


def test_one_function_may_be_registered_for_several_patterns(handler):
    handler("stripe", "a.*")(handler("stripe", "*.b")(handler(["github", "stripe"], "x")(function)))
    assert len(matching("stripe", "a.b")) == 1


def test_two_functions_of_one_name_are_refused_where_both_match(handler):
    handler("stripe", "a.*", name="h")(lambda event: None)
    handler("stripe", "*.b", name="h")(lambda event: None)
    assert matching("stripe", "a.c")
    with pytest.raises(ImproperlyConfigured, match="are or were named 'h'"):
        matching("stripe", "a.b")


def test_a_former_name_of_one_handler_is_not_the_name_of_another(handler):
    handler("stripe", "*", name="a")(lambda event: None)
    handler("stripe", "*", name="b", formerly="a")(lambda event: None)
    with pytest.raises(ImproperlyConfigured, match="are or were named 'a'"):
        matching("stripe", "x")


def generator(event):
    yield event


async def async_generator(event):
    yield event


@pytest.mark.parametrize(
    ("given", "options", "word"),
    [
        (function, {"sources": []}, "at least one source"),
        (function, {"patterns": ()}, "at least one source"),
        (function, {"name": "signal"}, "signal"),
        (function, {"formerly": "signal"}, "signal"),
        (function, {"name": "n" * 256}, "255"),
        (function, {"lease": 0}, "lease=0"),
        (function, {"lease": timedelta(seconds=-1)}, "lease=-1"),
        (function, {"lease": float("inf")}, "lease=inf"),
        (function, {"lease": float("nan")}, "lease=nan"),
        (generator, {}, "generator"),
        (async_generator, {}, "generator"),
    ],
)
def test_what_cannot_work_is_refused_at_registration(handler, given, options, word):
    before = registered()
    options = {"sources": "stripe", "patterns": "*", **options}
    with pytest.raises(ImproperlyConfigured, match=word):
        handler(**options)(given)
    assert registered() == before


def test_a_lease_is_kept_in_seconds(handler):
    handler("stripe", "*", lease=timedelta(minutes=2))(function)
    assert matching("stripe", "x")[0].lease == 120


def test_what_is_registered_later_is_found(handler):
    assert not matching("stripe", "x")
    handler("stripe", "x")(function)
    assert matching("stripe", "x")
    unregister(function)
    assert not matching("stripe", "x")


async def coroutine(event):
    await asyncio.sleep(0)
    return event


class Callable:
    async def __call__(self, event):
        return event


@pytest.mark.parametrize("given", [function, coroutine, partial(coroutine), Callable(), lambda event: coroutine(event)])
def test_a_call_gives_what_the_function_gives_in_the_end(given):
    called = Handler(name="h", function=given, sources=frozenset(), patterns=("*",))
    assert called.call(7) == 7


@pytest.mark.parametrize("after", [-1, float("nan"), float("inf"), timedelta(seconds=-1)])
def test_retry_later_refuses_what_is_no_time(after):
    with pytest.raises(ValueError, match="zero or more"):
        RetryLater(after)


def test_handler_signals_have_a_message():
    assert [str(signal) for signal in (RetryLater(), GiveUp(), Skip())] == ["retry later", "gave up", "skipped"]
    assert (RetryLater(timedelta(minutes=1), "why").after, str(GiveUp("why"))) == (60, "why")
