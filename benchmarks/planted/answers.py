"""What a diagnosis says of a case, and how right it is."""

import contextlib
import io
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.planted.case import PlantedCase, Truth

__all__ = ["Answer", "ask", "judge"]

# A culprit counts as found when it is among this many.
_TOP = 3


@dataclass(frozen=True, slots=True)
class Answer:
    """How a diagnosis did on one case.

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


def ask(case: PlantedCase, *, keep: Path | None = None) -> Answer:
    """Write the files of a case, run `roundoff diagnose` on them in this process, and judge what it says."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = (keep or Path(scratch)) / case.name.replace("/", "_")
        arguments = case.write(folder)
        start = time.perf_counter()
        document, error = _diagnose(arguments)
        elapsed = time.perf_counter() - start
    return judge(case, document, seconds=elapsed, error=error)


def _diagnose(arguments: Sequence[str]) -> tuple[dict[str, Any], str]:
    from roundoff.cli import main

    out, told = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(told):
        try:
            main(["diagnose", *arguments, "--json"])
        except SystemExit as stop:
            if stop.code not in (0, 1):
                return {}, told.getvalue().strip()[-300:]
        except Exception as failure:  # noqa: BLE001 - a crash is a result of the benchmark, not its end
            return {}, f"{type(failure).__name__}: {failure}"
    try:
        document: dict[str, Any] = json.loads(out.getvalue())
    except ValueError:
        return {}, told.getvalue().strip()[-300:] or "no document"
    return document.get("diagnosis", document), ""


def judge(case: PlantedCase, diagnosis: dict[str, Any], *, seconds: float = 0.0, error: str = "") -> Answer:
    """Compare a diagnosis, as JSON, with the truth."""
    accused = [f for f in diagnosis.get("findings", []) if f["proven"] and f["cause"] != "metric-artefact"]
    base: dict[str, Any] = {
        "case": case.name,
        "fault": case.fault,
        "family": case.family,
        "seconds": seconds,
        "error": error,
    }
    verdict = diagnosis.get("kind", "")
    fixes = _claims(accused)
    if case.is_clean:
        wrong = bool(accused) or verdict in ("culprits", "distributed") or bool(error)
        said = tuple(f["cause"] for f in accused[:1])
        return Answer(**base, clean=True, accused=wrong, said=said, fixes=fixes, verdict=verdict)
    judged = [_judge_one(truth, accused, verdict, many=len(case.truths)) for truth in case.truths]
    found, right, said = zip(*judged, strict=True)
    expected = tuple(truth.causes[0] for truth in case.truths)
    return Answer(
        **base, clean=False, found=found, right=right, said=said, expected=expected, fixes=fixes, verdict=verdict
    )


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
