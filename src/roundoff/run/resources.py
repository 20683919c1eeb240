"""How much memory there is for a run when the user does not say."""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

__all__ = [
    "available_memory",
    "blas_threads",
    "memory_limit",
    "run_ahead",
]


# Share of the free memory a run may take; the rest is for everything else on the machine.
_SHARE = 0.8
_FALLBACK_BYTES = 4 * 2**30


def available_memory() -> int:
    """Bytes a run may take: most of what is free on this machine or in this container."""
    free = [value for value in (_free_on_machine(), _free_in_container()) if value is not None]
    return int(_SHARE * min(free)) if free else _FALLBACK_BYTES


def memory_limit(max_memory: int | None, *, share: float = 1.0) -> int:
    """Bytes a run may take: what the user says, else most of what is free.

    Args:
        max_memory: What the user says; None where nothing was said.
        share: The part of it that one of several stores may take.
    """
    return int((available_memory() if max_memory is None else max_memory) * share)


def _free_on_machine() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    try:
        # Systems without /proc do not say what is free; half of what is built in is a safe guess.
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (OSError, ValueError, AttributeError):
        return None


def _free_in_container() -> int | None:
    folder = Path("/sys/fs/cgroup")
    try:
        limit = int((folder / "memory.max").read_text(encoding="ascii"))
        used = int((folder / "memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        return None
    return max(0, limit - used)


# How many threads numpy's matrix products use.
#
# They wait for one another by spinning. Where other work shares the cores (onnxruntime, another sample) a
# product on all cores takes many times as long as one on a single core, so whoever computes many of them chooses.


@dataclass(slots=True)
class _Users:
    """How many are using the setting, and what sets back what was before the first came."""

    count: int = 0
    limit: Any = None


_LOCK = threading.Lock()
_USERS = _Users()


@contextmanager
def blas_threads(count: int) -> Iterator[None]:
    """Let matrix products use so many threads; where no BLAS is known, nothing changes.

    Of several that overlap the first one counts, and the last one to end sets back what was. threadpoolctl's own
    limits each set back what they found, which is wrong once two passes on two threads end in another order.
    """
    with _LOCK:
        if _USERS.count == 0:
            _USERS.limit = _libraries().limit(limits=count)
        _USERS.count += 1
    try:
        yield
    finally:
        with _LOCK:
            _USERS.count -= 1
            if _USERS.count == 0:
                _USERS.limit.restore_original_limits()


@cache  # finding what is loaded takes a millisecond, setting it a few microseconds; numpy's is loaded by now
def _libraries() -> Any:
    """The BLAS libraries of this process, whoever brought them."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


# Running the next samples while the last one is worked on.

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def run_ahead(
    run: Callable[[_Item], _Result], items: Iterable[_Item], *, stop: Callable[[], None], workers: int = 1
) -> Iterator[tuple[_Item, _Result]]:
    """Run something on samples, in other threads; gives results in the order of the samples.

    At most as many samples as there are workers are in memory, beside the one that was given out last.

    Args:
        run: What to do with each; is called from several threads at a time.
        items: The samples, each read when it is its turn.
        stop: Makes runs that are under way end early.
        workers: Samples that run at a time.
    """
    running: deque[tuple[_Item, Future[_Result]]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="sample") as pool:
        try:
            for item in items:
                running.append((item, pool.submit(run, item)))
                if len(running) > workers:
                    yield _first(running)
            while running:
                yield _first(running)
        finally:
            # After an error, Ctrl-C, or when nobody wants more of it; otherwise nothing is left to end.
            for _, future in running:
                future.cancel()
            if running:
                stop()


def _first(running: deque[tuple[_Item, Future[_Result]]]) -> tuple[_Item, _Result]:
    item, future = running[0]
    # It counts as running until it is done: whoever interrupts the wait has to end it.
    result = future.result()
    running.popleft()
    return item, result
