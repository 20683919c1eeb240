"""The store: put if absent, whole or made again, forgotten by age and by suite; in folders and at URLs."""

import time
from pathlib import Path

import pytest

from roundoff.errors import BadInput
from roundoff.suite.store import UnitStore, sealed, seconds_of

KEYS = ["a" * 64, "b" * 64, "c" * 64]


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> UnitStore:
    if request.param == "folder":
        return UnitStore(str(tmp_path / "store"))
    pytest.importorskip("fsspec")
    return UnitStore(f"memory://{tmp_path.name}-{time.time_ns()}")


def test_what_is_there_stays_and_what_is_damaged_is_made_again(store: UnitStore) -> None:
    key = KEYS[0]
    assert store.get(key) is None
    assert store.put(key, {"x": 1.5, "y": "\u4e2d"})
    assert not store.put(key, {"x": 2})
    assert store.get(key) == {"x": 1.5, "y": "\u4e2d"}
    whole = store.raw(key) or b""
    assert whole == sealed({"x": 1.5, "y": "\u4e2d"})
    for damaged in (b"", whole[:-1], whole[:70], whole.replace(b"1.5", b"1.6"), b"\xff" * 100, whole + b" "):
        store._objects.replace(f"units/{key[:2]}/{key}.json", damaged)
        assert store.get(key) is None, damaged
    assert store.put(key, {"x": 2})
    assert store.get(key) == {"x": 2}


def test_runs_are_remembered_and_units_go_with_the_last_run_that_asks_for_them(store: UnitStore) -> None:
    for key in KEYS:
        store.put(key, {"key": key})
    first = store.add_run("zoo", [{"label": "a", "key": KEYS[0]}, {"label": "b", "key": KEYS[1]}])
    store.add_run("other", [{"label": "b", "key": KEYS[1]}])
    assert [run.suite for run in store.runs()] == ["zoo", "other"]
    assert store.runs("zoo")[0].when == first
    assert abs(seconds_of(first) - time.time()) < 60
    assert store.collect(older_s=60) == ([], [])
    told = store.collect(suite="zoo", dry=True)
    assert told == store.collect(suite="zoo")
    # The second is asked for by another suite; the third by nobody yet: it may belong to a run under way.
    assert told[1] == [KEYS[0]]
    assert sorted(key for key, _ in store.unit_keys()) == KEYS[1:]
    later = time.time() + 3600
    assert set(store.collect(older_s=60, now=lambda: later)[1]) == set(KEYS[1:])
    assert list(store.unit_keys()) == []
    assert store.runs() == []


def test_shares_of_jobs_are_one_run_of_the_suite(store: UnitStore) -> None:
    def share(**keys: str) -> str:
        return store.add_run("zoo", [{"label": label, "key": key} for label, key in keys.items()], whole=False)

    def states() -> list[dict[str, str]]:
        return [{str(unit["label"]): str(unit["key"]) for unit in run.units} for run in store.history("zoo")]

    share(a="1", b="1")
    last = share(c="1")
    share(a="1")  # a job that was started again
    assert states() == [{"a": "1", "b": "1", "c": "1"}]
    assert store.history("zoo")[0].when > last
    # The next night: b changed, and the first share does not hold it.
    share(a="1", c="1")
    share(b="2")
    assert states() == [{"a": "1", "b": "1", "c": "1"}, {"a": "1", "b": "2", "c": "1"}]
    # A run of all is what it is, also where the suite became smaller.
    store.add_run("zoo", [{"label": "b", "key": "2"}])
    assert states()[2:] == [{"b": "2"}]
    assert len(store.runs("zoo")) == 6


def test_failures_are_no_results(store: UnitStore) -> None:
    store.fail(KEYS[0], {"what": "no memory"})
    assert store.get(KEYS[0]) is None
    assert store.failure(KEYS[0]) == {"what": "no memory"}
    store.forget_failure(KEYS[0])
    store.forget_failure(KEYS[0])
    assert store.failure(KEYS[0]) is None


def test_what_killed_writers_left_goes(tmp_path: Path) -> None:
    store = UnitStore(str(tmp_path))
    store.put(KEYS[0], {})
    left = tmp_path / "units" / "aa" / ".0123abcd.partial"
    left.write_bytes(b"half")
    assert [key for key, _ in store.unit_keys()] == [KEYS[0]]
    assert not left.exists()


def test_a_store_that_cannot_be_had_is_said(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(BadInput, match="cannot be opened"):
        UnitStore("nonsense://somewhere")
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="is a file, not a folder") as refused:
        UnitStore(str(tmp_path / "file"))
    assert "--store" in refused.value.fix
    with pytest.raises(BadInput, match="could not be written"):
        UnitStore(str(tmp_path / "file" / "below")).begin()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
