"""An evaluation over a range of samples, and how ranges are put together: exactly, whatever the ranges were.

A sample scores the same in every range: samples that run together are those of one block of the whole set, and how
networks are run is decided by its first samples. Joined ranges are then the very numbers of one run over all.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from roundoff.api.call import Call
from roundoff.api.inputs import open_data, open_labels, open_model
from roundoff.api.subject import SubjectOptions, open_subject
from roundoff.core.coverage import Doubt, MetricScores
from roundoff.errors import BadInput
from roundoff.graph.insertion import switch_on
from roundoff.graph.interface import inputs
from roundoff.messages.catalogue import bilingual, in_all_languages
from roundoff.messages.message import english
from roundoff.messages.numbers import score_name, share_text
from roundoff.run.bench import Bench
from roundoff.run.evaluators import Subset
from roundoff.search.evaluators import JudgeOptions, VendorJudge, make_judge, output_judge, with_evaluator
from roundoff.search.judges import TrialJudge
from roundoff.suite.matrix import SuiteUnit

if TYPE_CHECKING:
    from roundoff.graph.load import Model
    from roundoff.run.capture import Samples

# Quantized models and open samples that a worker keeps for the next range.
_MOST_KEPT = 2
_OF_JUDGE = ("eval_data", "eval_samples", "labels", "evaluator")


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """What ranges of one evaluation share.

    Attributes:
        quantized: The quantized network, ready to run.
        bench: Runs the float network and others on all samples.
        samples: All of them.
        options: What is measured by.
        block: Samples from multiples of this on run together.
    """

    quantized: "Model"
    bench: Bench
    samples: "Samples"
    options: JudgeOptions
    block: int


_KEPT: "OrderedDict[str, Evaluation]" = OrderedDict()


def _data_of(unit: SuiteUnit, model: "Model") -> "Samples":
    """The samples that are measured on."""
    own = dict(unit.options)
    data = own.get("eval_data")
    limit = own.get("eval_samples") if data is not None or own.get("eval_samples") else own.get("samples")
    options = {key: value for key, value in own.items() if key in _sample_options()}
    call = Call("layers", options, SubjectOptions)
    given = own.get("data") if data is None else data
    return open_data(given, inputs(model), call.sample_options(limit=limit))


def _sample_options() -> frozenset[str]:
    from roundoff.api.call import DataOptions

    return frozenset(DataOptions.__annotations__) - {"data"}


def count_samples(unit: SuiteUnit) -> int:
    """How many samples an evaluation has.

    Raises:
        BadInput: The model or the samples cannot be read, or there are none.
    """
    if unit.options.get("model") is None:
        what = english("{label} needs the float model.", label=unit.label)
        raise BadInput(what, fix=english("write model = FILE"))
    model = open_model(unit.options["model"]).model
    total = len(_data_of(unit, model).names)
    if not total:
        raise BadInput(english("{label} has no samples.", label=unit.label), fix=english("write data = PATH"))
    return total


def open_evaluation(unit: SuiteUnit) -> Evaluation:
    """Quantize, and open the samples; the last ones are still there."""
    shared = repr((sorted(unit.options.items(), key=str), unit.files))
    if shared not in _KEPT:
        _KEPT[shared] = _opened(unit)
        while len(_KEPT) > _MOST_KEPT:
            _KEPT.popitem(last=False)
    _KEPT.move_to_end(shared)
    return _KEPT[shared]


def _opened(unit: SuiteUnit) -> Evaluation:
    options = {key: value for key, value in unit.options.items() if key not in (*_OF_JUDGE, "model")}
    call = Call("layers", options, SubjectOptions)
    subject = open_subject(call, unit.options["model"])
    network = subject.quantized
    samples = _data_of(unit, network.float_model)
    labels = open_labels(unit.options.get("labels"), samples.names, cut=True)
    evaluator = unit.options.get("evaluator")
    judging = JudgeOptions(
        evaluator=None if evaluator is None else Path(evaluator),
        labels=labels,
        threads=call.threads,
        max_memory=call.max_memory,
    )
    bench = Bench(network.float_model, samples, threads=call.threads, max_memory=call.max_memory)
    fixed = all(
        each.shape is not None and all(isinstance(size, int) for size in each.shape[1:])
        for each in inputs(network.float_model)
    )
    if not fixed:  # neighbours of other shapes would put others together
        bench.together = 1
    quantized = switch_on(network.float_model, network.quantizers)
    return Evaluation(quantized, bench, samples, with_evaluator(judging), bench.together)


def evaluate_range(unit: SuiteUnit) -> dict[str, Any]:
    """The metric of a range of samples, in float and quantized.

    Raises:
        BadInput: The evaluator gives one number for all samples, and there are several ranges.
    """
    work = open_evaluation(unit)
    total = len(work.samples.names)
    start, stop = unit.span or (0, total)
    judge, first = _judge(work, start, stop)
    if not judge.by_sample and (start, stop) != (0, total):
        what = english("{metric} has one value for all samples: it cannot be split.", metric=judge.name)
        raise BadInput(what, fix=english("leave 'split' out, or let evaluate(run, samples) give one per sample"))
    places = range(judge.total) if judge.by_sample else ()
    chosen = slice(start - first, stop - first) if judge.by_sample else slice(None)
    in_float = np.atleast_1d(judge.float_values())[chosen]
    values = np.atleast_1d(judge.measure(work.quantized, places))[chosen]
    scores = {
        "metric": judge.name,
        "higher_is_better": judge.higher_is_better,
        "samples": list(work.samples.names[start:stop]) if judge.by_sample else [],
        "float": in_float.tolist(),
        "quantized": values.tolist(),
        "doubts": [asdict(each) for each in judge.doubts],
    }
    return {"exit_code": 0, "scores": scores, "figures": metric_figures([scores])}


def _judge(work: Evaluation, start: int, stop: int) -> tuple[TrialJudge, int]:
    """What measures the range, and the first sample it measures."""
    if work.options.evaluator is not None:
        samples: Any = work.samples
        judge = make_judge(work.bench.model, samples, work.options, indices=range(start, stop))
        if isinstance(judge, VendorJudge):
            what = english("evaluate(model) of the evaluator brings its own samples.")
            raise BadInput(what, fix=english("let it be evaluate(run, samples)"))
        return judge, start
    block, total = work.block, len(work.samples.names)
    first, last = start // block * block, min(total, -(-stop // block) * block)
    labels = work.options.labels
    if labels is not None:
        rows = labels.size // total
        labels = labels.reshape(total, rows)[first:last].reshape(-1)
    bench = work.bench.on(Subset(work.samples, tuple(range(first, last))))
    options = replace(work.options, labels=labels)
    if labels is None:
        # By the first sample of all, not of the range.
        by_first = output_judge(work.bench.on(Subset(work.samples, (0,))), options)
        options = replace(options, decibels=by_first.limits is None)
    return output_judge(bench, options), first


# Ranges together -------------------------------------------------------------------------------------------------


def joined_scores(parts: Sequence[Mapping[str, Any]], *, which: str = "quantized") -> MetricScores:
    """The metric of all samples of ranges, in the order of the samples.

    Args:
        parts: The documents of all ranges.
        which: ``quantized``, or ``float``.

    Raises:
        BadInput: They are of different metrics.
    """
    ordered = sorted(parts, key=lambda each: tuple(each.get("span") or (0, 0)))
    scores = [each["scores"] for each in ordered]
    if len({(each["metric"], each["higher_is_better"]) for each in scores}) > 1:
        what = english("The ranges of an evaluation are of different metrics.")
        raise BadInput(what, fix=english("run the suite again"))
    names = tuple(name for each in scores for name in each["samples"])
    values = tuple(float(value) for each in scores for value in each[which])
    return MetricScores(str(scores[0]["metric"]), bool(scores[0]["higher_is_better"]), names, values)


def metric_figures(scores: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What a table says of an evaluation."""
    found = {which: np.array([v for each in scores for v in each[which]]) for which in ("float", "quantized")}
    metric = str(scores[0]["metric"])
    mean = float(found["quantized"].mean())
    share = metric in ("accuracy", "same_top1")
    in_float = float(found["float"].mean())
    told = [share_text(each) if share else f"{each:.4g}" for each in (mean, in_float)]
    # Against float, but where float is what it is held against.
    key = "suite.metric_alone" if told[1] in ("100.00 %", "inf") else "suite.metric_and_float"
    word = bilingual(key, metric=in_all_languages(lambda: score_name(metric)), value=told[0], float=told[1])
    return {
        "verdict": [word.en, word.zh],
        "tone": "plain",
        "output_db": mean if metric == "mean_sqnr_db" else None,
        "accuracy": mean if share else None,
        "float_accuracy": in_float if share else None,
        "samples": int(found["quantized"].size),
    }


def evaluation_doubts(parts: Sequence[Mapping[str, Any]]) -> tuple[Doubt, ...]:
    """What speaks against a good word, of all ranges that say it."""
    found: dict[str, list[Doubt]] = {}
    for part in parts:
        for each in part["scores"].get("doubts", ()):
            found.setdefault(each["kind"], []).append(Doubt(**each))
    # A range may well have one class; all of them, the same one, must not.
    few = found.get("one_class", [])
    if len(few) < len(parts) or len({each.name for each in few}) > 1:
        found.pop("one_class", None)
    return tuple(
        replace(same[0], count=sum(each.count for each in same), of=sum(each.of for each in same))
        for same in found.values()
    )
