"""What a command says of a case, and how right it is."""

import contextlib
import io
import itertools
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.planted.case import PlantedCase, Truth
from benchmarks.planted.io_pairs import PairCase
from benchmarks.planted.repairs import RepairCase
from benchmarks.planted.variants import output_db

# A culprit counts as found when it is among this many.
_TOP = 3
BROKEN_DB = 14.0
"""Outputs this bad are beyond what any comparison may let pass: cosine 0.98."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How a command did on one case.

    Attributes:
        case: Its name.
        fault: What was planted.
        family: In what kind of network.
        clean: Whether nothing was.
        found: For each fault whether a culprit of it is among the first findings.
        right: For each fault whether the cause is right.
        said: For each fault the cause that was said; empty when it was not found.
        expected: For each fault the cause that is best said.
        accused: On a clean case, whether anybody was accused.
        fixes: Claims that come with numbers, and how many of them show an improvement.
        verdict: The kind of verdict.
        seconds: How long it took.
        error: What went wrong; empty when nothing did.
        style: How the tensors of a dump are called; empty without one.
        way: How the dump came.
        output_db: Signal to noise at the worst output of a device; None without one.
        good: Commands with a good verdict although the device is broken.
        claim: Figure that a repair claims, and the same on other samples; empty where nothing was claimed.
        unit: Unit of these.
        slack: What the second may be less.
        exact: Whether it may not be more either.
    """

    case: str
    fault: str
    family: str
    clean: bool
    found: tuple[bool, ...] = ()
    right: tuple[bool, ...] = ()
    said: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()
    accused: bool = False
    fixes: tuple[int, int] = (0, 0)
    verdict: str = ""
    seconds: float = 0.0
    error: str = ""
    style: str = ""
    way: str = ""
    output_db: float | None = None
    good: tuple[str, ...] = ()
    claim: tuple[float, ...] = ()
    unit: str = ""
    slack: float = 0.0
    exact: bool = False

    @property
    def broken(self) -> bool:
        """Whether it is a device whose outputs are bad."""
        return not self.clean and self.output_db is not None and self.output_db <= BROKEN_DB

    @property
    def holds(self) -> bool:
        """Whether what a repair claims is true of other samples."""
        if len(self.claim) < 2:
            return False
        more = self.claim[1] - self.claim[0]
        return more >= -self.slack and not (self.exact and more > self.slack)


def ask(case: PlantedCase | PairCase | RepairCase, *, keep: Path | None = None) -> Answer:
    """Write the files of a case, run roundoff on them in this process, and judge what it says."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = (keep or Path(scratch)) / case.name.replace("/", "_")
        if isinstance(case, RepairCase):
            return _ask_repair(case, folder)
        arguments = case.write(folder)
        start = time.perf_counter()
        if isinstance(case, PairCase):
            document, error = _document(["check-io", *arguments, "--json"])
            return judge_pair(case, document, seconds=time.perf_counter() - start, error=error)
        document, error = _document(["diagnose", *arguments, "--json"])
        elapsed = time.perf_counter() - start
        diagnosis = document.get("diagnosis", document)
        if case.dumps is None:
            return judge(case, diagnosis, seconds=elapsed, error=error)
        words = ["compare", arguments[0], str(folder / "dumps"), "--data", arguments[2], "--json"]
        comparison = _document(words)[0].get("comparison")
        return judge(case, diagnosis, seconds=elapsed, error=error, comparison=comparison)


def _document(words: Sequence[str]) -> tuple[dict[str, Any], str]:
    """The run document that a command line prints, and what went wrong."""
    from roundoff.cli import main

    out, told = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(told):
        try:
            main(list(words))
        except SystemExit as stop:
            if stop.code not in (0, 1):
                return {}, told.getvalue().strip()[-300:] or f"exit code {stop.code}"
        except Exception as failure:  # noqa: BLE001 - a crash is a result of the benchmark, not its end
            return {}, f"{type(failure).__name__}: {failure}"
    try:
        document: dict[str, Any] = json.loads(out.getvalue())
    except ValueError:
        return {}, told.getvalue().strip()[-300:] or "no document"
    return document, ""


def _ask_repair(case: RepairCase, folder: Path) -> Answer:
    words = case.write(folder)
    start = time.perf_counter()
    document, error = _document(words)
    elapsed = time.perf_counter() - start
    claim = case.claim(document)
    verdict = document.get("tuning", {}).get("verdict", "") or document.get("diagnosis", {}).get("kind", "")
    answer = Answer(case.name, case.fault, case.family, clean=False, seconds=elapsed, error=error, verdict=verdict)
    if claim is None:
        return answer
    try:
        found = case.on_others(folder, claim)
    except Exception as failure:  # noqa: BLE001 - a file that cannot be run is a result, too
        return replace(answer, error=f"{type(failure).__name__}: {failure}")
    if found is None:
        return answer
    return replace(answer, claim=(claim.value, found), unit=claim.unit, slack=claim.slack, exact=claim.exact)


def judge_pair(case: PairCase, document: Mapping[str, Any], *, seconds: float = 0.0, error: str = "") -> Answer:
    """Compare what check-io says, as JSON, with the truth: a change may be named where there is one."""
    changes: list[Any] = []
    told = ""
    for section in document.values():
        for stage in section.get("stages", []) if isinstance(section, dict) else []:
            changes += (stage.get("explanation") or {}).get("changes", [])
            # What cannot be told apart from what is named is said with it.
            told += json.dumps(stage.get("explanation"))
    kinds = [each["kind"] for each in changes]
    base: dict[str, Any] = {"case": case.name, "fault": case.fault, "family": case.family, "error": error}
    allowed = {*case.true, *itertools.chain(*case.kinds)}
    wrong = tuple(kind for kind in kinds if kind not in allowed)
    if case.is_clean:
        return Answer(**base, clean=True, accused=bool(wrong or error), said=wrong[:1], seconds=seconds)
    named = all(any(kind in kinds for kind in each) for each in case.kinds)
    right = named and not wrong and all(word in told for word in case.words)
    said = (next(iter(wrong or kinds), ""),)
    return Answer(
        **base,
        clean=False,
        found=(bool(kinds),),
        right=(right,),
        said=said,
        expected=case.kinds[0][:1],
        seconds=seconds,
    )


def judge(
    case: PlantedCase,
    diagnosis: Mapping[str, Any],
    *,
    seconds: float = 0.0,
    error: str = "",
    comparison: Mapping[str, Any] | None = None,
) -> Answer:
    """Compare a diagnosis, and perhaps a comparison with the dump, as JSON, with the truth."""
    accused = [f for f in diagnosis.get("findings", []) if f["proven"] and f["cause"] != "metric-artefact"]
    base: dict[str, Any] = {
        "case": case.name,
        "fault": case.fault,
        "family": case.family,
        "seconds": seconds,
        "error": error,
    }
    verdict = diagnosis.get("kind", "")
    if case.dumps is not None:
        base |= {"style": case.dumps.style, "way": case.dumps.way, "output_db": output_db(case)}
    fixes = _claims(accused)
    if case.is_clean:
        wrong = bool(accused) or verdict in ("culprits", "distributed") or bool(error)
        said = tuple(f["cause"] for f in accused[:1])
        return Answer(**base, clean=True, accused=wrong, said=said, fixes=fixes, verdict=verdict)
    truths = [each for each in case.truths if each.kind != "somewhere"]
    judged = [_judge_one(truth, accused, verdict, many=len(case.truths)) for truth in truths]
    found, right, said = zip(*judged, strict=True) if judged else ((), (), ())
    answer = Answer(
        **base,
        clean=False,
        found=found,
        right=right,
        said=said,
        expected=tuple(truth.causes[0] for truth in truths),
        fixes=fixes,
        verdict=verdict,
    )
    if not answer.broken:
        return answer
    good = [name for name, told in (("diagnose", verdict == "healthy"), ("compare", _passes(comparison))) if told]
    return replace(answer, good=tuple(good))


def _passes(comparison: Mapping[str, Any] | None) -> bool:
    """Whether a comparison says PASS: nothing fails, and every output was judged."""
    if comparison is None:
        return False
    missing = (comparison.get("outputs") or {}).get("not_judged")
    return comparison["verdict"]["failed"] == 0 and comparison["verdict"]["compared"] > 0 and not missing


def _judge_one(truth: Truth, accused: list[Any], verdict: str, *, many: int) -> tuple[bool, bool, str]:
    if truth.kind == "distributed":
        causes = {f["cause"] for f in accused}
        said = verdict if verdict == "distributed" else next(iter(causes), "")
        return verdict == "distributed", verdict == "distributed" or not causes.isdisjoint(truth.causes), said
    for finding in accused[: max(_TOP, many)]:
        named = {*finding["nodes"], *finding["tensors"]}
        if not truth.nodes or named & truth.nodes:
            return True, finding["cause"] in truth.causes, finding["cause"]
    return False, False, ""


def _claims(accused: list[Any]) -> tuple[int, int]:
    """How many findings claim to be proven, and how many show by their first number that it got better."""
    better = 0
    for finding in accused:
        measures = finding["measures"]
        if measures:
            first = measures[0]
            gain = float(first["after"]) - float(first["before"])
            better += gain > 0 if first["higher_is_better"] else gain < 0
    return len(accused), better
