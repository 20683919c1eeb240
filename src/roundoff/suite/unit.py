"""A unit of work, done: the public function of its command, and the small document that comes of it."""

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from roundoff.core.document import RunDocument, parse_document, to_json
from roundoff.core.progress import SILENT, Progress
from roundoff.core.untrusted import parse_json
from roundoff.errors import BadInput, RoundoffError, reason
from roundoff.messages.catalogue import bilingual
from roundoff.messages.message import as_message, english, message_content
from roundoff.run.executors import TRIES, DaskWorkers, LocalWorkers, PieceFailed, open_workers, piece_late
from roundoff.suite.fetching import ContentHashes, default_cache
from roundoff.suite.matrix import BOARD, EVALUATE, Suite, SuiteUnit, check_unchanged, placed
from roundoff.suite.store import StoreFailed, SuiteRun, UnitStore

if TYPE_CHECKING:
    from roundoff.core.coverage import MetricScores


_SCHEMA = 1
_OVER_TIME = 75
"""With it a worker ends whose unit took too long."""

Compute = Callable[[SuiteUnit], Mapping[str, Any]]


def compute(unit: SuiteUnit) -> dict[str, Any]:
    """What a unit comes to: the same bytes, whoever computes it.

    Raises:
        RoundoffError: It cannot be done.
    """
    if unit.command == EVALUATE:
        from roundoff.suite.evaluation import evaluate_range

        return {**_head(unit), **evaluate_range(unit)}
    if unit.command == BOARD:
        from roundoff.suite.board import run_on_board

        outcome, taps = run_on_board(unit)
    else:
        outcome, taps = _called(unit), None
    document = outcome.document
    document = replace(document, environment=replace(document.environment, elapsed_s=0.0, finished=""))
    figures = figures_of(document, outcome)
    if taps is not None and not taps.good:
        word = bilingual("suite.word_taps")
        figures |= {"verdict": [word.en, word.zh], "tone": "bad"}
    pairs = zip(unit.places, unit.files, strict=True)
    # The longest first: the name of one may begin with that of another.
    places = dict(sorted(((path, name) for (path, _), (_, name, _) in pairs if path != name), key=_longest))
    return {
        **_head(unit),
        "exit_code": outcome.exit_code,
        "figures": figures,
        "run": _portable(parse_json(to_json(document), unit.label, surrogates=True), places),
    }


def _longest(each: tuple[str, str]) -> int:
    return -len(each[0])


def _portable(content: Any, places: Mapping[str, str]) -> Any:
    """The run without what is another one each time: how long it took, and where its files lie on this machine."""
    if isinstance(content, dict):
        return {key: 0.0 if key == "seconds" else _portable(value, places) for key, value in content.items()}
    if isinstance(content, str):
        for path, shown in places.items():
            content = content.replace(path, shown)
    return [_portable(each, places) for each in content] if isinstance(content, list) else content


def _head(unit: SuiteUnit) -> dict[str, Any]:
    return {
        "schema": _SCHEMA,
        "key": unit.key,
        "command": unit.command,
        "files": [list(each) for each in unit.files],
        "span": unit.span,
    }


def _called(unit: SuiteUnit) -> Any:
    import roundoff.api as functions

    options = dict(unit.options)
    if unit.command == "diagnose" and options.pop("fix", False):
        return functions.diagnose(**options, explore=True).fix()
    placed = [options.pop(name) for name in ("reference", "candidate", "subject") if name in options]
    return getattr(functions, unit.command)(*placed, **options)


def figures_of(document: RunDocument, outcome: Any = None) -> dict[str, Any]:
    """A run in a few numbers: the verdict in both languages, decibels, accuracy.

    Args:
        document: The run.
        outcome: What the function gave, where that tells more: a quantized model has no section in a run.
    """
    from roundoff.api.outcome import PageOutcome
    from roundoff.api.quantization import QuantizationOutcome
    from roundoff.messages.catalogue import Phrase
    from roundoff.pages.blocks import Headline
    from roundoff.report.pages import about_page, section_pages
    from roundoff.report.server import run_figures

    own = outcome.page if isinstance(outcome, PageOutcome) else None
    page = own or next(section_pages(document), about_page(document))
    first = next((block for block in page.blocks if isinstance(block, Headline)), None)
    word = None if first is None else first.text if first.word is None else first.word
    found: dict[str, Any] = {
        "verdict": None if word is None else [word.en, word.zh],
        "tone": "" if first is None else first.tone,
    }
    numbers = run_figures(document)
    for name in ("output_db", "repaired_db", "accuracy", "repaired_accuracy"):
        value = numbers.get(name)
        found[name] = None if isinstance(value, Phrase | str) else value
    if isinstance(outcome, QuantizationOutcome):
        found["output_db"] = outcome.result.best.measured_db
    return found


def run_of(document: Mapping[str, Any], name: str) -> RunDocument | None:
    """The run in the document of a unit; None where it has none."""
    content = document.get("run")
    return None if content is None else parse_document(content, name)


def scores_of(document: Mapping[str, Any], *, which: str = "quantized") -> "MetricScores | None":
    """The metric of the samples of an evaluation."""
    from roundoff.core.coverage import MetricScores

    found = document.get("scores")
    if not isinstance(found, dict):
        return None
    values = tuple(float(each) for each in found[which])
    return MetricScores(str(found["metric"]), bool(found["higher_is_better"]), tuple(found["samples"]), values)


# Done by whoever comes first -------------------------------------------------------------------------------------


def do_unit(
    unit: SuiteUnit, store_url: str, *, limit_s: float | None = None, work: Compute = compute, run: str = ""
) -> dict[str, Any]:
    """Do a unit, unless it is done already, and keep what it comes to; this is what workers call.

    Args:
        unit: What to do.
        store_url: Where what is done is kept.
        limit_s: End this process when it takes longer: for workers that nobody watches.
        work: Does it.
        run: By which this run of the suite is known: what took too long in it is not tried again.

    Returns:
        Its key, whether it was done now, how long it took, and its figures.
    """
    store = _store(store_url)
    began = time.monotonic()
    known = store.get(unit.key)
    if known is not None:
        return {"key": unit.key, "state": "known", "seconds": 0.0, **_told(known)}
    if limit_s is not None:
        before = store.failure(unit.key)
        if before is not None and before.get("run") == run and before.get("kind") == "time":
            raise piece_late(limit_s)
    try:
        with _watched(unit, store, limit_s, run), placed(unit, default_cache(), _HASHES) as there:
            found = work(there)
            check_unchanged(unit, _HASHES)
    except StoreFailed:
        raise
    except RoundoffError as error:
        store.fail(unit.key, failure_of(unit, error))
        raise
    except MemoryError as error:
        raise PieceFailed(str(error) or "MemoryError", fix="", kind="memory") from error
    except Exception as error:
        store.fail(unit.key, failure_of(unit, error))
        raise
    store.put(unit.key, found)
    store.forget_failure(unit.key)
    return {"key": unit.key, "state": "done", "seconds": round(time.monotonic() - began, 4), **_told(found)}


def failure_of(unit: SuiteUnit, error: Exception) -> dict[str, Any]:
    """Why a unit failed, as the store keeps it."""
    found = {"label": unit.label, "kind": str(getattr(error, "kind", type(error).__name__))}
    if isinstance(error, RoundoffError):
        said = {"what": message_content(as_message(error.what)), "fix": message_content(as_message(error.fix))}
        return {**found, "what": str(error.what), "fix": str(error.fix), "said": said}
    return {**found, "what": reason(error), "fix": ""}


def _told(document: Mapping[str, Any]) -> dict[str, Any]:
    return {"exit_code": document.get("exit_code"), "figures": document.get("figures")}


_STORES: dict[str, UnitStore] = {}
_HASHES = ContentHashes()


def _store(url: str) -> UnitStore:
    """The stores of this process stay open."""
    if url not in _STORES:
        _STORES[url] = UnitStore(url)
    return _STORES[url]


@contextlib.contextmanager
def _watched(unit: SuiteUnit, store: UnitStore, limit_s: float | None, run: str) -> Iterator[None]:
    if limit_s is None:
        yield
        return
    seconds = limit_s

    def end() -> None:
        store.fail(unit.key, {**failure_of(unit, piece_late(seconds)), "run": run})
        os._exit(_OVER_TIME)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


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
