"""Running the next samples while the last one is worked on."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["run_ahead"]

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
