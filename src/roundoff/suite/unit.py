"""A unit of work, done: the public function of its command, and the small document that comes of it."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roundoff.core.document import RunDocument, parse_document, to_json
from roundoff.core.untrusted import parse_json
from roundoff.errors import RoundoffError, reason
from roundoff.messages.catalogue import bilingual
from roundoff.messages.message import as_message, message_content
from roundoff.run.executors import PieceFailed, piece_late
from roundoff.suite.content import ContentHashes
from roundoff.suite.fetching import default_cache
from roundoff.suite.matrix import BOARD, EVALUATE, SuiteUnit, check_unchanged, placed
from roundoff.suite.store import StoreFailed, UnitStore

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
    if "evaluator" in options:
        options["evaluator"] = known_evaluator(options["evaluator"])
    if unit.command == "diagnose" and options.pop("fix", False):
        return functions.diagnose(**options, explore=True).fix()
    placed = [options.pop(name) for name in ("reference", "candidate", "subject") if name in options]
    return getattr(functions, unit.command)(*placed, **options)


def known_evaluator(given: Any) -> Any:
    """A file, or one of the evaluators that ship."""
    from roundoff.measure.tokens import TOKEN_EVALUATORS, token_evaluators

    return token_evaluators()[given] if given in TOKEN_EVALUATORS and not Path(given).exists() else given


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
