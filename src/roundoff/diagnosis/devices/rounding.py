"""Devices that stay within a step of the reference and are off in the mean all the same."""

from roundoff.core.findings import Change, Finding, Measure, Remedy
from roundoff.core.target import Arithmetic
from roundoff.diagnosis.devices.bench import Bench
from roundoff.diagnosis.devices.causes.integer_implementation import SHIFTED, arithmetics
from roundoff.diagnosis.devices.local_errors import LocalError
from roundoff.diagnosis.devices.suspects import DeviceSuspect, Survey
from roundoff.diagnosis.registry import ask, find_cause

__all__ = ["rounding_findings"]

_CAUSE = "integer-implementation"
# All over the network rather than here and there: so many tensors, and this part of those with codes.
_FEWEST, _SHARE = 3, 0.4
_TRIED_ON = 6
_HELD = 4
# Codes that must be right with the other arithmetic, of those that are not with the usual one.
_EXPLAINED = 0.8


def rounding_findings(bench: Bench, found: Survey, accused: frozenset[str]) -> list[Finding]:
    """Tensors whose codes are off to one side, one by one or as one finding when they are everywhere."""
    if not bench.quantizers:
        return []
    coded = [name for name in bench.tensors if name in bench.golden.coded and name not in accused]
    shifted = [name for name in coded if abs(found.local[name].mean_shift) > SHIFTED]
    if len(shifted) >= max(_FEWEST, _SHARE * len(coded)):
        finding = _everywhere(bench, shifted)
        return [] if finding is None else [finding]
    findings = []
    for name in shifted:
        places = bench.indices[:_HELD]
        pairs = tuple(bench.pair(name, sample) for sample in places)
        nodes = bench.spans[name].nodes
        suspect = DeviceSuspect(name, nodes, found.local[name], "flows on", pairs, places)
        asked = ask(find_cause(_CAUSE, "device"), bench, suspect, nodes=nodes, tensors=(name,))
        if asked is not None and asked[0].proven and _is_biased(asked[0]):
            findings.append(asked[0])
    return findings


def _is_biased(finding: Finding) -> bool:
    """Whether results are cut off; a factor of a few bits moves them by less than a step, which is no fault."""
    return finding.remedy is not None and any("rounds down" in each.value for each in finding.remedy.changes)


def _everywhere(bench: Bench, shifted: list[str]) -> Finding | None:
    """One way of rounding that explains all of them."""
    tried_on = shifted[:: max(1, len(shifted) // _TRIED_ON)][:_TRIED_ON]
    before = _wrong_share(bench, tried_on, None)
    best: tuple[float, str, Arithmetic | None] = (before, "", None)
    for words, arithmetic in arithmetics(bench.arithmetic):
        share = _wrong_share(bench, tried_on, arithmetic)
        if share < best[0]:
            best = share, words, arithmetic
    after, words, chosen = best
    if chosen is None or after > (1 - _EXPLAINED) * before:
        return None
    nodes = tuple(dict.fromkeys(bench.spans[name].nodes[0] for name in shifted))
    samples = len(bench.indices[:_HELD])
    measure = Measure(
        "codes that differ from the reference", "", before, after, higher_is_better=False, samples=samples
    )
    change = Change("report", nodes=nodes, tensors=tuple(shifted), value=words)
    title = "ask the vendor for rounding, or add half a step to the biases; calibrate with the device's rounding"
    return Finding(
        number=0,
        cause=_CAUSE,
        nodes=nodes,
        tensors=tuple(shifted),
        summary=f"the device {words} everywhere: {len(shifted)} tensors are off to one side, and {before:.0%} of "
        "their codes differ from the reference",
        evidence={"shifted_tensors": float(len(shifted))},
        intervention=f"the reference {words}",
        measures=(measure,),
        remedy=Remedy(title, "outside", (change,)),
        proven=True,
    )


def _wrong_share(bench: Bench, names: list[str], arithmetic: Arithmetic | None) -> float:
    """Share of codes that are not the reference's, with its own arithmetic or another."""
    golden = bench.golden if arithmetic is None else bench.golden.with_arithmetic(arithmetic)
    error = LocalError()
    for sample in bench.indices[:_HELD]:
        view = bench.view(sample)
        for name in names:
            pair = bench.pair(name, sample, view)
            error.add(golden.compute(name, view), pair.found, pair.expected)
    return 1 - error.same / max(1, error.count)
