"""Running the next samples meanwhile."""

import threading
from collections.abc import Iterator

import pytest

from roundoff.run.bench import run_ahead


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_results_come_in_order_and_few_samples_are_read_ahead(workers: int) -> None:
    read: list[int] = []

    def items() -> Iterator[int]:
        for item in range(7):
            read.append(item)
            yield item

    for given, (item, result) in enumerate(
        run_ahead(lambda x: x * x, items(), stop=lambda: None, workers=workers)
    ):
        assert (item, result) == (given, given**2)
        assert len(read) <= given + 1 + workers


def test_an_error_comes_in_its_place_and_stops_the_rest() -> None:
    stopped = threading.Event()

    def run(item: int) -> int:
        if item == 1:
            raise ValueError("one")
        return item

    results = run_ahead(run, range(100), stop=stopped.set)
    assert next(results) == (0, 0)
    with pytest.raises(ValueError, match="one"):
        next(results)
    assert stopped.is_set()


def test_whoever_wants_no_more_stops_the_rest() -> None:
    stopped = threading.Event()
    results = run_ahead(lambda x: x, range(100), stop=stopped.set)
    next(results)
    results.close()
    assert stopped.is_set()


def test_nothing_to_run() -> None:
    assert list(run_ahead(lambda x: x, [], stop=lambda: None)) == []
