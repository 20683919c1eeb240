from collections.abc import Callable

import pytest

from roundoff.runtime import blas_threads as module
from roundoff.runtime.blas_threads import blas_threads


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """A library that uses four threads; what it is set to now."""
    setting = [4]
    monkeypatch.setattr(
        module, "_library", lambda: (lambda: setting[0], lambda count: setting.__setitem__(0, count))
    )
    return lambda: setting[0]


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


def test_an_unknown_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_library", lambda: None)
    with blas_threads(1):
        pass


def test_the_library_that_numpy_brings_is_found() -> None:
    found = module._library()
    if found is None:
        pytest.skip("this numpy has no OpenBLAS of its own")
    before = found[0]()
    with blas_threads(1):
        assert found[0]() == 1
    assert found[0]() == before
