"""Workers: processes that may die, units that kill them, time limits, stores that race; and clusters."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from roundoff.errors import BadInput
from roundoff.run import executors
from roundoff.run.executors import DaskWorkers, LocalWorkers, PieceFailed
from roundoff.suite.store import UnitStore
from roundoff.suite.unit import RunLimits, run_units
from tests.suite import pieces

ROOT = Path(__file__).resolve().parents[2]


def test_a_worker_that_dies_is_replaced_and_a_piece_that_kills_is_given_up(tmp_path: Path) -> None:
    with LocalWorkers(1, tries=3, limit_s=60) as workers:
        assert workers.submit(pieces.double, 4).result() == 8
        with pytest.raises(ValueError, match="no"):
            workers.submit(pieces.refuse).result()
        first = workers.submit(pieces.process).result()
        with pytest.raises(BadInput, match="'x' has 3 axes") as said:
            workers.submit(pieces.misfit).result()
        assert said.value.fix == "transpose it"
        assert workers.submit(pieces.process).result() == first
        os.kill(first, signal.SIGKILL)
        assert workers.submit(pieces.leave_once, str(tmp_path / "mark")).result() == "second"
        assert workers.submit(pieces.process).result() != first
        with pytest.raises(PieceFailed, match="ended 3 times") as killed:
            workers.submit(pieces.leave).result()
        assert killed.value.kind == "killed"
        assert workers.submit(pieces.double, 5).result() == 10


def test_a_piece_that_lost_its_worker_comes_after_the_others(tmp_path: Path) -> None:
    """Whoever ends workers at random then meets others, and none three times in a row."""
    ended: list[int] = []

    def note(place: int, _: Any) -> None:
        ended.append(place)

    with LocalWorkers(1, tries=2) as workers:
        unlucky = workers.submit(pieces.leave_once, str(tmp_path / "mark"))
        others = [workers.submit(pieces.double, number) for number in range(3)]
        for place, future in enumerate([unlucky, *others]):
            future.add_done_callback(partial(note, place))
    assert unlucky.result() == "second"
    assert ended == [1, 2, 3, 0]


def test_a_worker_that_is_ended_before_it_begins_costs_no_try(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unlucky:
        """A worker that is ended as it starts, so many times."""

        left = 4
        alive = True

        def __init__(self) -> None:
            type(self).left -= 1
            if type(self).left >= 0:
                raise BrokenExecutor

        def call(self, piece: Any, _: float | None) -> Any:
            return piece.function(*piece.args)

        def kill(self) -> None: ...

        close = kill

    monkeypatch.setattr(executors, "_Worker", Unlucky)
    with LocalWorkers(1, tries=1) as workers:
        assert workers.submit(pieces.double, 4).result() == 8
    Unlucky.left = 99
    with LocalWorkers(1, tries=1) as workers, pytest.raises(PieceFailed, match="before they begin") as failed:
        workers.submit(pieces.double, 4).result()
    assert failed.value.kind == "start"


def test_a_piece_that_takes_too_long_is_ended_and_not_tried_again() -> None:
    with LocalWorkers(1, limit_s=1.5) as workers:
        workers.submit(pieces.double, 1).result()
        began = time.monotonic()
        with pytest.raises(PieceFailed, match="longer") as late:
            workers.submit(pieces.sleep, 30).result()
        assert late.value.kind == "time"
        assert time.monotonic() - began < 10


def test_a_deadly_unit_is_reported_and_all_others_are_done(tmp_path: Path) -> None:
    store = UnitStore(str(tmp_path / "store"))
    units = pieces.units(6)
    states = run_units(units, store, RunLimits(workers=1, tries=2), work=pieces.deadly)
    assert [each.state for each in states] == ["done", "done", "done", "failed", "done", "done"]
    assert states[3].problem["kind"] == "killed"
    failure = store.failure(units[3].key)
    assert failure is not None
    assert "ended 2 times" in failure["what"]
    # A later run tries it again, and only it.
    states = run_units(units, store, RunLimits(workers=1), work=pieces.tiny)
    assert [each.state for each in states] == ["known"] * 3 + ["done"] + ["known"] * 2
    assert store.failure(units[3].key) is None


RACE = """
import sys
from tests.suite import pieces
from roundoff.suite.store import UnitStore
from roundoff.suite.unit import do_unit
if __name__ == "__main__":
    for unit in pieces.units(30):
        do_unit(unit, sys.argv[1], work=pieces.tiny)
"""


def test_processes_race_on_one_store(tmp_path: Path) -> None:
    """Nobody coordinates them: each object is there once, whole, and nothing is left over."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    words = [sys.executable, "-c", RACE, str(tmp_path / "store")]
    racing = [subprocess.Popen(words, env=environment) for _ in range(3)]
    assert [each.wait() for each in racing] == [0, 0, 0]
    store = UnitStore(str(tmp_path / "store"))
    assert all(store.get(unit.key) == {**pieces.tiny(unit)} for unit in pieces.units(30))
    files = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert len(files) == 30


# A cluster, where dask.distributed is installed: `make test-suite`.


def test_a_cluster_gives_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="the extra [dask] is not installed")
    units = pieces.units(5)
    for name, limits in (("processes", RunLimits(workers=1)), ("cluster", RunLimits(workers=1, dask="local"))):
        states = run_units(units, UnitStore(str(tmp_path / name)), limits, work=pieces.tiny)
        assert {each.state for each in states} == {"done"}
    for unit in units:
        found = [UnitStore(str(tmp_path / name)).raw(unit.key) for name in ("processes", "cluster")]
        assert found[0] == found[1] is not None


def test_a_cluster_gives_up_what_kills_and_what_takes_too_long_and_nothing_else(tmp_path: Path) -> None:
    """Dask suspects all that a worker had when it ended; the innocent are done all the same."""
    pytest.importorskip("distributed", reason="the extra [dask] is not installed")
    units = pieces.units(9)
    store = UnitStore(str(tmp_path / "deadly"))
    states = run_units(units, store, RunLimits(workers=2, dask="local", tries=2), work=pieces.deadly)
    # What a worker had done and not told yet is found in the store.
    assert [each.state in ("done", "known") for each in states] == [True] * 3 + [False] + [True] * 5
    assert states[3].problem["kind"] == "killed"
    assert "ended 2 times" in states[3].problem["what"]
    units = pieces.units(4, seconds=0.01)
    units[1] = replace(units[1], options={"seconds": 60})
    store = UnitStore(str(tmp_path / "late"))
    began = time.monotonic()
    states = run_units(units, store, RunLimits(workers=1, dask="local", limit_s=2), work=pieces.slow)
    assert [each.state for each in states] == ["done", "failed", "done", "done"]
    assert states[1].problem["kind"] == "time"
    assert time.monotonic() - began < 45


def test_pieces_of_a_cluster_fail_once_or_are_tried_again(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="the extra [dask] is not installed")
    with DaskWorkers("local", workers=1, tries=2) as workers:
        with pytest.raises(BadInput, match="3 axes") as said:
            workers.submit(pieces.misfit, str(tmp_path / "begun")).result()
        assert said.value.fix == "transpose it"
        assert (tmp_path / "begun").read_text() == "."
        with pytest.raises(OSError, match="network"):
            workers.submit(pieces.disturbed, str(tmp_path / "tried")).result()
        assert (tmp_path / "tried").read_text() == ".."
        # What several pieces share outlives the worker that has it.
        shared = workers.share(21)
        assert workers.submit(pieces.double, shared).result() == 42
        assert workers.submit(pieces.leave_once, str(tmp_path / "mark")).result() == "second"
        assert workers.submit(pieces.double, shared).result() == 42


def test_without_dask_a_cluster_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from roundoff.errors import MissingExtra
    from roundoff.run.executors import open_workers

    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtra, match="distributed") as missing, open_workers(dask="tcp://nowhere:1"):
        pass
    assert "roundoff[dask]" in missing.value.fix
