"""Tensors in memory and on disk."""

import errno
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roundoff.errors import BadInput
from roundoff.run.block_chain import TensorStore

LARGE = np.arange(6000, dtype=np.float32).reshape(60, 100)


def test_what_exceeds_the_memory_goes_to_files(tmp_path: Path) -> None:
    with TensorStore(2 * LARGE.nbytes, tmp_path) as store:
        for number in range(5):
            store.put(number, "x", LARGE + number)
        assert store.memory_bytes == 2 * LARGE.nbytes
        assert store.disk_bytes == 3 * LARGE.nbytes
        assert len(list(tmp_path.rglob("*.bin"))) == 3
        for number in range(5):
            np.testing.assert_array_equal(store.get(number, "x"), LARGE + number)
    assert list(tmp_path.iterdir()) == []


def test_what_is_dropped_leaves_memory_and_disk(tmp_path: Path) -> None:
    with TensorStore(LARGE.nbytes, tmp_path) as store:
        for number in range(3):
            store.put(number, "x", LARGE)
        for number in range(2):
            store.drop(number, "x")
        assert (store.memory_bytes, store.disk_bytes) == (0, LARGE.nbytes)
        assert len(list(tmp_path.rglob("*.bin"))) == 1
        assert (1, "x") not in store
        np.testing.assert_array_equal(store.get(2, "x"), LARGE)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int64", "bool", "uint8"])
def test_types_and_layouts_survive_the_disk(dtype: str, tmp_path: Path) -> None:
    values = (np.arange(30_000).reshape(100, 300) % 3).astype(dtype)[:, ::2].T
    with TensorStore(0, tmp_path) as store:
        store.put(0, "x", values)
        found = store.get(0, "x")
        assert store.disk_bytes == values.nbytes
        assert found.dtype == values.dtype
        np.testing.assert_array_equal(found, values)


def test_small_ones_stay_in_memory(tmp_path: Path) -> None:
    with TensorStore(0, tmp_path) as store:
        store.put(0, "scalar", np.float32(1.5) * np.ones(()))
        store.put(0, "empty", np.zeros((0, 3), np.float32))
        assert store.disk_bytes == 0
        assert list(tmp_path.iterdir()) == []
        assert store.get(0, "scalar") == 1.5
        assert store.get(0, "empty").shape == (0, 3)


def test_the_first_counts_and_views_are_copied() -> None:
    with TensorStore(1 << 20) as store:
        values = LARGE.copy()
        store.put(0, "x", values[:10])
        values[:] = 0
        store.put(0, "x", values[:10])
        np.testing.assert_array_equal(store.get(0, "x"), LARGE[:10])
        assert store.get(0, "x").base is None
        assert (0, "x") in store
        assert (1, "x") not in store
        with pytest.raises(KeyError):
            store.get(1, "x")


def test_what_is_not_needed_takes_at_most_half(tmp_path: Path) -> None:
    with TensorStore(2 * LARGE.nbytes, tmp_path) as store:
        for number in range(3):
            store.put(number, "extra", LARGE, needed=False)
        assert (0, "extra") in store
        assert (1, "extra") not in store
        store.put(0, "x", LARGE)
        assert store.disk_bytes == 0


def test_threads_do_not_share_files(tmp_path: Path) -> None:
    with TensorStore(0, tmp_path) as store, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: store.put(number, "x", LARGE + number), range(40)))
        for number in range(40):
            np.testing.assert_array_equal(store.get(number, "x"), LARGE + number)


def test_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(path: Path, **_: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("roundoff.run.block_chain.map_array", no_room)
    with (
        TensorStore(0, tmp_path) as store,
        pytest.raises(BadInput, match=r"24.0 kB of tensors .* No space left") as caught,
    ):
        store.put(0, "x", LARGE)
    assert "TMPDIR" in caught.value.fix
