"""A suite, run: units that are not done go to workers, a few at a time, until all are done or given up."""

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from roundoff.core.progress import SILENT, Progress
from roundoff.errors import BadInput
from roundoff.messages.message import english
from roundoff.run.executors import TRIES, DaskWorkers, LocalWorkers, PieceFailed, open_workers
from roundoff.suite.matrix import Suite, SuiteUnit
from roundoff.suite.store import SuiteRun, UnitStore
from roundoff.suite.unit import Compute, compute, do_unit, failure_of

# So many units per worker are under way or wait beside it: enough that none idles.
_AHEAD = 3
# A scheduler that went away is looked for so often, with so long between.
_RECONNECTS, _PAUSE_S = 30, 1.0


@dataclass(frozen=True, slots=True)
class UnitState:
    """What became of a unit.

    Attributes:
        unit: Which.
        state: ``done`` now, ``known`` from before, ``failed``, or ``waiting``.
        seconds: How long it took, when it was done.
        exit_code: Of its command; None where there is none.
        figures: Its verdict and numbers.
        problem: Why it failed; empty otherwise.
    """

    unit: SuiteUnit
    state: str
    seconds: float = 0.0
    exit_code: int | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)
    problem: Mapping[str, Any] = field(default_factory=dict)

    def content(self) -> dict[str, Any]:
        """As a run of the suite keeps it."""
        unit = self.unit
        return {
            "label": unit.label,
            "model": unit.model,
            "target": unit.target,
            "command": unit.command,
            "key": unit.key,
            "state": self.state,
            "seconds": self.seconds,
            "exit_code": self.exit_code,
            "figures": dict(self.figures),
            **({"problem": dict(self.problem)} if self.problem else {}),
        }


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Who works, and how long.

    Attributes:
        workers: Processes of this machine; as many as cores by default.
        dask: Address of a scheduler, or ``local``; None for processes.
        tries: So often a unit may lose its worker.
        limit_s: Seconds that a unit may take.
    """

    workers: int | None = None
    dask: str | None = None
    tries: int = TRIES
    limit_s: float | None = None


def part_of(units: Sequence[SuiteUnit], part: str | None) -> tuple[SuiteUnit, ...]:
    """Every n-th unit, from the i-th on: ``2/8``; all without a part.

    Raises:
        BadInput: It is no part.
    """
    if part is None:
        return tuple(units)
    first, _, of = part.partition("/")
    if not (first.isdigit() and of.isdigit() and 1 <= int(first) <= int(of)):
        what = english("--part {part!r} is no part.", part=part)
        raise BadInput(what, fix=english("write it as 1/8, 2/8 up to 8/8"))
    return tuple(units[int(first) - 1 :: int(of)])


def look_up(units: Iterable[SuiteUnit], store: UnitStore) -> Iterator[UnitState]:
    """What is known of units, without doing any."""

    def known(unit: SuiteUnit) -> UnitState:
        found = store.get(unit.key)
        if found is not None:
            return UnitState(unit, "known", 0.0, found.get("exit_code"), found.get("figures") or {})
        problem = store.failure(unit.key)
        return UnitState(unit, "waiting" if problem is None else "failed", problem=problem or {})

    yield from store.each(known, units)


def run_units(
    units: Sequence[SuiteUnit],
    store: UnitStore,
    limits: RunLimits = RunLimits(),
    *,
    progress: Progress = SILENT,
    work: Compute = compute,
    on_state: Callable[[UnitState], None] | None = None,
) -> tuple[UnitState, ...]:
    """Do what is not done.

    Args:
        units: All of them.
        store: Where what is done is kept.
        limits: Who works, and how long.
        progress: Told how far it is.
        work: Does a unit.
        on_state: Told of each unit that was done or failed now.

    Returns:
        What became of each, in their order.

    Raises:
        BadInput: There is no such cluster.
    """
    found = {each.unit.label: each for each in look_up(units, store)}
    waiting = [unit for unit in units if found[unit.label].state != "known"]
    # Units of other labels may be the same work.
    first = {unit.key: unit for unit in reversed(waiting)}
    progress.start("units", len(units))
    try:
        progress.advance(len(units) - len(waiting))
        if waiting:
            work_through = _WorkThrough(store, limits, work)
            for state in work_through.run(list(reversed(first.values()))):
                found[state.unit.label] = state
                progress.advance()
                if on_state is not None:
                    on_state(state)
    finally:
        progress.finish()
    states = {each.unit.key: each for each in found.values() if each.state != "waiting"}
    return tuple(_same(unit, states[unit.key]) if unit.key in states else found[unit.label] for unit in units)


def _same(unit: SuiteUnit, state: UnitState) -> UnitState:
    return UnitState(unit, state.state, state.seconds, state.exit_code, state.figures, state.problem)


class _WorkThrough:
    """Units on their way through workers."""

    def __init__(self, store: UnitStore, limits: RunLimits, work: Compute) -> None:
        self._store, self._limits, self._work = store, limits, work
        self._run = f"{os.getpid()}-{time.time_ns()}"

    def run(self, units: Sequence[SuiteUnit]) -> Iterator[UnitState]:
        left = deque(units)
        connected, lost = False, 0
        while left:
            try:
                with open_workers(
                    self._limits.workers,
                    dask=self._limits.dask,
                    tries=self._limits.tries,
                    limit_s=self._limits.limit_s,
                ) as workers:
                    connected, lost = True, 0
                    yield from self._through(workers, left)
            except ConnectionError:
                # The scheduler is gone: what is done is in the store, the rest is asked for again.
                time.sleep(_PAUSE_S)
            except PieceFailed as error:
                lost += 1
                if error.kind != "address" or not connected or lost > _RECONNECTS:
                    raise
                time.sleep(_PAUSE_S)

    def _through(self, workers: LocalWorkers | DaskWorkers, left: deque[SuiteUnit]) -> Iterator[UnitState]:
        running: dict[Future[Any], SuiteUnit] = {}
        remote = isinstance(workers, DaskWorkers)
        most = _AHEAD * workers.workers
        with ExitStack() as boards:
            hands: dict[str, LocalWorkers] = {}
            try:
                while left or running:
                    while left and len(running) < most:
                        unit = left.popleft()
                        running[self._submit(workers, unit, hands, boards, remote=remote)] = unit
                    done, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        state = self._state(running[future], future)
                        del running[future]
                        yield state
            except ConnectionError:
                left.extendleft(reversed(running.values()))
                raise

    def _submit(
        self,
        workers: LocalWorkers | DaskWorkers,
        unit: SuiteUnit,
        hands: dict[str, LocalWorkers],
        boards: ExitStack,
        *,
        remote: bool,
    ) -> "Future[Any]":
        url, work = self._store.url, self._work
        if unit.board and not remote:
            # A board is a worker with a capacity of one: it has a process of its own.
            if unit.board not in hands:
                limits = {"tries": self._limits.tries, "limit_s": self._limits.limit_s}
                hands[unit.board] = boards.enter_context(LocalWorkers(1, **limits))  # type: ignore[arg-type]
            return hands[unit.board].submit(do_unit, unit, url, work=work)
        if not remote:
            return workers.submit(do_unit, unit, url, work=work)
        needs = {"resources": {f"board-{unit.board}": 1}} if unit.board else {}
        return workers.submit(do_unit, unit, url, work=work, limit_s=self._limits.limit_s, run=self._run, **needs)

    def _state(self, unit: SuiteUnit, future: "Future[Any]") -> UnitState:
        try:
            told = future.result()
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001  whatever it is, all others go on
            problem = failure_of(unit, error)
            if isinstance(error, PieceFailed):  # else the worker has said so itself
                noted = self._store.failure(unit.key) or {}
                problem = noted if noted.get("run") == self._run else problem
                self._store.fail(unit.key, problem)
            return UnitState(unit, "failed", problem=problem)
        return UnitState(unit, told["state"], told["seconds"], told["exit_code"], told["figures"] or {})


# What it will take -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SuiteEstimate:
    """What a suite will take.

    Attributes:
        seconds: Work of all units that are not done, one after the other; None where no unit ever ran.
        known: How many of them ran before, or others of their command and model.
        units: How many are not done.
    """

    seconds: float | None
    known: int
    units: int


def estimate(states: Sequence[UnitState], runs: Sequence[SuiteRun]) -> SuiteEstimate:
    """What units that are not done will take, by what others took: the same, of the model, of the command."""
    took: dict[tuple[str, ...], list[float]] = {}
    for run in runs:
        for each in run.units:
            seconds = each.get("seconds")
            if isinstance(seconds, int | float) and seconds > 0:
                names = (str(each.get("label")), str(each.get("command")), str(each.get("model")))
                for key in ((names[0],), names[1:], (names[1], "")):
                    took.setdefault(key, []).append(float(seconds))
    waiting = [each.unit for each in states if each.state not in ("known", "done")]
    total, known = 0.0, 0
    for unit in waiting:
        keys = ((unit.label,), (unit.command, unit.model), (unit.command, ""))
        found = next((took[key] for key in keys if key in took), None)
        if found is not None:
            known += 1
            total += sum(found) / len(found)
    if not known:
        return SuiteEstimate(0.0 if not waiting else None, 0, len(waiting))
    return SuiteEstimate(total * len(waiting) / known, known, len(waiting))


def kept_run(suite: Suite, store: UnitStore, states: Sequence[UnitState], *, whole: bool) -> str:
    """Remember a run of a suite, or of a share of it; gives when it was."""
    return store.add_run(suite.name, [each.content() for each in states], whole=whole)
