"""The studies of one network, as functions: layers, accumulate, sensitivity, partial, distribution, channels, ..."""

import fnmatch
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from roundoff.api.call import Call, Limits, QuantizeOptions, public, words_in
from roundoff.api.inputs import (
    DataLike,
    EvaluatorLike,
    LabelsLike,
    ModelLike,
    PathLike,
    as_path,
    check_files,
    data_inputs,
    file_inputs,
    is_path,
    open_data,
    open_evaluator,
    open_labels,
    open_model,
    said_of,
)
from roundoff.api.outcome import Outcome
from roundoff.api.subject import (
    QuantizedLike,
    Subject,
    SubjectOptions,
    check_subject,
    open_subject,
    quantize_settings,
    samples_for,
    target_of,
)
from roundoff.core.files import model_stem
from roundoff.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_THRESHOLD_MISSED, BadInput, nearest
from roundoff.graph.interface import topology
from roundoff.quantize.step_report import TransformReport
from roundoff.studies.samples.result import WorstSamples

if TYPE_CHECKING:
    from roundoff.core.document import InputFile, RunDocument
    from roundoff.core.names import NameList
    from roundoff.core.plan import Step
    from roundoff.graph.load import Model
    from roundoff.graph.quantized_model import QuantizedModel
    from roundoff.run.feeds import Samples
    from roundoff.studies.accumulate.result import Accumulation, Curve
    from roundoff.studies.audit.result import Audit
    from roundoff.studies.channels.result import ChannelReport
    from roundoff.studies.distribution.result import DistributionReport
    from roundoff.studies.layers.result import LayerReport
    from roundoff.studies.outliers.result import OutlierReport
    from roundoff.studies.partial.result import PartialQuantization
    from roundoff.studies.sensitivity.result import SensitivityReport
    from roundoff.studies.sensitivity.result import Subject as SwitchedSubject
    from roundoff.studies.transform.study import Judge

__all__ = [
    "TransformOutcome",
    "WorstSamplesOutcome",
    "accumulate",
    "audit",
    "channels",
    "distribution",
    "layers",
    "outliers",
    "partial",
    "samples",
    "sensitivity",
    "transform",
]

_KINDS = ("node", "weight", "activation")
_INSPECTED = ("weight", "bias", "constant", "activation", "node")
_SENSITIVITY_METRICS = ("sqnr_db", "cosine", "mse", "mean_relative_error", "chebyshev")
_SAMPLE_METRICS = ("sqnr_db", "cosine", "mse")
_LEADING = 10
_MOST_BINS = 10_000
_MOST_NAMED = 2
# What users call what is registered under another name.
_STEP_NAMES = {"round": "round_weights"}


def _choose(option: str, value: Any, choices: Sequence[str]) -> Any:
    if value not in choices:
        raise BadInput(f"{option} {value!r} is none of the choices.", fix=nearest(str(value), choices))
    return value


def _document(call: Call, subject: Subject, *more: "InputFile", **found: Any) -> "RunDocument":
    network = topology(subject.quantized.float_model)
    return call.document((*subject.inputs(), *more), network, **found)


@public
def layers(
    model: ModelLike | None = None,
    *,
    method: str = "both",
    mode: str = "reference",
    arithmetic: Any = None,
    **options: Unpack[SubjectOptions],
) -> "Outcome[LayerReport]":
    """Show what quantization costs each layer of a model, and where the loss begins.

    Args:
        model: The float model.
        method: Which error: ``local``, ``accumulated`` or ``both``.
        mode: ``reference`` for fake quantization, ``integer`` for exact integer arithmetic.
        arithmetic: For integers: compute like this target.
        options: What is quantized or is to be, and what it is fed.
    """
    from roundoff.studies.layers.study import LayerSettings, analyze_layers

    own = {"method": method, "mode": mode, "arithmetic": arithmetic}
    call = Call("layers", options, SubjectOptions, {"model": model, **own})
    check_subject(call, model)
    if arithmetic is not None and mode != "integer":
        what = "--arithmetic has no effect without --mode integer."
        raise BadInput(what, fix="add --mode integer, or leave it out")
    # Looked up first, so that a wrong name is not told after minutes of work.
    chosen = None if arithmetic is None else target_of(arithmetic).arithmetic
    method = _choose("--method", method, ("local", "accumulated", "both"))
    mode = _choose("--mode", mode, ("reference", "integer"))
    subject = open_subject(call, model)
    settings = LayerSettings(
        method=method,  # type: ignore[arg-type]
        mode=mode,  # type: ignore[arg-type]
        arithmetic=subject.arithmetic if chosen is None else chosen,
        max_memory=call.max_memory,
        threads=call.threads,
    )
    found = analyze_layers(subject.quantized, subject.samples, settings, progress=call.progress)
    found = replace(found, quantized=subject.words)
    file = is_path(arithmetic) and Path(arithmetic).is_file()
    more = file_inputs(("arithmetic", arithmetic)) if file else ()
    return Outcome(found, _document(call, subject, *more, layers=found))


@public
def accumulate(
    model: ModelLike | None = None,
    *,
    only: Sequence[Any] = (),
    leave_out: Sequence[Any] = (),
    nested: Any = None,
    nested_except: Any = None,
    metric: str = "cosine",
    average: bool = False,
    **options: Unpack[SubjectOptions],
) -> "Outcome[Accumulation]":
    """Show how error grows along a network, with some of its quantizers on.

    Args:
        model: The float model.
        only: For each name, or list of names, a curve with only that quantized.
        leave_out: For each list of names a curve with everything quantized but these.
        nested: For each inner list a curve with only these quantized.
        nested_except: The same with everything quantized but these.
        metric: What to compare by.
        average: Give at each node the mean of all nodes up to it.
        options: What is quantized or is to be, and what it is fed.
    """
    from roundoff.measure.metrics import get_metric
    from roundoff.studies.accumulate.study import AccumulationSettings
    from roundoff.studies.accumulate.study import accumulate as measure_growth

    own = {"model": model, "only": only, "metric": metric, "average": average}
    call = Call("accumulate", options, SubjectOptions, own)
    check_subject(call, model)
    # What is misspelt should not be told after minutes of work.
    get_metric(metric)
    lists = _name_list("--nested", nested), _name_list("--nested-except", nested_except)
    chosen = [only] if isinstance(only, str) else list(only)
    left = [[each] if isinstance(each, str) else list(each) for each in leave_out]
    subject = open_subject(call, model)
    settings = AccumulationSettings(
        metric=metric, average=average, max_memory=call.max_memory, threads=call.threads
    )
    curves = _curves(subject.quantized, chosen, left, lists)
    found = measure_growth(subject.quantized, subject.samples, curves, settings, progress=call.progress)
    return Outcome(found, _document(call, subject, accumulation=found))


def _name_list(option: str, given: Any) -> "NameList":
    from roundoff.core.names import parse_name_list

    if given is None:
        return ()
    found = parse_name_list(given) if isinstance(given, str) else _as_names(given)
    if not found:
        raise BadInput(f"{option} {given!r} names nothing.", fix=f"leave {option} out, or write [[a],[a,b]]")
    return found


def _as_names(given: Any) -> "NameList":
    """Nested lists of names as tuples."""
    if not isinstance(given, list | tuple):
        raise BadInput(f"A list of names is {said_of(given)}.", fix="give names, or lists of names")
    return tuple(each if isinstance(each, str) else _as_names(each) for each in given)


def _named(word: Any) -> "str | NameList":
    from roundoff.core.names import parse_name_list

    if not isinstance(word, str):
        return _as_names(word)
    return parse_name_list(word) if word.startswith("[") else word


def _curves(
    quantized: "QuantizedModel",
    only: Sequence[Any],
    leave_out: Sequence[list[str]],
    lists: "tuple[NameList, NameList]",
) -> "tuple[Curve, ...] | None":
    """What was asked for; None when nothing was."""
    from roundoff.studies.accumulate.result import Curve
    from roundoff.studies.switches import Switches

    switches = Switches(quantized)
    single: list[str | NameList] = list(dict.fromkeys(map(_named, only)))
    found = [*switches.curves((*single, *lists[0]))]
    for names in leave_out:
        members: list[Any] = []
        for word in map(_named, names):
            members += [word] if isinstance(word, str) else word
        nested = switches.curves((tuple(members),), leave_out=True)[0]
        found.append(Curve(_but(names), nested.quantizers))
    numbered = sum(not isinstance(each, str) for each in (*single, *lists[0]))
    found += switches.curves(lists[1], leave_out=True, first=numbered)
    return tuple(found) or None


def _but(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return f"all but {', '.join(map(str, names[:_MOST_NAMED]))}" + (f" and {more} more" if more > 0 else "")


@public
def sensitivity(
    model: ModelLike | None = None,
    *,
    kind: str | Sequence[str] = _KINDS,
    nodes: str | Sequence[str] = (),
    group: Sequence[Sequence[str]] | Mapping[str, Sequence[str]] = (),
    metric: str | Sequence[str] = _SENSITIVITY_METRICS,
    output_node: str | Sequence[str] = (),
    leave_one_out: bool = False,
    exact: bool = False,
    fast: bool = False,
    first_samples: int | None = None,
    budget: float | None = None,
    resume: PathLike | None = None,
    top: int | None = _LEADING,
    **options: Unpack[SubjectOptions],
) -> "Outcome[SensitivityReport]":
    """Rank nodes, weights and activations by what each one alone does to the outputs.

    Args:
        model: The float model.
        kind: Which rankings: ``node``, ``weight``, ``activation``.
        nodes: Only these nodes, tensors or quantizers.
        group: Also switch these together.
        metric: What outputs are compared by; the first ranks.
        output_node: Compare these tensors, or outputs of these nodes, instead of the model's outputs.
        leave_one_out: Quantize everything but the one, instead of it alone.
        exact: Measure all on all samples.
        fast: Take fewer samples.
        first_samples: Samples that all are measured on.
        budget: Stop after so many seconds.
        resume: A file that remembers what is measured, and from which to go on.
        top: How many leading ones are measured on all samples.
        options: What is quantized or is to be, and what it is fed.
    """
    from roundoff.measure.metrics import require
    from roundoff.measure.rows import ROW_FIELDS
    from roundoff.studies.sensitivity.settings import SensitivitySettings
    from roundoff.studies.sensitivity.study import analyze_sensitivity
    from roundoff.studies.sensitivity.summary import report_sensitivity

    own = {"kind": kind, "metric": metric, "exact": exact, "fast": fast}
    call = Call("sensitivity", options, SubjectOptions, {"model": model, **own})
    check_subject(call, model)
    if exact and first_samples is not None:
        what = "--first-samples has no effect with --exact, which measures all on all samples."
        raise BadInput(what, fix="leave one of them out")
    metrics = words_in(metric, option="--metric")
    # A misspelt metric should not be told after minutes of work.
    require(metrics, command="sensitivity", offers=ROW_FIELDS)
    kinds = [_choose("--kind", each, _KINDS) for each in words_in(kind, option="--kind")]
    groups = group if isinstance(group, Mapping) else {" + ".join(names): names for names in group}
    settings = SensitivitySettings(
        kinds=tuple(dict.fromkeys(kinds)),
        metrics=metrics,
        outputs=_names(output_node),
        nodes=_names(nodes),
        groups={name: tuple(names) for name, names in groups.items()},
        mode="left_out" if leave_one_out else "alone",
        first_samples=first_samples,
        top=max(_LEADING, top or _LEADING),
        exact=exact,
        fast=fast,
        budget_s=budget,
        max_memory=call.max_memory,
        threads=call.threads,
    )
    subject = open_subject(call, model)
    begun = time.monotonic()
    journal = None if resume is None else as_path(resume, option="--resume")
    measured = analyze_sensitivity(
        subject.quantized, subject.samples, settings, progress=call.progress, journal=journal
    )
    # What was not done because of the budget was asked for; the rest was not.
    interrupted = not measured.complete and (budget is None or time.monotonic() - begun < budget)
    found = report_sensitivity(measured, subject.quantized)
    code = EXIT_INTERRUPTED if interrupted else EXIT_OK
    return Outcome(found, _document(call, subject, sensitivity=found), code)


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    """Names, of which each may contain anything."""
    if isinstance(given, str):
        return (given,)
    if not isinstance(given, Sequence) or not all(isinstance(each, str) for each in given):
        raise BadInput(f"The names are {said_of(given)}.", fix="give a name, or a list of names")
    return tuple(given)


@public
def partial(
    model: ModelLike | None = None,
    *,
    kind: str = "node",
    to: str = "float",
    top: int | None = 20,
    ranking: PathLike | None = None,
    nodes: Sequence[str] | None = None,
    score: str | None = None,
    labels: LabelsLike = None,
    evaluator: EvaluatorLike | None = None,
    goal: str | float | None = None,
    stop_at_goal: bool = False,
    **options: Unpack[SubjectOptions],
) -> "Outcome[PartialQuantization]":
    """Find out how few nodes have to stay in float, or need 16 bits.

    Args:
        model: The float model.
        kind: ``node`` for nodes with all their inputs; ``weight`` or ``activation`` for single quantizers.
        to: What they become: ``float``, ``s16`` or ``u16``.
        top: Try up to so many; None for all.
        ranking: Take the order from a file.
        nodes: Take these, in this order.
        score: How outputs agree: ``cosine``, ``sqnr_db``, ``same_top1``, ``accuracy``.
        labels: Right classes: measure accuracy.
        evaluator: The user's own measure.
        goal: ``99%`` of the float score, or a score.
        stop_at_goal: With an evaluator: try no more once the goal is reached.
        options: What is quantized or is to be, and what it is fed.
    """
    from roundoff.studies.partial.ranking_file import read_ranking
    from roundoff.studies.partial.settings import PartialSettings, check_settings
    from roundoff.studies.partial.study import sweep

    own = {"kind": kind, "to": to, "top": top, "score": score, "goal": goal}
    call = Call("partial", options, SubjectOptions, {"model": model, **own})
    check_subject(call, model)
    check_files(("The labels", labels))
    _one_of(labels=labels, evaluator=evaluator)
    _one_of(ranking=ranking, nodes=nodes)
    _choose("--kind", kind, _KINDS)
    if nodes is not None and kind != "node":
        what = f"--kind {kind} has no effect on the names of --nodes: each means what it means."
        raise BadInput(what, fix="leave --kind out")
    # What cannot be read should not be told after minutes of work.
    measure = open_evaluator(evaluator)
    order = None if nodes is None else _names(nodes)
    if ranking is not None:
        order = read_ranking(as_path(ranking, option="--ranking"), kind)
    settings = PartialSettings(
        to=_choose("--to", to, ("float", "s16", "u16")),
        top=top,
        score=score or "",
        goal="" if goal is None else str(goal),
        stop_at_goal=stop_at_goal,
        evaluator=measure,
        max_memory=call.max_memory,
        threads=call.threads,
    )
    check_settings(settings, labelled=labels is not None)
    subject = open_subject(call, model)
    right = open_labels(labels, subject.samples.names, cut=call.get("samples") is not None)
    if order is None:
        subjects, said = _ranked(call, subject, kind)
    else:
        from roundoff.studies.partial.study import named_subjects

        said = "as given" if ranking is None else f"as in {ranking}"
        subjects = named_subjects(subject.quantized, order)
    settings = replace(settings, labels=right, ranking=said)
    found = sweep(subject.quantized, subject.samples, subjects, settings, progress=call.progress)
    more = file_inputs(("ranking", ranking), ("labels", labels), ("evaluator", evaluator))
    code = EXIT_THRESHOLD_MISSED if goal and found.knee is None else EXIT_OK
    return Outcome(
        found, _document(call, subject, *more, partial=found), code if found.complete else EXIT_INTERRUPTED
    )


def _one_of(**given: Any) -> None:
    """Refuse two arguments of which each stands for the other."""
    (one, first), (other, second) = given.items()
    if first is not None and second is not None:
        raise BadInput(f"Both --{one} and --{other} were given.", fix="leave one of them out")


def _ranked(call: Call, subject: Subject, kind: str) -> "tuple[tuple[SwitchedSubject, ...], str]":
    """What to change in which order, and where that comes from."""
    from roundoff.messages.numbers import counted
    from roundoff.studies.partial.study import ranked_subjects

    subjects, found = ranked_subjects(
        subject.quantized,
        subject.samples,
        kind,  # type: ignore[arg-type]
        max_memory=call.max_memory,
        threads=call.threads,
        progress=call.progress,
    )
    most = max(len(row.score.samples) for row in found.rankings[kind])  # type: ignore[index]
    return subjects, f"by {found.metrics[0]} when quantized alone ({counted(most, 'sample')})"


# Looking at tensors by name.


def _inspected(call: Call, model: ModelLike | None) -> "tuple[Subject, Samples | None]":
    """The model, and what it is fed; None when it has inputs and nothing was given for them."""
    from roundoff.graph.interface import inputs

    subject = open_subject(call, model, required=False, needs_samples=False)
    given = call.get("data")
    nothing = given is None or (isinstance(given, list | tuple) and not given)
    return subject, None if nothing and inputs(subject.quantized.float_model) else subject.samples


def _chosen_nodes(nodes: str | Sequence[str]) -> tuple[str, ...]:
    names = _names(nodes)
    if not names:
        raise BadInput(
            "No node, tensor or quantizer was named.", fix="name some behind the model; '*' for all nodes"
        )
    return names


def _chosen_kinds(kind: str | Sequence[str]) -> tuple[Any, ...]:
    return tuple(_choose("--kind", each, _INSPECTED) for each in words_in(kind, option="--kind"))


@public
def distribution(
    model: ModelLike | None = None,
    nodes: str | Sequence[str] = (),
    *,
    kind: str | Sequence[str] = (),
    bins: int | None = None,
    **options: Unpack[SubjectOptions],
) -> "Outcome[DistributionReport]":
    """Show how values are distributed, and what their quantizers make of them.

    Args:
        model: The float model.
        nodes: Names or globs of nodes, tensors, weights and quantizers; ``*`` for all nodes.
        kind: Only these: ``weight``, ``bias``, ``constant``, ``activation``, ``node``.
        bins: Bins of a histogram; by the values when None.
        options: What is quantized or is to be, and what it is fed.
    """
    from roundoff.studies.distribution.study import DistributionSettings, describe_distributions

    call = Call("distribution", options, SubjectOptions, {"model": model, "nodes": nodes, "kind": kind})
    names = _chosen_nodes(nodes)
    if bins is not None and not (isinstance(bins, int) and 2 <= bins <= _MOST_BINS):
        raise BadInput(f"--bins {bins!r} is no number of bins.", fix=f"give 2 to {_MOST_BINS}")
    kinds = _chosen_kinds(kind)
    subject, fed = _inspected(call, model)
    settings = DistributionSettings(names=names, kinds=kinds, bins=bins, limits=call.limits)
    found = describe_distributions(subject.quantized, fed, settings, progress=call.progress)
    return Outcome(found, _document(call, subject, distributions=found))


@public
def channels(
    model: ModelLike | None = None,
    nodes: str | Sequence[str] = (),
    *,
    kind: str | Sequence[str] = (),
    axis: int | None = None,
    **options: Unpack[SubjectOptions],
) -> "Outcome[ChannelReport]":
    """Show how the channels of a tensor differ, and whether one scale serves them.

    Args:
        model: The float model.
        nodes: Names or globs of nodes, tensors, weights and quantizers; ``*`` for all nodes.
        kind: Only these: ``weight``, ``bias``, ``constant``, ``activation``, ``node``.
        axis: Where the channels are.
        options: What is quantized or is to be, and what it is fed.
    """
    from roundoff.studies.channels.study import ChannelSettings, describe_channels

    call = Call("channels", options, SubjectOptions, {"model": model, "nodes": nodes, "kind": kind})
    names, kinds = _chosen_nodes(nodes), _chosen_kinds(kind)
    subject, fed = _inspected(call, model)
    settings = ChannelSettings(names=names, kinds=kinds, axis=axis, limits=call.limits)
    found = describe_channels(subject.quantized, fed, settings, progress=call.progress)
    return Outcome(found, _document(call, subject, channels=found))


@public
def outliers(
    model: ModelLike | None = None,
    nodes: str | Sequence[str] = (),
    *,
    log_base: float = 2.0,
    axis: int | None = None,
    **options: Unpack[SubjectOptions],
) -> "Outcome[OutlierReport]":
    """Count in every tensor the channels that are small against its largest value.

    Args:
        model: The float model.
        nodes: Only tensors or nodes whose names match.
        log_base: Base of the logarithm.
        axis: Where the channels are.
        options: What it is fed; it need not be quantized.
    """
    from roundoff.studies.outliers.study import OutlierSettings, find_outliers

    call = Call("outliers", options, SubjectOptions, {"model": model, "nodes": nodes, "log_base": log_base})
    check_subject(call, model)
    settings = OutlierSettings(names=_names(nodes), log_base=log_base, axis=axis, limits=call.limits)
    subject = open_subject(call, model, required=False)
    found = find_outliers(subject.quantized, subject.samples, settings, progress=call.progress)
    return Outcome(found, _document(call, subject, outliers=found))


@dataclass(frozen=True, slots=True, repr=False)
class WorstSamplesOutcome(Outcome[WorstSamples]):
    """The samples that quantization hurts most, which can be stored.

    Attributes:
        fed: The samples.
    """

    fed: Any = None

    @public
    def copy_to(self, directory: PathLike, *, top: int | None = _LEADING, force: bool = False) -> Path:
        """Store the worst samples as the model is fed with them, beside a list that any command takes as data.

        Args:
            directory: The folder.
            top: How many; None for all.
            force: Replace an earlier copy.

        Returns:
            The list.
        """
        from roundoff.core.files import output_directory
        from roundoff.samples.sample_set import LIST_NAME, copy_samples

        worst = self.result
        with output_directory(Path(directory), marker=LIST_NAME, force=force) as staged:
            copy_samples(
                staged,
                ((each.sample, self.fed.feed(each.index)) for each in worst.samples[:top]),
                heading=f"the worst samples of {worst.data} by {worst.metrics[0]}, worst first",
            )
        return Path(directory) / LIST_NAME


@public
def samples(
    model: ModelLike | None = None,
    *,
    metric: str | Sequence[str] = _SAMPLE_METRICS,
    output_node: str | Sequence[str] = (),
    **options: Unpack[SubjectOptions],
) -> WorstSamplesOutcome:
    """Rank samples by how much quantization changes their outputs.

    Args:
        model: The float model.
        metric: What outputs are compared by; the first ranks.
        output_node: Compare these tensors, or outputs of these nodes, instead of the model's outputs.
        options: What is quantized or is to be, and what it is fed.
    """
    from roundoff.measure.metrics import get_metric
    from roundoff.studies.samples.study import WorstSampleSettings, find_worst_samples

    call = Call("samples", options, SubjectOptions, {"model": model, "metric": metric})
    check_subject(call, model)
    metrics = words_in(metric, option="--metric")
    # What is misspelt should not be told after minutes of work.
    for name in metrics:
        get_metric(name)
    settings = WorstSampleSettings(metrics=metrics, outputs=_names(output_node), limits=call.limits)
    subject = open_subject(call, model)
    found = find_worst_samples(subject.quantized, subject.samples, settings, progress=call.progress)
    return WorstSamplesOutcome(found, _document(call, subject, worst_samples=found), fed=subject.samples)


# What a quantized model really holds.


@public
def audit(
    subject: QuantizedLike,
    *,
    float_model: ModelLike | None = None,
    target: Any = None,
    nodes: str | Sequence[str] | None = None,
    notes: bool = True,
) -> "Outcome[Audit]":
    """Say for every node which precision was asked for and which it really has.

    Args:
        subject: A folder that `quantize` wrote, or a quantized model of any tool.
        float_model: The float model it was made from; nodes get its names.
        target: Judge by what this target would make of the float model.
        nodes: Only nodes whose names match.
        notes: Repeat what was told when a run was made.
    """
    call = Call("audit", {}, Limits, {"subject": subject, "target": target})
    read = [("model", subject)] if is_path(subject) else []
    if is_path(subject) and (Path(subject).is_dir() or Path(subject).suffix.lower() == ".json"):
        given = [flag for flag, value in (("--float", float_model), ("--target", target)) if value]
        if given:
            what = f"{given[0]} was given, but {subject} is a run, which has its own plan."
            raise BadInput(what, fix=f"leave {given[0]} out, or give one of the run's models")
        found = _audit_run(Path(subject), notes=notes)
    else:
        found = _audit_model(subject, float_model, target)
    found = _matching(found, None if nodes is None else _names(nodes))
    read += [("float", float_model)]
    read += [("target", target)] if is_path(target) and Path(target).is_file() else []
    code = EXIT_OK if found.passed else EXIT_THRESHOLD_MISSED
    return Outcome(found, call.document(file_inputs(*read), audit=found), code)


def _audit_run(path: Path, *, notes: bool) -> "Audit":
    """The audit of a run; what its user was told when it was made is told again on request."""
    from roundoff.graph.load import load_model
    from roundoff.graph.reading.read import read_quantized
    from roundoff.quantize.plan_file import CORRECTED, PLAN_NAME, load_plan
    from roundoff.studies.audit.study import audit_run

    folder = path if path.is_dir() else path.parent
    if path.is_dir() and not (path / PLAN_NAME).is_file():
        what = f"{path} has no {PLAN_NAME}, so it is no run of 'roundoff quantize'."
        raise BadInput(what, fix="give the folder that 'roundoff quantize -o' wrote, or an .onnx model")
    saved = load_plan(path)
    names = {"fake_quant": "fake-quant model", "deploy": "deploy model"}
    models = {
        name: read_quantized(load_model(folder / saved.files[kind]))
        for kind, name in names.items()
        if kind in saved.files
    }
    if not models:
        raise BadInput(f"{path} names no models.", fix="write the run again with 'roundoff quantize'")
    corrected = CORRECTED in saved.files
    found = audit_run(saved.plan, saved.quantizers(), models, subject=str(path), corrected=corrected)
    return replace(found, notes=(*found.notes, *saved.notes)) if notes else found


def _audit_model(subject: QuantizedLike, float_model: ModelLike | None, target: Any) -> "Audit":
    from roundoff.graph.quantized_model import QuantizedModel
    from roundoff.graph.reading.read import read_quantized
    from roundoff.quantize.planning.planner import plan_quantization
    from roundoff.studies.audit.study import audit_against, audit_model

    chip = None if target is None else target_of(target)
    source = None if float_model is None else open_model(float_model, what="The float model").model
    if isinstance(subject, QuantizedModel):
        model, called = subject, f"({type(subject).__name__})"
    else:
        given = open_model(subject, what="The quantized model")
        model, called = read_quantized(given.model, float_model=source), str(given.path)
    if not model.quantizers and not model.oddities:
        raise BadInput(
            f"{called} is not quantized: no quantizer of a known kind was found in it.",
            fix="give a model with QuantizeLinear and DequantizeLinear nodes, or of another dialect listed in "
            "docs/formats/quantized-models.md",
        )
    if chip is None:
        return audit_model(model, subject=called)
    return audit_against(model, plan_quantization(model.float_model, chip), subject=called)


def _matching(found: "Audit", globs: Sequence[str] | None) -> "Audit":
    """Only the rows that were asked for."""
    if globs is None:
        return found
    names = [row.node for row in found.rows]

    def matches(name: str, pattern: str) -> bool:
        # Names may hold brackets, which a pattern would read as choices.
        return name == pattern or fnmatch.fnmatchcase(name, pattern)

    for pattern in globs:
        if not any(matches(name, pattern) for name in names):
            raise BadInput(f"--nodes {pattern!r} matches no node of {found.subject}.", fix=nearest(pattern, names))
    rows = tuple(row for row in found.rows if any(matches(row.node, pattern) for pattern in globs))
    return replace(found, rows=rows, findings=())


# Changing a model so that it quantizes better.


@dataclass(frozen=True, slots=True, repr=False)
class TransformOutcome(Outcome[TransformReport]):
    """What steps brought, and the models they made.

    Attributes:
        trial: The quantized model as it is now.
        stem: How names of files start.
    """

    trial: Any = None
    stem: str = "model"

    @property
    def quantized(self) -> "QuantizedModel":
        """The quantized model: changed where that helped."""
        found: QuantizedModel = self.trial.quantized
        return found

    @public
    def save(self, directory: PathLike, *, force: bool = False) -> tuple[Path, ...]:
        """Write the float model, the quantized ones and the run document."""
        from roundoff.graph.insertion import deploy_model, fake_quant_model
        from roundoff.graph.save import save_model
        from roundoff.report.run_directory import write_run

        quantized = self.quantized
        model, quantizers = quantized.float_model, quantized.quantizers
        models = {
            f"{self.stem}_float_model.onnx": lambda path: save_model(model, path),
            self.fake_quant_name: lambda path: save_model(fake_quant_model(model, quantizers), path),
            f"{self.stem}_deploy_model.onnx": lambda path: save_model(deploy_model(model, quantizers), path),
        }
        return write_run(self.document, Path(directory), force=force, more=models)

    @property
    def fake_quant_name(self) -> str:
        """Name of the file with the quantized model that onnxruntime runs."""
        return f"{self.stem}_fake_quant_model.onnx"


class TransformOptions(QuantizeOptions, total=False):
    """The chip, and what the model is fed."""

    target: Any


@public
def transform(
    model: ModelLike,
    steps: str | Sequence[str],
    *,
    option: Mapping[str, Any] | Sequence[str] = (),
    nodes: str | Sequence[str] = (),
    test: DataLike = None,
    labels: LabelsLike = None,
    evaluator: EvaluatorLike | None = None,
    **options: Unpack[TransformOptions],
) -> TransformOutcome:
    """Change a model so that it quantizes better, and prove that it does.

    Args:
        model: The float model.
        steps: What to do: ``smooth``, ``equalize``, ``explicit-bias``, ``round``, ``bias-correct``.
        option: Options of steps, as ``alpha`` or ``smooth.alpha`` for one step alone.
        nodes: Limit the steps to these nodes.
        test: Other samples to judge on.
        labels: Right classes of these samples.
        evaluator: The user's own measure.
        options: The chip, how to quantize, and what the model is fed.
    """
    from roundoff.studies.transform.study import try_steps

    call = Call("transform", options, TransformOptions, {"model": model, "steps": steps})
    _one_of(labels=labels, evaluator=evaluator)
    if call.get("target") is None:
        raise BadInput("No chip to quantize for was given.", fix="add --target NAME")
    asked = _steps(steps, option, _names(nodes))
    settings = quantize_settings(call)
    measure = open_evaluator(evaluator)
    given = open_model(model)
    fed = samples_for(call, given.model)
    judge = replace(_judge(call, given.model, fed, test, labels), evaluator=measure)
    trial = try_steps(given.model, fed, asked, settings=settings, judge=judge, progress=call.progress)
    target = call.get("target")
    read = [given.origin("model")]
    read += file_inputs(("rules", call.get("rules")), ("labels", labels), ("evaluator", evaluator))
    read += file_inputs(("target", target)) if is_path(target) and Path(target).is_file() else ()
    read += data_inputs("data", call.get("data"), fed)
    read += () if test is None else data_inputs("data", [test] if is_path(test) else test, judge.samples)
    document = call.document(read, topology(given.model), transform=trial.report)
    code = EXIT_OK if trial.report.kept or not trial.report.changed else EXIT_THRESHOLD_MISSED
    return TransformOutcome(trial.report, document, code, trial=trial, stem=model_stem(given.path))


def _steps(given: str | Sequence[str], option: Any, nodes: tuple[str, ...]) -> "list[Step]":
    """The steps with their options, checked before anything runs."""
    from roundoff.core.plan import Step
    from roundoff.quantize.corrections.registry import all_corrections
    from roundoff.quantize.transforms.registry import all_transforms
    from roundoff.studies.transform.study import check_steps

    known = {each.name: tuple(each.options) for each in all_transforms()}
    known |= {each.name: tuple(each.options) for each in all_corrections()}
    words = [word.strip() for word in given.split(",")] if isinstance(given, str) else list(_names(given))
    names = [_STEP_NAMES.get(word, word).replace("-", "_") for word in words]
    shown = [name for name in known if name not in _STEP_NAMES.values()] + list(_STEP_NAMES)
    for word, name in zip(words, names, strict=True):
        if name not in known:
            what = f"There is no step {word!r}."
            raise BadInput(what, fix=nearest(word, [each.replace("_", "-") for each in shown]))
    # Corrections have nowhere to go in a layer without a bias.
    if "bias_correct" in names and "explicit_bias" not in names:
        names.insert(0, "explicit_bias")
    texts = [f"{key}={value}" for key, value in option.items()] if isinstance(option, Mapping) else option
    said = [_step_option(text, names, known) for text in texts]
    steps = []
    for name in names:
        own = {key: value for step, key, value in said if step in ("", name) and key in known[name]}
        steps.append(Step(name, tuple(sorted(own.items())), nodes))
    check_steps(steps)
    return steps


def _step_option(text: str, names: Sequence[str], known: "dict[str, tuple[str, ...]]") -> tuple[str, str, str]:
    """Which step an option is for (empty for all that have it), its name and its value."""
    left, separator, value = text.partition("=")
    if not separator or not left.strip():
        raise BadInput(f"--option {text!r} is not of the form KEY=VALUE.", fix="write it as in --option alpha=0.7")
    step, dot, key = left.strip().replace("-", "_").rpartition(".")
    step = _STEP_NAMES.get(step, step) if dot else ""
    if step and step not in names:
        raise BadInput(f"--option {text}: {step!r} is none of the steps.", fix=nearest(step, names))
    options = [option for name in names if step in ("", name) for option in known[name]]
    if key not in options:
        fix = nearest(key, options) if options else "leave it out, the steps have no options"
        raise BadInput(f"--option {text}: none of the steps has an option {key!r}.", fix=fix)
    return step, key, value.strip()


def _judge(call: Call, model: "Model", fed: "Samples", test: DataLike, labels: LabelsLike) -> "Judge":
    from roundoff.graph.interface import inputs
    from roundoff.studies.transform.study import Judge

    unseen = test is not None
    if unseen:
        words = [test] if is_path(test) else test
        fed = open_data(words, inputs(model), call.sample_options(limit=None))
    cut = call.get("samples") is not None and not unseen
    return Judge(fed, unseen, open_labels(labels, fed.names, cut=cut))
