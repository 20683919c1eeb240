import threading
from collections.abc import Callable

import numpy as np
import pytest

from roundoff.run import budget as module
from roundoff.run.budget import blas_threads


class _Limit:
    """What threadpoolctl gives for a limit: a thing that sets back what was."""

    def __init__(self, setting: list[int], before: int) -> None:
        self._setting, self._before = setting, before

    def restore_original_limits(self) -> None:
        self._setting[0] = self._before


class _Libraries:
    """Libraries that use four threads."""

    def __init__(self) -> None:
        self.setting = [4]

    def limit(self, *, limits: int) -> _Limit:
        before, self.setting[0] = self.setting[0], limits
        return _Limit(self.setting, before)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Libraries that use four threads; what they are set to now."""
    libraries = _Libraries()
    monkeypatch.setattr(module, "_libraries", lambda: libraries)
    return lambda: libraries.setting[0]


def test_the_number_is_set_and_set_back(threads: Callable[[], int]) -> None:
    with blas_threads(2):
        assert threads() == 2
    assert threads() == 4


def test_it_is_set_back_after_an_error(threads: Callable[[], int]) -> None:
    with pytest.raises(ValueError, match="no"), blas_threads(2):
        raise ValueError("no")
    assert threads() == 4


def test_users_that_overlap_leave_what_was_before_the_first(threads: Callable[[], int]) -> None:
    first, second = blas_threads(1), blas_threads(3)
    first.__enter__()
    second.__enter__()
    assert threads() == 1
    first.__exit__(None, None, None)
    assert threads() == 1
    second.__exit__(None, None, None)
    assert threads() == 4


def test_a_limit_that_cannot_be_set_leaves_the_next_one_working(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(_Libraries):
        def limit(self, *, limits: int) -> _Limit:
            raise OSError(limits)

    monkeypatch.setattr(module, "_libraries", Broken)
    with pytest.raises(OSError, match="2"), blas_threads(2):
        pass
    libraries = _Libraries()
    monkeypatch.setattr(module, "_libraries", lambda: libraries)
    with blas_threads(2):
        assert libraries.setting == [2]
    assert libraries.setting == [4]


def test_a_machine_without_such_a_library_is_left_alone() -> None:
    from threadpoolctl import ThreadpoolController

    nothing = ThreadpoolController().select(prefix="no such library")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_libraries", lambda: nothing)
        with blas_threads(1):
            assert nothing.info() == []


def test_the_library_that_numpy_brings_is_found() -> None:
    found = module._libraries()
    if not found.info():
        pytest.skip("this numpy has no BLAS that threadpoolctl knows")
    before = [library["num_threads"] for library in found.info()]
    with blas_threads(1):
        assert {library["num_threads"] for library in found.info()} == {1}
        assert np.ones((8, 8)) @ np.ones(8) == pytest.approx(8)
    assert [library["num_threads"] for library in found.info()] == before


def test_passes_on_several_threads_leave_what_was(threads: Callable[[], int]) -> None:
    together = threading.Barrier(4)

    def work() -> None:
        for _ in range(50):
            with blas_threads(1):
                together.wait(timeout=60)
                assert threads() == 1

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert threads() == 4
