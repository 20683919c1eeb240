"""Long work in C++ that Ctrl-C can end: Python looks at signals only between its own instructions."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

__all__ = ["interruptible"]

_T = TypeVar("_T")
_LOOK_UP_S = 0.1
# One is enough, since only the main thread hands work to it; starting one for every run would cost more than it.
_THREAD = ThreadPoolExecutor(1, thread_name_prefix="run")


def interruptible(work: Callable[[], _T], *, stop: Callable[[], None]) -> _T:
    """Do the work in a thread of its own while the main thread waits for it and for signals.

    Args:
        work: What to do. On any thread but the main one, which gets all signals, it is simply done.
        stop: Makes the work end early; called when the wait is interrupted.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    future = _THREAD.submit(work)
    try:
        while not wait([future], timeout=_LOOK_UP_S).done:
            pass
    except BaseException:
        stop()
        wait([future])
        raise
    return future.result()
