"""The diagnosis of a device from its dumps: inputs, then every part by itself, then causes, then the verdict."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace

import numpy as np

from roundoff.core.coverage import Doubt
from roundoff.core.quantizers import Quantizer
from roundoff.core.tensors import Array, TensorSource
from roundoff.diagnosis.causes.device_ranges import (
    clipping_findings,
    follows_scale,
    mixed_findings,
    range_findings,
    roomy_quantizers,
    wide_ranges,
)
from roundoff.diagnosis.devices.kernels.fit import is_known_kernel, try_kernels
from roundoff.diagnosis.devices.overall import coarse_notes, index_findings, rounding_findings, swapped_findings
from roundoff.diagnosis.devices.readout import KnownNames, read_out, with_predicted
from roundoff.diagnosis.devices.replay import DeviceReplay, find_not_finite
from roundoff.diagnosis.devices.suspects import (
    ONE_KERNEL,
    DeviceSuspect,
    OutputLoss,
    Survey,
    find_suspects,
    input_suspects,
    judged_outputs,
    survey,
)
from roundoff.diagnosis.devices.verdict import (
    COARSER_CODES_DB,
    DeviceEvidence,
    computes_in_float,
    conclude,
    output_sqnr_text,
)
from roundoff.diagnosis.investigation import DiagnoseSettings, Investigation
from roundoff.diagnosis.loss import Loss, decibels_of
from roundoff.diagnosis.registry import ask, explain, find_cause
from roundoff.diagnosis.result import Diagnosis, Finding
from roundoff.diagnosis.subject import loss_measures
from roundoff.errors import BadInput, CannotAlign
from roundoff.graph.interface import inputs, outputs, topology
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.measure.verdicts import beside_tensors
from roundoff.messages.message import Argument, Message, as_message, english, joined, message, short_name
from roundoff.messages.numbers import decibels_text, first_of
from roundoff.quantize.agreement import judge_outputs
from roundoff.quantize.targets.files import load_target
from roundoff.run.bench import spread
from roundoff.run.capture import LiveSource, Samples
from roundoff.run.evaluators import Subset
from roundoff.tensors.stored import remarks_of, rungs_of, runs_of, target_of

# One in float may add up in half precision, too, which costs as much more than storing what it computes there;
# what is better than half precision need not be simulated.
_COARSER_FLOAT_DB, _AS_HALF_DB = 20.0, 60.0
# So many tensors, each with no more than one kernel between it and what it reads, show how coarse a device is.
_ENOUGH_NEAR = 3


# More samples of a dump say little more of what each part computes.
_MOST_SAMPLES = 8
# Suspects that are taken apart; of more, something else is wrong than a few of them.
_MOST_SUSPECTS = 12
_MOST_SHARE = 0.6
# Of so many tensors with the lowest SQNR by themselves, one that costs this part of what the outputs lose.
_MOST_PLACES, _MOST_AT_ONE_PLACE = 3, 0.5
# A gain at the outputs that is worth telling.
_NOTICED_DB = 0.5


def diagnose_device(
    subject: Model | QuantizedModel,
    samples: Samples,
    dumps: TensorSource,
    *,
    settings: DiagnoseSettings | None = None,
    names: KnownNames | None = None,
) -> Diagnosis:
    """Find out what is wrong on a device.

    Args:
        subject: The float model, or better the quantized one that the device was given.
        samples: What the device was to be fed.
        dumps: What it wrote.
        settings: What else is known, and how long it may take.
        names: Names of the device's tensors by those of the float model, where they are known.

    Raises:
        CannotAlign: Nothing of the dumps belongs to the model.
        BadInput: The samples do not fit the model.
        ModelFailed: The model cannot be run.
    """
    quantized, given = _as_quantized(subject), samples
    # What a device makes of NaN that it was fed is no fault of it, and shows none.
    # Only those of the dump are read where names tell which: there may be many others.
    every, written = range(len(samples.names)), set(dumps.samples)
    named = [at for at in every if samples.names[at] in written]
    looked = named if len(named) > 1 else every
    broken = {at for at in looked if not _is_finite(samples.feed(at))}
    if broken and len(broken) == len(looked):
        what = english("All samples to compare hold NaN or infinite values ({count}).", count=len(looked))
        raise BadInput(what, fix=english("give the samples that the device was fed, finite ones among them"))
    if broken:
        samples = Subset(samples, tuple(at for at in every if at not in broken))
    rungs = rungs_of(dumps) if len(rungs_of(dumps)) > 1 else {}
    first = next(iter(rungs), "")
    if first and first in runs_of(dumps)[1:]:
        departed = _departed(quantized.float_model, samples, rungs[first](), settings=settings, names=names)
        if departed is not None:
            return departed
    notebook = Investigation(settings or DiagnoseSettings())
    notebook.notes += remarks_of(dumps)
    told = None
    if not quantized.quantizers and (told := _by_scales(quantized.float_model, samples, dumps, names)) is not None:
        quantized = told
        notebook.settings = replace(notebook.settings, arithmetic=load_target(target_of(dumps)).arithmetic)
        notebook.notes.append(message("diagnosis.note_tool_scales", count=len(told.quantizers)))
    with closing(LiveSource(quantized.float_model, samples, threads=notebook.settings.threads)) as reference:
        with notebook.check(message("diagnosis.check_dumps")) as check, np.errstate(all="ignore"):
            sources = reference, dumps
            replay = _replay(quantized, samples, sources, notebook, names, scaled=told is not None)
            check.result = _what_was_read(replay)
        # Dumps may hold anything, NaN and the largest numbers among it.
        with np.errstate(all="ignore"):
            found = _DeviceDiagnosis(replay, notebook).run()
    found = _with_rungs(found, quantized.float_model, samples, rungs, names)
    evidence = judge_outputs(quantized.float_model, None, given, threads=notebook.settings.threads)
    late = bool(found.not_looked_at) and notebook.settings.deadline.left <= 0
    lacking = len(samples.names) - len(replay.readout.samples)
    doubts = (
        *(beside_tensors(evidence.judgement.doubts) if _judged_inside(found) else evidence.judgement.doubts),
        *(() if found.judgement is None else found.judgement.doubts),
        *((Doubt("lacking", lacking, len(samples.names)),) if lacking else ()),
        *((Doubt("time"),) if late else ()),
    )
    return _doubted(found, doubts)


def _judged_inside(found: Diagnosis) -> bool:
    """Whether more than inputs and outputs was judged."""
    covered = None if found.judgement is None else found.judgement.coverage
    return (
        covered is not None
        and covered.tensors is not None
        and (covered.tensors.judged > len(covered.outputs.judged))
    )


def _with_rungs(
    found: Diagnosis,
    model: Model,
    samples: Samples,
    rungs: Mapping[str, Callable[[], TensorSource]],
    names: KnownNames | None,
) -> Diagnosis:
    """The diagnosis with what the outputs keep in each run of the tool, and between which two most is lost."""
    kept: dict[str, float] = {}
    for name, opened in rungs.items():
        with suppress(CannotAlign), open_replay(model, samples, opened(), names=names) as replay:
            outputs = OutputLoss(replay)
            if outputs.can_tell:
                kept[name] = outputs.of_device().sqnr_db
    if len(kept) < 2:
        return found
    told: dict[str, Argument] = {
        "rungs": ", ".join(f"{name} {decibels_text(value)}" for name, value in kept.items())
    }
    if len(kept) < 3:
        return replace(found, notes=(*found.notes, message("diagnosis.rungs", **told)))
    errors = [0.0, *(10 ** (-value / 10) for value in kept.values())]
    steps = [("float", *kept)[at : at + 2] for at in range(len(kept))]
    before, after = max(zip(np.diff(errors), steps, strict=True), key=lambda each: float(each[0]))[1]
    text = message("diagnosis.rungs_lost", before=before, after=after, **told)
    return replace(found, verdict=joined([found.verdict, text]))


def _departed(
    model: Model,
    samples: Samples,
    golden: TensorSource,
    *,
    settings: DiagnoseSettings | None,
    names: KnownNames | None,
) -> Diagnosis | None:
    """The diagnosis of a tool's own float run where it is not the model's; None where it is, or cannot be told."""
    quiet = replace(settings or DiagnoseSettings(), tell=lambda _: None)
    try:
        found = diagnose_device(model, samples, golden, settings=quiet, names=names)
    except CannotAlign:
        return None
    departed = message("diagnosis.rung_golden")
    if found.kind == "culprits":
        told = not all(each.cause == "wrong-dump" for each in found.findings)
        return replace(found, verdict=joined([departed, found.verdict])) if told else None
    # Where all of it is another's, no place is; a float run that loses this much is not the model's all the same.
    lost = found.judgement is not None and found.judgement.grade == "lossy"
    return replace(found, kind="not_enough_evidence", verdict=departed) if lost else None


def _doubted(found: Diagnosis, doubts: Sequence[Doubt]) -> Diagnosis:
    """The diagnosis with what speaks against a good verdict, which is then not given."""
    # A device is judged by what it computed of what it was fed; one sample shows some of that.
    doubts = tuple(each for each in doubts if each.kind != "single")
    judgement = found.judgement
    if not doubts or judgement is None:
        return found
    good = judgement.grade == "fine"
    judgement = replace(judgement, grade="no_evidence" if good else judgement.grade, doubts=doubts)
    found = replace(found, judgement=judgement)
    if found.kind != "healthy":
        return found
    return replace(found, kind="not_enough_evidence", verdict=message("diagnosis.device_no_ground"))


def _by_scales(
    model: Model, samples: Samples, dumps: TensorSource, names: KnownNames | None
) -> QuantizedModel | None:
    """The network as the tool's own scales code it; None where they are not known."""
    if not target_of(dumps):
        return None
    from roundoff.diagnosis.devices.tool_scales import expected_by_scales

    return expected_by_scales(model, samples, dumps, names=names)


def _as_quantized(subject: Model | QuantizedModel) -> QuantizedModel:
    return subject if isinstance(subject, QuantizedModel) else QuantizedModel(subject, ())


@contextmanager
def open_replay(
    subject: Model | QuantizedModel,
    samples: Samples,
    dumps: TensorSource,
    *,
    settings: DiagnoseSettings | None = None,
    names: KnownNames | None = None,
) -> Iterator[DeviceReplay]:
    """A device as `diagnose_device` plays it again part by part; for those who go on from what that found.

    Raises:
        CannotAlign: Nothing of the dumps belongs to the model.
        BadInput: The samples do not fit the model.
        ModelFailed: The model cannot be run.
    """
    notebook = Investigation(settings or DiagnoseSettings())
    quantized = _as_quantized(subject)
    with closing(LiveSource(quantized.float_model, samples, threads=notebook.settings.threads)) as reference:
        yield _replay(quantized, samples, (reference, dumps), notebook, names)


def _replay(
    quantized: QuantizedModel,
    samples: Samples,
    sources: tuple[LiveSource, TensorSource],
    notebook: Investigation,
    names: KnownNames | None,
    *,
    scaled: bool = False,
) -> DeviceReplay:
    settings = notebook.settings
    coded: dict[str, Quantizer] = {}
    for each in quantized.quantizers:
        if each.kind == "activation" and not each.after:
            coded.setdefault(each.tensor, each)
    readout = read_out(
        *sources,
        tensors=[info.name for info in sources[0].tensors if not info.problem],
        quantizers=coded,
        ends=(*(each.name for each in inputs(quantized.float_model)), *outputs(quantized.float_model)),
        names=names,
        progress=settings.progress,
    )
    replay = DeviceReplay(
        quantized.float_model,
        quantized.quantizers,
        samples,
        readout,
        arithmetic=settings.arithmetic,
        indices=spread(len(readout.samples), _MOST_SAMPLES),
        threads=settings.threads,
        scaled=scaled,
    )
    usable = [info.name for info in sources[0].tensors if info.dtype.startswith("float") and not info.problem]
    whole = with_predicted(readout, replay.golden, feed=replay.feed(0), tensors=usable)
    found = len(whole.pairs) - len(readout.pairs)
    if found:
        notebook.notes.append(message("diagnosis.note_predicted", count=found))
    notebook.notes += readout.notes
    left_out = tuple(each for each in readout.left_out if each.name not in whole.pairs)
    notebook.skipped += [
        message("diagnosis.left_out", tensor=each.name, why=as_message(each.detail)) for each in left_out
    ]
    return replace(replay, readout=replace(whole, left_out=left_out))


def _is_finite(feed: Mapping[str, Array]) -> bool:
    return all(each.dtype.kind != "f" or bool(np.isfinite(each).all()) for each in map(np.asarray, feed.values()))


def _what_was_read(replay: DeviceReplay) -> Message:
    computed = sum(len(node.outputs) for node in topology(replay.model).nodes)
    kinds: dict[str, Argument] = {
        "integer": message("diagnosis.dtype_integer"),
        "float16": message("diagnosis.dtype_half"),
        "bfloat16": "bfloat16",
        "float32": "float",
    }
    return message(
        "diagnosis.dump_read",
        count=len(replay.tensors),
        all=computed,
        samples=len(replay.readout.samples),
        dtype=kinds[replay.numbers.kind],
    )


class _DeviceDiagnosis:
    def __init__(self, replay: DeviceReplay, notebook: Investigation) -> None:
        self._replay, self._notebook = replay, notebook
        self._outputs = OutputLoss(replay)
        # What the outputs lose when the worst that was found is right.
        self._best: Loss | None = None

    def run(self) -> Diagnosis:
        progress = self._notebook.settings.progress
        with self._notebook.check(message("diagnosis.check_inputs")) as check:
            inputs = input_suspects(self._replay)
            check.ok = not inputs
            check.result = self._inputs_text(inputs)
        with self._notebook.check(message("diagnosis.check_values")) as check:
            nowhere = find_not_finite(self._replay)
            check.ok = not nowhere.tensors
            check.result = nowhere.text if nowhere.tensors else None
        with self._notebook.check(message("diagnosis.check_parts")) as check:
            self._notebook.notes += coarse_notes(self._replay)
            found = survey(self._replay, progress)
            suspects, faint = find_suspects(self._replay, found, progress)
            # What reads NaN can only hand it on, unless that is in the dump alone.
            nowhere = nowhere.without_wrong_dumps(self._replay.believed, self._replay)
            self._notebook.notes += nowhere.notes
            suspects = [each for each in suspects if each.tensor not in nowhere.readers]
            # What the tool's own scale makes of a tensor is no fault of a kernel; the scale may be one.
            suspects, faint = (
                [each for each in group if not follows_scale(self._replay, each)] for group in (suspects, faint)
            )
            check.ok = not suspects
            check.result = _parts_text(found, suspects, len(nowhere.readers))
        loss, expected = self._losses()
        unlike = None if loss is None else self._unlike(loss) if expected is None else self._roomy(loss)
        too_many = len(suspects) > max(_MOST_SUSPECTS // 2, _MOST_SHARE * len(self._replay.tensors))
        findings = self._explained(inputs, [] if too_many else suspects)
        if not too_many and not nowhere.tensors:
            findings += self._faint(faint)
        if not too_many:
            accused = frozenset(name for each in findings for name in each.tensors)
            findings += rounding_findings(self._replay, found, accused)
            findings += range_findings(self._replay, found, accused)
        if loss is not None and loss.agrees:
            # A range that cuts off what the outputs do not need was chosen so.
            findings = [each for each in findings if each.cause != "clipping"]
        exchanged = swapped_findings(self._replay, findings)
        named = {name for each in exchanged for name in each.tensors}
        findings = [each for each in findings if named.isdisjoint(each.tensors)]
        weighed = (
            *exchanged,
            *(self._weighed(each, loss, expected) for each in findings),
            *index_findings(self._replay),
            *([] if too_many else self._range_findings(findings, loss)),
        )
        evidence = DeviceEvidence(
            replay=self._replay,
            survey=found,
            findings=weighed,
            suspects=(*inputs, *suspects),
            loss=loss,
            expected=expected or self._best or (unlike and unlike[0]),
            unexplained=too_many,
            not_finite=nowhere,
            outputs=judged_outputs(self._replay, nowhere),
            indices={name: self._replay.readout.equal_indices(name) for name in self._replay.readout.indices},
            open=self._not_explained(suspects)
            or (unlike and unlike[1])
            or self._at_one_place(found, weighed, loss),
        )
        return conclude(evidence, self._notebook)

    def _range_findings(self, findings: Sequence[Finding], loss: Loss | None) -> list[Finding]:
        """Ranges of joined parts, and those that cut values off."""
        accused = frozenset(name for each in findings for name in each.tensors)
        mixed = mixed_findings(self._replay, accused)
        if loss is None or loss.agrees:
            return mixed
        accused |= {name for each in mixed for name in each.tensors}
        cut = clipping_findings(self._replay, self._outputs, loss, accused)
        whole = [self._outputs.with_right(each.tensors[0]) for each in cut]
        known = [] if self._best is None else [self._best]
        self._best = min([*whole, *known], key=lambda each: each.value, default=None)
        return [*mixed, *cut]

    def _at_one_place(self, found: Survey, findings: Sequence[Finding], loss: Loss | None) -> Message | None:
        """The one tensor at which most of the loss comes up, where nobody knows how it is coded; else None.

        What 8 bits may cost there is a guess, and a kernel that is wrong may cost as much.
        """
        replay = self._replay
        if loss is None or loss.agrees or findings or replay.quantizers:
            return None
        worst = sorted(found.local, key=lambda name: found.local[name].sqnr_db)[:_MOST_PLACES]
        # Parts of a joined output are of different size: its energy does not show what happens to the smaller.
        for name in dict.fromkeys((*worst, *(each for each in outputs(replay.model) if each in found.local))):
            as_is = self._outputs.behind(name, lambda _, written: written)
            right = self._outputs.behind(name, lambda computed, _: computed)
            if as_is.value - right.value > _MOST_AT_ONE_PLACE * loss.value:
                kept = output_sqnr_text(loss)
                return message("diagnosis.device_one_place", kept=kept, tensor=short_name(name))
        return None

    def _not_explained(self, suspects: Sequence[DeviceSuspect]) -> Message | None:
        """How many tensors do not follow, where no time was left to tell why."""
        if not suspects or not self._notebook.out_of_time():
            return None
        return message("diagnosis.device_not_following", count=len(suspects), all=len(self._replay.tensors))

    def _inputs_text(self, inputs: Sequence[DeviceSuspect]) -> Message:
        if inputs:
            return message("diagnosis.inputs_differ", names=tuple(f"'{each.tensor}'" for each in inputs))
        return message("diagnosis.inputs_same" if self._replay.inputs else "diagnosis.inputs_unknown")

    def _losses(self) -> tuple[Loss | None, Loss | None]:
        if not self._outputs.can_tell:
            return None, None
        with self._notebook.check(message("diagnosis.check_outputs")) as check:
            loss = self._outputs.of_device()
            expected = self._outputs.of_arithmetic() if self._replay.quantizers else None
            check.result = message("diagnosis.against_float", kept=output_sqnr_text(loss))
            if expected is not None:
                usual = decibels_of(expected.sqnr_db)
                check.result = message(
                    "diagnosis.against_float_and_arithmetic", kept=output_sqnr_text(loss), db=usual
                )
            check.ok = loss.agrees
        return loss, expected

    def _unlike(self, loss: Loss) -> tuple[Loss, Message] | None:
        """What arithmetic as the device's loses, where that is much less and no tensor can say why; else None."""
        replay, kept = self._replay, output_sqnr_text(loss)
        told: dict[str, Argument] = {}
        if computes_in_float(replay):
            near = sum(len(span.nodes) <= ONE_KERNEL for span in replay.spans.values())
            if near >= _ENOUGH_NEAR or loss.sqnr_db >= _AS_HALF_DB:
                return None
            usual = self._outputs.of_half()
            key, count, margin = "diagnosis.device_unlike_float", len(replay.tensors), _COARSER_FLOAT_DB
        elif replay.readout.fits:
            usual = self._outputs.of_eight_bits()
            key, count, margin = "diagnosis.device_unlike_codes", len(replay.readout.fits), COARSER_CODES_DB
        elif (wide := wide_ranges(replay))[0]:
            usual = self._outputs.of_eight_bits()
            key, count, margin = "diagnosis.device_wide", wide[0], COARSER_CODES_DB
            told["times"] = wide[1]
        else:
            return None
        if loss.excess_db(usual, negligible=10 ** (-(_AS_HALF_DB + _COARSER_FLOAT_DB) / 10)) <= margin:
            unscaled = tuple(
                f"'{short_name(name)}'" for name in outputs(replay.model) if name in replay.readout.fits
            )
            return (loss, message("diagnosis.device_unscaled", names=unscaled, kept=kept)) if unscaled else None
        return usual, message(key, kept=kept, usual=decibels_text(usual.sqnr_db), count=count, **told)

    def _roomy(self, loss: Loss) -> tuple[Loss, Message] | None:
        """What the file's bits lose with ranges of these samples, where its own are far too wide; else None.

        A device that follows such a file is right, and the file asks for what it loses.
        """
        count, times, quantizers = roomy_quantizers(self._replay)
        if not count or self._notebook.out_of_time():
            return None
        usual = self._outputs.of_quantizers(quantizers)
        if loss.excess_db(usual, negligible=10 ** (-_AS_HALF_DB / 10)) <= COARSER_CODES_DB:
            return None
        kept, best = output_sqnr_text(loss), decibels_text(usual.sqnr_db)
        return usual, message("diagnosis.device_wide", kept=kept, usual=best, count=count, times=times)

    def _explained(self, inputs: Sequence[DeviceSuspect], suspects: Sequence[DeviceSuspect]) -> list[Finding]:
        findings: list[Finding] = []
        known: set[tuple[str, str]] = set()
        for suspect in [*inputs, *suspects][:_MOST_SUSPECTS]:
            if self._notebook.out_of_time():
                self._notebook.skip(message("diagnosis.skip_why", tensor=suspect.tensor))
                continue
            nodes, tensors = suspect.nodes, (suspect.tensor,)
            told = explain(self._replay, suspect, of="device", nodes=nodes, tensors=tensors)
            if told is not None and not told.proven and suspect.whole:
                # Of a whole network, one of so many ways explains some of anything: nobody can tell.
                kernel = find_cause("kernel-fault", "device")
                asked = ask(kernel, self._replay, suspect, nodes=nodes, tensors=tensors)
                told = told if asked is None else asked[0]
            told, way = self._placed(told, suspect)
            if way is not None:
                # Two that read a tensor which was not dumped show the one fault of its kernel.
                if way in known:
                    continue
                known.add(way)
            # What explains less than nothing explains nothing: the tensor is off by too little to tell why.
            if told is not None and (told.proven or suspect.whole or not _worsens(told)):
                findings.append(told)
        return findings

    def _faint(self, suspects: Sequence[DeviceSuspect]) -> list[Finding]:
        """Tensors that a known wrong kernel or a gain gives, although no value by itself is off by too much."""
        findings = []
        for suspect in suspects[:_MOST_SUSPECTS]:
            if self._notebook.out_of_time():
                self._notebook.skip(message("diagnosis.skip_why", tensor=suspect.tensor))
                continue
            nodes, tensors = suspect.nodes, (suspect.tensor,)
            told = explain(self._replay, suspect, of="device", nodes=nodes, tensors=tensors)
            known = told is not None and (told.cause != "kernel-fault" or is_known_kernel(self._replay, suspect))
            if told is not None and told.proven and known:
                findings.append(self._placed(told, suspect)[0] or told)
        return findings

    def _placed(
        self, told: Finding | None, suspect: DeviceSuspect
    ) -> tuple[Finding | None, tuple[str, str] | None]:
        """The finding with the node first that a wrong kernel was fitted for, and that node with what it does."""
        if told is None or not told.proven or told.cause != "kernel-fault":
            return told, None
        fit = try_kernels(self._replay, suspect).fit
        if fit is None or not fit.node:
            return told, None
        return replace(told, nodes=tuple(dict.fromkeys((fit.node, *told.nodes)))), (fit.node, str(fit.text))

    def _weighed(self, finding: Finding, loss: Loss | None, expected: Loss | None) -> Finding:
        """The finding with what the outputs gain when its tensor, and what follows it, is right."""
        if finding.cause == "wide-range":
            # The network was run again with the right range; the device itself does what it was told to.
            gains = [each.after - each.before for each in finding.measures[1:]]
            return replace(finding, share=1 - 10 ** (-max(0.0, gains[0]) / 10) if gains else 0.0)
        one = len(finding.tensors) == 1
        if loss is None or not one or finding.tensors[0] in self._replay.believed:
            return finding
        right = self._outputs.with_right(finding.tensors[0])
        if self._best is None or right.value < self._best.value:
            self._best = right
        best = expected.value if expected is not None else 0.0
        possible = loss.value - min(best, right.value)
        share = max(0.0, min(1.0, (loss.value - right.value) / possible)) if possible > 0 else 0.0
        gain = loss_measures(loss, right)[0]
        if gain.after > gain.before + _NOTICED_DB:
            return replace(finding, measures=(*finding.measures, gain), share=share)
        if finding.cause == "integer-implementation":
            nothing = message("diagnosis.integer_implementation_costs_nothing")
            return replace(finding, summary=joined([finding.summary, nothing]))
        return finding


def _worsens(finding: Finding) -> bool:
    """Whether what was tried leaves more of the error than there was."""
    return any(
        each.after < each.before if each.higher_is_better else each.after > each.before
        for each in finding.measures[:1]
    )


def _parts_text(found: Survey, suspects: Sequence[DeviceSuspect], unknown: int) -> Message:
    good, everything = len(found.local) - len(suspects) - unknown, len(found.local)
    if not suspects:
        return message("diagnosis.parts_follow", count=good, all=everything)
    names = first_of([each.tensor for each in suspects], 3)
    return message("diagnosis.parts_follow_except", count=good, all=everything, names=names)
