"""The whole check of a calibration set, in one pass over the samples."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from roundoff.core.names import shown
from roundoff.core.progress import SILENT, Progress
from roundoff.core.quantizers import Quantizer
from roundoff.core.tensors import Array
from roundoff.errors import BadInput, RoundoffError
from roundoff.graph.interface import inputs, outputs
from roundoff.graph.load import Model
from roundoff.measure.classes import class_count
from roundoff.messages.message import NOTHING, Message, english, message, verbatim
from roundoff.run.bench import spread
from roundoff.run.capture import Samples, read_feed
from roundoff.run.evaluators import make_run
from roundoff.studies.check_calibration.findings import (
    alike_findings,
    blank_findings,
    broken_findings,
    class_findings,
    growth_of,
    influence_findings,
    preparation_findings,
    prepared_otherwise,
    range_rows,
    saturation_findings,
    scaling_findings,
    size_findings,
    strange_findings,
)
from roundoff.studies.check_calibration.preparation import mismatch_with_calibration
from roundoff.studies.check_calibration.ranges import (
    MOST_PICTURES,
    CalibrationCheckSettings,
    HeldOutRecord,
    InputRecord,
    RangeObservation,
    observe_ranges,
    observed_tensors,
)
from roundoff.studies.check_calibration.result import CalibrationCheck, CheckFinding, FindingKind

# With fewer samples none are held out: what is left would say too little of either part.
_FEWEST_TO_SPLIT = 10
# Samples on which it is checked how they were prepared.
_PREPARED = 32
_OTHERWISE = message("check_calibration.not_judged")
# In which order findings of the same severity stand: what spoils everything else first.
_ORDER: tuple[FindingKind, ...] = (
    "nonfinite", "scaling", "blank", "influence", "saturation", "too_few", "coverage", "duplicates",
)  # fmt: skip


def check_calibration(
    model: Model,
    samples: Samples,
    settings: CalibrationCheckSettings,
    *,
    held_out: Samples | None = None,
    labels: Array | None = None,
    progress: Progress = SILENT,
) -> CalibrationCheck:
    """Say what is wrong with a calibration set.

    The model runs once on every sample. What is kept of a sample is a few numbers.

    Args:
        model: The float model as it was exported.
        samples: The set.
        settings: For which target, and how.
        held_out: Other samples that the network must handle; by default some of the set are held out.
        labels: The right class of each sample of the set, int64 [samples].
        progress: Told of every sample.

    Raises:
        BadInput: The model cannot be quantized, samples or labels do not fit, or there is no such method.
        ModelFailed: The model cannot be run.
    """
    watched = observed_tensors(model, settings)
    names, total = samples.names, len(samples.names)
    if labels is not None and len(labels) != total:
        what = english(
            "There are {count} labels for {total} {total:sample|samples}.", count=len(labels), total=total
        )
        raise BadInput(what, fix=english("give the class of each sample, in their order"))
    if labels is not None and labels.min(initial=0) < 0:
        raise BadInput(
            english("There is a label {labels}; classes count from 0.", labels=labels.min()),
            fix=english("correct the labels"),
        )
    kept, left = _split(total, settings) if held_out is None else (tuple(range(total)), ())
    seen, fed = RangeObservation(watched, total, seed=settings.seed), InputRecord()
    observe_ranges(watched, samples, kept, seen=seen, fed=fed, held_out=None, settings=settings, progress=progress)
    covered, kept_count = seen.ranges(), seen.count
    record = HeldOutRecord((covered.low, covered.high), (seen.record.low, seen.record.high))
    others = InputRecord()
    if held_out is not None:
        indices = range(len(held_out.names))
        observe_ranges(
            watched,
            held_out,
            indices,
            seen=None,
            fed=others,
            held_out=record,
            settings=settings,
            progress=progress,
        )
    elif left:
        observe_ranges(
            watched, samples, left, seen=seen, fed=fed, held_out=record, settings=settings, progress=progress
        )
        covered = seen.ranges()
    fed.samples.sort(key=lambda facts: facts.index)
    growth = growth_of(seen)
    rows = range_rows(
        list(watched.specs), seen, growth, covered=covered, held_out=record if record.count else None, names=names
    )
    alike, groups = alike_findings(fed, names)
    findings = [*broken_findings(fed, names), *blank_findings(fed, names), *scaling_findings(fed, names), *alike]
    findings += influence_findings(rows, names, exact=not watched.distribution)
    # Of ranges that single samples set wrongly nothing can be told but that.
    spoilt = any(finding.severity == "fault" and finding.kind in ("scaling", "influence") for finding in findings)
    findings += size_findings(seen.count, growth, watched.method, spoilt=spoilt)
    if record.count and kept_count:
        findings += saturation_findings(rows, record, kept_count)
    otherwise = False
    if held_out is not None:
        findings += strange_findings(fed, others, names, held_out.names)
        otherwise = prepared_otherwise(fed, others)
        findings = _without_consequences(findings) if otherwise else findings
        findings += [
            replace(each, text=message("check_calibration.in_held_out", text=each.text))
            for each in broken_findings(others, held_out.names)
        ]
    if labels is not None:
        findings += class_findings(labels, _classes(model, samples, labels, settings), names)
    findings += _prepared(model, samples, fed, labels=labels, settings=settings)
    return CalibrationCheck(
        model=shown(model.path),
        data=shown(samples.label),
        samples=total,
        held_out=_held_out_words(held_out, left),
        held_out_samples=record.count,
        target=settings.target.name,
        method=watched.method,
        findings=_ordered(findings),
        curve=growth.points if total > 1 else (),
        growth=growth.last,
        enough=growth.enough,
        ranges=rows,
        inputs=fed.inputs(),
        duplicates=groups,
        classes=None if labels is None else {str(key): n for key, n in sorted(Counter(labels.tolist()).items())},
        notes=(*_notes(total, held_out, left), *((_OTHERWISE,) if otherwise else ())),
    )


# Samples on which every other command asks the same, and the most values of theirs: it must cost next to nothing.
_ASKED, _MOST_VALUES = 8, 1 << 20


def input_notes(
    model: Model,
    samples: Samples,
    *,
    quantizers: Sequence[Quantizer] = (),
    labels: Array | None = None,
    threads: int | None = None,
) -> tuple[Message, ...]:
    """What this check would say first of a set that is about to calibrate or to judge: it was prepared otherwise.

    The batch normalizations of the float model say what it was trained on, labels what it is right on, and the
    quantizer of an input what a file was calibrated on. Nothing is said where there are none, nor where anything
    goes wrong: whoever runs the model next says so.

    Args:
        model: The float model as it was exported.
        samples: The set.
        quantizers: Those of the file that the set is about to judge.
        labels: The right class of each sample.
        threads: Threads to use.
    """
    try:
        places, feeds = _few_feeds(model, samples, _ASKED if labels is None else _PREPARED)
        known = None if labels is None or len(labels) != len(samples.names) else [int(labels[at]) for at in places]
        found = list(preparation_findings(model, feeds, (), labels=known, threads=threads))
        faults = [each for each in found if each.severity == "fault"]
        other = None if faults else mismatch_with_calibration(quantizers, inputs(model), feeds)
    except RoundoffError:
        return ()
    if other is not None and other.spoils:
        return (message("check_calibration.calibration_said_first", text=other.text),)
    return tuple(message("check_calibration.said_first", text=each.text, fix=each.fix) for each in faults)


def _few_feeds(model: Model, samples: Samples, most: int) -> tuple[list[int], list[Mapping[str, Array]]]:
    """A few samples that are all numbers, not too large together, and their places."""
    places: list[int] = []
    feeds: list[Mapping[str, Array]] = []
    values = 0
    for place in spread(len(samples.names), most):
        feed = read_feed(model, samples, place)
        values += sum(each.size for each in feed.values())
        if feeds and values > _MOST_VALUES:
            break
        if all(each.dtype.kind != "f" or np.isfinite(each).all() for each in feed.values()):
            places.append(place)
            feeds.append(feed)
    return places, feeds


def _split(total: int, settings: CalibrationCheckSettings) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Samples that stay, and samples that are held out; both in order."""
    most = round(total * settings.share)
    if total < _FEWEST_TO_SPLIT or not most:
        return tuple(range(total)), ()
    # Not the generator of the random orders: its first draws would be the same.
    chosen = np.random.default_rng([settings.seed, 1]).permutation(total)[:most]
    left = frozenset(chosen.tolist())
    return tuple(index for index in range(total) if index not in left), tuple(sorted(left))


def _prepared(
    model: Model, samples: Samples, fed: InputRecord, *, labels: Array | None, settings: CalibrationCheckSettings
) -> list[CheckFinding]:
    sound = sorted(each.index for each in fed.samples if not each.nonfinite)
    few = [sound[place] for place in spread(len(sound), _PREPARED)] if sound else []
    feeds = [read_feed(model, samples, index) for index in few]
    known = None if labels is None else [int(labels[index]) for index in few]
    return list(preparation_findings(model, feeds, fed.inputs(), labels=known, threads=settings.limits.threads))


def _classes(model: Model, samples: Samples, labels: Array, settings: CalibrationCheckSettings) -> int | None:
    """How many classes the model tells, where the labels can be such."""
    found = make_run(model, threads=settings.limits.threads)(read_feed(model, samples, 0))
    counts = (class_count(found[name]) for name in outputs(model))
    count = next((each for each in counts if each is not None), 0)
    return count if count > int(labels.max(initial=0)) else None


def _without_consequences(findings: Sequence[CheckFinding]) -> list[CheckFinding]:
    """Findings without those that follow from held-out samples being prepared otherwise: their advice is wrong."""
    return [each for each in findings if each.kind not in ("saturation", "coverage") or each.severity != "fault"]


def _ordered(findings: Sequence[CheckFinding]) -> tuple[CheckFinding, ...]:
    def key(finding: CheckFinding) -> tuple[bool, int, float]:
        return finding.severity != "fault", _ORDER.index(finding.kind), -finding.weight

    return tuple(sorted(findings, key=key))


def _held_out_words(held_out: Samples | None, left: Sequence[int]) -> Message:
    if held_out is not None:
        return verbatim(shown(held_out.label))
    return message("check_calibration.of_the_set") if left else NOTHING


def _notes(total: int, held_out: Samples | None, left: Sequence[int]) -> tuple[Message, ...]:
    notes = []
    if held_out is None and not left:
        notes.append(message("check_calibration.none_held_out"))
    if total > MOST_PICTURES:
        notes.append(message("check_calibration.first_only", count=MOST_PICTURES))
    return tuple(notes)
