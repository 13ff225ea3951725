"""Kill this very process at a named stage, as the kernel or a power cut would.

The stage comes with the delivery, in the header ``X-Kill-At``, or for a command in the environment. The package
knows nothing of it: its functions are replaced here.
"""

import os
import signal
from contextvars import ContextVar
from functools import wraps
from itertools import count

from asgiref.sync import iscoroutinefunction
from django.utils.decorators import sync_and_async_middleware

from django_webhook_guard import effects, intake, leases, processing, receiving, statements
from django_webhook_guard.dispatchers import waking
from django_webhook_guard.handlers import Handler

_armed = ContextVar("armed", default=None)
# A process is given a stage, and at which time it comes there it dies: "after commit" or "after commit:7".
_of_process, _, _times = os.environ.get("LIVE_KILL", "").partition(":")
_left = count(1 - int(_times or 1))


def reach(stage):
    """Die here, if this stage was asked for."""
    if stage == _armed.get() or (stage == _of_process and next(_left) >= 0):
        os.write(2, f"killed at stage: {stage}\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)


@sync_and_async_middleware
def killer(get_response):
    """Middleware that reads the stage from a delivery; on an event loop it brings no thread in between."""

    async def on_the_loop(request):
        token = _armed.set(request.headers.get("X-Kill-At"))
        try:
            return await get_response(request)
        finally:
            _armed.reset(token)

    def in_a_thread(request):
        token = _armed.set(request.headers.get("X-Kill-At"))
        try:
            return get_response(request)
        finally:
            _armed.reset(token)

    return on_the_loop if iscoroutinefunction(get_response) else in_a_thread


def _before(stage, owner, name):
    function = getattr(owner, name)

    @wraps(function)
    def patched(*args, **kwargs):
        reach(stage)
        return function(*args, **kwargs)

    setattr(owner, name, patched)


def _after(stage, owner, name):
    function = getattr(owner, name)

    @wraps(function)
    def patched(*args, **kwargs):
        result = function(*args, **kwargs)
        reach(stage)
        return result

    setattr(owner, name, patched)


def install():
    """Put the stages in, in the order in which a delivery comes through them.

    More, such as ``inside handler``, are reached by the handlers themselves.
    """
    _before("before wake", waking, "wake")
    _after("after wake", waking, "wake")
    _after("after push", statements, "push")
    _before("before lease", statements, "lease")
    _after("after lease", statements, "lease")
    _after("effect begun", effects, "_begin")
    _before("before result", effects, "_done")
    _after("after result", effects, "_done")
    _before("before insert", statements, "insert")  # where messages are remembered: that row is written
    _after("after insert", statements, "insert")  # there not committed yet
    _after("after claim", intake, "claim")
    _before("before handler", Handler, "call")
    _after("after handler", Handler, "call")
    _after("after checkpoint", statements, "insert_checkpoint")
    _after("before commit", leases, "mark")
    _after("before commit", processing, "_close_with")
    _after("before closing commit", processing, "_close_with")
    _after("after commit", processing, "_run_handler")
    _before("before finish", processing, "_finish")
    _after("after finish", processing, "_finish")
    _before("before telling", processing, "_tell")
    _after("before answer", receiving, "receive")
