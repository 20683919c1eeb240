"""The studies of one network, as functions: layers, accumulate, sensitivity, partial, channels, ..."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from roundoff.api.call import Call, names_in, one_of, public, words_in
from roundoff.api.inputs import (
    EvaluatorLike,
    LabelsLike,
    ModelLike,
    PathLike,
    as_path,
    check_files,
    describe_value,
    file_inputs,
    known_evaluator,
    open_evaluator,
    open_labels,
    own_inputs,
)
from roundoff.api.outcome import Outcome
from roundoff.api.subject import (
    Subject,
    SubjectOptions,
    check_subject,
    open_subject,
    target_of,
)
from roundoff.core.coverage import Doubt, Grade, Judgement, LeftOut, Share
from roundoff.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_THRESHOLD_MISSED, BadInput, nearest
from roundoff.graph.transformers import drawn_topology
from roundoff.messages.message import english
from roundoff.studies.samples.result import WorstSamples

if TYPE_CHECKING:
    from roundoff.core.document import InputFile, RunDocument
    from roundoff.core.names import NameList
    from roundoff.core.quantizers import SwitchedSubject
    from roundoff.graph.quantized_model import QuantizedModel
    from roundoff.messages.message import Message
    from roundoff.run.capture import Samples
    from roundoff.run.evaluators import Evaluator
    from roundoff.studies.accumulate.result import Accumulation, Curve
    from roundoff.studies.distribution.result import ChannelReport, DistributionReport, OutlierReport
    from roundoff.studies.layers.result import LayerReport
    from roundoff.studies.partial.result import PartialQuantization
    from roundoff.studies.sensitivity.result import SensitivityReport

_KINDS = ("node", "weight", "activation")
_INSPECTED = ("weight", "bias", "constant", "activation", "node")
_SENSITIVITY_METRICS = ("sqnr_db", "cosine", "mse", "mean_relative_error", "chebyshev")
_SAMPLE_METRICS = ("sqnr_db", "cosine", "mse")
_LEADING = 10
_MOST_BINS = 10_000
_MOST_NAMED = 2


def _choose(option: str, value: Any, choices: Sequence[str]) -> Any:
    if value not in choices:
        raise BadInput(
            english("{option} {value!r} is none of the choices.", option=option, value=value),
            fix=nearest(str(value), choices),
        )
    return value


def _document(call: Call, subject: Subject, *more: "InputFile", **found: Any) -> "RunDocument":
    network = drawn_topology(subject.quantized.float_model)
    return call.document((*subject.inputs(), *more), network, **found)


def _evidence(
    call: Call, subject: Subject, *, tensors: Share | None = None, used: int | None = None, goal: bool = False
) -> Judgement:
    """Whether samples and float network are any ground for a verdict, and what it rests on.

    Args:
        call: Its options.
        subject: What is looked at.
        tensors: Places that were judged, where the study looks at them.
        used: Samples that the study measured on; all of them when None.
        goal: Whether a goal is judged, for which one sample is not enough.
    """
    from roundoff.quantize.agreement import judge_outputs

    model, names = subject.quantized.float_model, subject.samples.names
    found = judge_outputs(model, None, subject.samples, threads=call.threads, progress=call.progress).judgement
    few = () if goal else ("single", "repeated")
    doubts = tuple(each for each in found.doubts if each.kind not in few)
    unusable = [each for each in (found.coverage.samples or Share(0, 0)).left_out if each.why == "nonfinite"]
    used = len(names) if used is None else used
    left = [*unusable, *([LeftOut("few_suffice", len(names) - used)] if used < len(names) else [])]
    judged = max(0, used - sum(each.count for each in unusable))
    coverage = replace(found.coverage, tensors=tensors, samples=Share(len(names), judged, tuple(left)))
    grade: Grade = (
        "fine" if found.grade == "no_evidence" and not doubts and coverage.outputs.complete else found.grade
    )
    return replace(found, grade=grade, coverage=coverage, doubts=doubts)


def _code(judgement: Judgement) -> int:
    """Whether what was measured allows to say anything."""
    return EXIT_OK if judgement.good else EXIT_THRESHOLD_MISSED


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

    call = Call("layers", options, SubjectOptions)
    check_subject(call, model)
    if arithmetic is not None and mode != "integer":
        what = english("--arithmetic has no effect without --mode integer.")
        raise BadInput(what, fix=english("add --mode integer, or leave it out"))
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
        file=subject.file,
    )
    found = analyze_layers(subject.quantized, subject.samples, settings, progress=call.progress)
    found = replace(found, quantized=subject.words)
    more = own_inputs(("arithmetic", arithmetic))
    code = EXIT_OK if found.exit_good else EXIT_THRESHOLD_MISSED
    return Outcome(found, _document(call, subject, *more, layers=found), code)


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

    call = Call("accumulate", options, SubjectOptions)
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
    scored = sum(any(curve.values[at] is not None for curve in found.curves) for at in range(len(found.nodes)))
    judgement = _evidence(call, subject, tensors=Share(len(found.nodes), scored))
    found = replace(found, judgement=judgement)
    return Outcome(found, _document(call, subject, accumulation=found), _code(judgement))


def _name_list(option: str, given: Any) -> "NameList":
    from roundoff.core.names import parse_name_list

    if given is None:
        return ()
    found = parse_name_list(given) if isinstance(given, str) else _as_names(given)
    if not found:
        raise BadInput(
            english("{option} {given!r} names nothing.", option=option, given=given),
            fix=english("leave {option} out, or write [[a],[a,b]]", option=option),
        )
    return found


def _as_names(given: Any) -> "NameList":
    """Nested lists of names as tuples."""
    if not isinstance(given, list | tuple):
        raise BadInput(
            english("A list of names is {said_of}.", said_of=describe_value(given)),
            fix=english("give names, or lists of names"),
        )
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
    from roundoff.graph.switches import Switches
    from roundoff.studies.accumulate.result import Curve
    from roundoff.studies.accumulate.study import named_curves

    switches = Switches(quantized)
    single: list[str | NameList] = list(dict.fromkeys(map(_named, only)))
    found = [*named_curves(switches, (*single, *lists[0]))]
    for names in leave_out:
        members: list[Any] = []
        for word in map(_named, names):
            members += [word] if isinstance(word, str) else word
        nested = named_curves(switches, (tuple(members),), leave_out=True)[0]
        found.append(Curve(_but(names), nested.quantizers))
    numbered = sum(not isinstance(each, str) for each in (*single, *lists[0]))
    found += named_curves(switches, lists[1], leave_out=True, first=numbered)
    return tuple(found) or None


def _but(names: list[str]) -> str:
    from roundoff.studies.accumulate.result import all_but

    more = len(names) - _MOST_NAMED
    return all_but(", ".join(map(str, names[:_MOST_NAMED])), more=max(more, 0))


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
    dask: str | None = None,
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
        dask: Address of a Dask scheduler, whose workers measure nodes; ``local`` to start a cluster here.
        options: What is quantized or is to be, and what it is fed.
    """
    from roundoff.measure.metrics import require
    from roundoff.measure.rows import ROW_FIELDS
    from roundoff.studies.sensitivity.ranking import SensitivitySettings, report_sensitivity
    from roundoff.studies.sensitivity.study import analyze_sensitivity

    call = Call("sensitivity", options, SubjectOptions)
    check_subject(call, model)
    if exact and first_samples is not None:
        what = english("--first-samples has no effect with --exact, which measures all on all samples.")
        raise BadInput(what, fix=english("leave one of them out"))
    metrics = words_in(metric, option="--metric")
    # A misspelt metric should not be told after minutes of work.
    require(metrics, command="sensitivity", offers=ROW_FIELDS)
    kinds = [_choose("--kind", each, _KINDS) for each in words_in(kind, option="--kind")]
    groups = group if isinstance(group, Mapping) else {" + ".join(names): names for names in group}
    settings = SensitivitySettings(
        kinds=tuple(dict.fromkeys(kinds)),
        metrics=metrics,
        outputs=names_in(output_node),
        nodes=names_in(nodes),
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
    if dask is not None and budget is not None:
        what = english("--budget has no effect with --dask.")
        raise BadInput(what, fix=english("leave one of them out"))
    subject = open_subject(call, model)
    begun = time.monotonic()
    journal = None if resume is None else as_path(resume, option="--resume")
    if dask is None:
        measured = analyze_sensitivity(
            subject.quantized, subject.samples, settings, progress=call.progress, journal=journal
        )
    else:
        from roundoff.api import remote

        settings = replace(settings, threads=remote.with_threads(call.threads))
        with remote.open_cluster(dask, call) as (workers, files):
            measured = analyze_sensitivity(
                subject.quantized,
                subject.samples,
                settings,
                progress=call.progress,
                journal=journal,
                elsewhere=remote.measured_elsewhere(workers, subject.quantized, files),
            )
    # What was not done because of the budget was asked for; the rest was not.
    interrupted = not measured.complete and (budget is None or time.monotonic() - begun < budget)
    found = report_sensitivity(measured, subject.quantized)
    most = max((row.samples for rows in found.rankings.values() for row in rows), default=0)
    judgement = _evidence(call, subject, used=most)
    if not measured.complete:
        judgement = replace(judgement, grade="no_evidence", doubts=(*judgement.doubts, Doubt("time")))
    found = replace(found, judgement=judgement)
    code = EXIT_INTERRUPTED if interrupted else _code(judgement)
    return Outcome(found, _document(call, subject, sensitivity=found), code)


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
    dask: str | None = None,
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
        dask: Address of a Dask scheduler, whose workers run samples; ``local`` to start a cluster here.
        options: What is quantized or is to be, and what it is fed.
    """
    from roundoff.studies.partial.result import PartialSettings, check_settings
    from roundoff.studies.partial.study import read_ranking, sweep

    call = Call("partial", options, SubjectOptions)
    check_subject(call, model)
    check_files(("The labels", labels))
    one_of(labels=labels, evaluator=evaluator)
    one_of(evaluator=evaluator, dask=dask)
    one_of(ranking=ranking, nodes=nodes)
    _choose("--kind", kind, _KINDS)
    if nodes is not None and kind != "node":
        what = english("--kind {kind} has no effect on the names of --nodes: each means what it means.", kind=kind)
        raise BadInput(what, fix=english("leave --kind out"))
    # What cannot be read should not be told after minutes of work.
    evaluator = known_evaluator(evaluator)
    measure = open_evaluator(evaluator)
    order = None if nodes is None else names_in(nodes)
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
    subjects, said = _ordered(call, subject, kind, order, ranking)
    settings = replace(settings, labels=right, ranking=said)
    with contextlib.ExitStack() as held:
        elsewhere = None
        if dask is not None:
            from roundoff.api import remote

            elsewhere = held.enter_context(remote.scored_in_cluster(dask, call))
        found = sweep(
            subject.quantized, subject.samples, subjects, settings, progress=call.progress, elsewhere=elsewhere
        )
    doubts = _repeated(subject, measure, threads=call.threads) if found.complete else ()
    if goal is None and score is None and labels is None and measure is None:
        found, doubts = _kept_limits(call, subject, subjects, found)
    judgement = _evidence(call, subject, used=found.samples, goal=True)
    if doubts:
        judgement = replace(judgement, grade="no_evidence", doubts=(*judgement.doubts, *doubts))
    found = replace(found, judgement=judgement)
    more = file_inputs(("ranking", ranking), ("labels", labels), ("evaluator", evaluator))
    code = EXIT_THRESHOLD_MISSED if found.knee is None else _code(judgement)
    return Outcome(
        found, _document(call, subject, *more, partial=found), code if found.complete else EXIT_INTERRUPTED
    )


def _kept_limits(
    call: Call, subject: Subject, subjects: "Sequence[SwitchedSubject]", found: "PartialQuantization"
) -> "tuple[PartialQuantization, tuple[Doubt, ...]]":
    """The sweep with the first count that the one judge has nothing against, where the user asks for nothing else.

    A mean over outputs may reach its goal while one of them is lost.

    Returns:
        The sweep, and what the judge doubts at that count.
    """
    from roundoff.graph.insertion import switch_on
    from roundoff.messages.message import message
    from roundoff.quantize.agreement import judge_outputs
    from roundoff.studies.partial.study import Changes

    model = subject.quantized.float_model
    changes = Changes(subject.quantized.quantizers, found.to)
    limits = ""
    for step in found.steps:
        if step.score < found.goal.value and not limits and step.count:
            continue
        names = [name for each in subjects[: step.count] for name in each.quantizers]
        candidate = switch_on(model, changes.with_changed(names))
        judged = judge_outputs(model, candidate, subject.samples, threads=call.threads, progress=call.progress)
        own = judged.judgement
        # Of class numbers fewer may be equal than a cosine of 0.99 is.
        reached = step.score >= found.goal.value or bool(own.coverage.outputs.indices)
        if own.grade != "lossy" and reached:
            notes = (message("partial.note_limits", count=step.count, limits=limits),) if limits else ()
            doubts = tuple(each for each in own.doubts if each.kind == "indices")
            return replace(found, knee=step.count, notes=(*found.notes, *notes)), doubts
        limits = own.limits if own.grade == "lossy" and step.score >= found.goal.value else limits
    missed = (message("partial.note_limits_missed", limits=limits),) if limits else ()
    return replace(found, knee=None, notes=(*found.notes, *missed)), ()


def _repeated(subject: Subject, evaluator: "Evaluator | None", *, threads: int | None) -> tuple[Doubt, ...]:
    """The doubt about an evaluator that scores the float network otherwise the second time."""
    import numpy as np

    from roundoff.measure.verdicts import repeat_doubts
    from roundoff.run.evaluators import CountedRun, EvaluationSamples, make_run

    if evaluator is None:
        return ()
    model = subject.quantized.float_model
    seen = EvaluationSamples(model, subject.samples)
    run = CountedRun(make_run(model, threads=threads))
    first, second = (evaluator(run, seen) for _ in range(2))
    return repeat_doubts(np.asarray(first), np.asarray(second), asked=bool(run.calls))


def _ordered(
    call: Call, subject: Subject, kind: str, order: Sequence[str] | None, ranking: PathLike | None
) -> "tuple[tuple[SwitchedSubject, ...], Message]":
    """What to change in which order, and where that comes from."""
    from roundoff.messages.message import message
    from roundoff.messages.numbers import score_message

    if order is not None:
        from roundoff.studies.partial.study import named_subjects

        said = message("partial.as_given") if ranking is None else message("partial.as_in", file=str(ranking))
        return named_subjects(subject.quantized, order), said
    from roundoff.studies.sensitivity.study import ranked_subjects

    subjects, found = ranked_subjects(
        subject.quantized,
        subject.samples,
        kind,  # type: ignore[arg-type]
        max_memory=call.max_memory,
        threads=call.threads,
        progress=call.progress,
    )
    most = max(len(row.score.samples) for row in found.rankings[kind])  # type: ignore[index]
    return subjects, message("partial.ranked_by", metric=score_message(found.metrics[0]), count=most)


# Looking at tensors by name.


def _inspected(call: Call, model: ModelLike | None) -> "tuple[Subject, Samples | None]":
    """The model, and what it is fed; None when it has inputs and nothing was given for them."""
    from roundoff.graph.interface import inputs

    subject = open_subject(call, model, required=False, needs_samples=False)
    given = call.get("data")
    nothing = given is None or (isinstance(given, list | tuple) and not given)
    return subject, None if nothing and inputs(subject.quantized.float_model) else subject.samples


def _chosen_nodes(nodes: str | Sequence[str]) -> tuple[str, ...]:
    names = names_in(nodes)
    if not names:
        raise BadInput(
            english("No node, tensor or quantizer was named."),
            fix=english("name some behind the model; '*' for all nodes"),
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
    from roundoff.studies.distribution.study import InspectionSettings, describe_distributions

    call = Call("distribution", options, SubjectOptions)
    names = _chosen_nodes(nodes)
    if bins is not None and not (isinstance(bins, int) and 2 <= bins <= _MOST_BINS):
        raise BadInput(
            english("--bins {bins!r} is no number of bins.", bins=bins),
            fix=english("give 2 to {most_bins}", most_bins=_MOST_BINS),
        )
    kinds = _chosen_kinds(kind)
    subject, fed = _inspected(call, model)
    settings = InspectionSettings(names=names, kinds=kinds, bins=bins, limits=call.limits)
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
    from roundoff.studies.distribution.study import InspectionSettings, describe_channels

    call = Call("channels", options, SubjectOptions)
    names, kinds = _chosen_nodes(nodes), _chosen_kinds(kind)
    subject, fed = _inspected(call, model)
    settings = InspectionSettings(names=names, kinds=kinds, axis=axis, limits=call.limits)
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
    from roundoff.studies.distribution.study import InspectionSettings, find_outliers

    call = Call("outliers", options, SubjectOptions)
    check_subject(call, model)
    settings = InspectionSettings(names=names_in(nodes), log_base=log_base, axis=axis, limits=call.limits)
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
        folder = as_path(directory, option="The folder")
        with output_directory(folder, marker=LIST_NAME, force=force) as staged:
            copy_samples(
                staged,
                ((each.sample, self.fed.feed(each.index)) for each in worst.samples[:top]),
                heading=f"the worst samples of {worst.data} by {worst.metrics[0]}, worst first",
            )
        return folder / LIST_NAME


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

    call = Call("samples", options, SubjectOptions)
    check_subject(call, model)
    metrics = words_in(metric, option="--metric")
    # What is misspelt should not be told after minutes of work.
    for name in metrics:
        get_metric(name)
    settings = WorstSampleSettings(metrics=metrics, outputs=names_in(output_node), limits=call.limits)
    subject = open_subject(call, model)
    found = find_worst_samples(subject.quantized, subject.samples, settings, progress=call.progress)
    judgement = _evidence(call, subject)
    found = replace(found, judgement=judgement)
    document = _document(call, subject, worst_samples=found)
    return WorstSamplesOutcome(found, document, _code(judgement), fed=subject.samples)
