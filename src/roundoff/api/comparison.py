"""Comparing two sets of tensors, as a function."""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack, overload

from roundoff.api.call import Call, DataOptions, one_of, public
from roundoff.api.inputs import (
    GivenModel,
    ModelLike,
    PathLike,
    data_inputs,
    describe_value,
    file_inputs,
    is_path,
    open_model,
)
from roundoff.api.outcome import Outcome
from roundoff.api.subject import fewer_samples, samples_for
from roundoff.core.document import array_input
from roundoff.core.files import is_model
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED, BadInput
from roundoff.messages.message import english, message

if TYPE_CHECKING:
    from roundoff.align.pairing import Pairing
    from roundoff.core.document import InputFile
    from roundoff.core.progress import Progress
    from roundoff.core.tensors import TensorInfo, TensorSource, Topology
    from roundoff.graph.interface import OutputPart
    from roundoff.graph.load import Model
    from roundoff.measure.verdicts import ThresholdSet
    from roundoff.run.capture import Samples
    from roundoff.studies.compare.result import Comparison
    from roundoff.studies.compare.study import CompareSettings

_SIDES = english("give a file or folder of tensors, a dictionary of arrays, or a model with --data")


class ComparedSides(NamedTuple):
    """Both sides of a comparison, which tensor is which, the reference's model if known, and what was fed."""

    reference: "TensorSource"
    candidate: "TensorSource"
    pairing: "Pairing"
    model: "Model | None"
    samples: "Samples | None" = None


class SidesAsked(NamedTuple):
    """What is compared, and how tensors are matched.

    Attributes:
        reference: A path, a model, arrays by name, or a source of tensors.
        candidate: The same of the other side.
        model: The reference's model, when the reference is a dump.
        reference_format: Format of the reference.
        candidate_format: Format of the candidate.
        format: Format of both.
        aliases: Names of the candidate by those of the reference, or a file of them.
        by_value: Match by values where names do not tell.
        run: Of several runs in the candidate's folder, the one of this name.
        reference_run: The same of the reference's.
    """

    reference: Any
    candidate: Any
    model: ModelLike | None = None
    reference_format: str | None = None
    candidate_format: str | None = None
    format: str | None = None
    aliases: Any = None
    by_value: bool = True
    run: str | None = None
    reference_run: str | None = None


@overload
def compare(
    reference: "TensorSource",
    candidate: "TensorSource",
    pairing: "Pairing",
    *,
    settings: "CompareSettings" = ...,
    progress: "Progress" = ...,
) -> "Comparison": ...
@overload
def compare(
    reference: Any,
    candidate: Any,
    pairing: None = None,
    *,
    model: ModelLike | None = None,
    reference_format: str | None = None,
    candidate_format: str | None = None,
    format: str | None = None,
    aliases: PathLike | Mapping[str, str] | None = None,
    no_value_matching: bool = False,
    run: str | None = None,
    reference_run: str | None = None,
    threshold: str | Mapping[str, float] | None = None,
    profile: str | None = None,
    channel_axis: int | None = None,
    **options: Unpack[DataOptions],
) -> "Outcome[Comparison]": ...
@public
def compare(
    reference: Any,
    candidate: Any,
    pairing: "Pairing | None" = None,
    *,
    settings: "CompareSettings | None" = None,
    model: ModelLike | None = None,
    reference_format: str | None = None,
    candidate_format: str | None = None,
    format: str | None = None,
    aliases: PathLike | Mapping[str, str] | None = None,
    no_value_matching: bool = False,
    run: str | None = None,
    reference_run: str | None = None,
    threshold: str | Mapping[str, float] | None = None,
    profile: str | None = None,
    channel_axis: int | None = None,
    **options: Unpack[DataOptions],
) -> "Outcome[Comparison] | Comparison":
    """Compare two sets of tensors: say which differ, how, and where it started.

    With a pairing both sides are sources of tensors that are matched already, and the comparison itself is given.

    Args:
        reference: A file or folder of tensors, arrays by name, or a model that is run on the data.
        candidate: The same of the other side.
        pairing: Which tensor is which, where that is known.
        settings: With a pairing: how to compare.
        model: The reference's model, when the reference is a dump.
        reference_format: Format of the reference; recognised when None.
        candidate_format: Format of the candidate; recognised when None.
        format: Format of both.
        aliases: Names of the candidate by those of the reference, or a file of them.
        no_value_matching: Match by names only.
        run: Of several runs in the candidate's folder, the one of this name; else one that is not the golden copy.
        reference_run: The same of the reference's; else the golden copy.
        threshold: Limits, as ``cosine=0.99``; not good when one is missed.
        profile: Named limits.
        channel_axis: Axis of the channels.
        options: What models are fed, and what they may take.
    """
    from roundoff.studies.compare.study import CompareSettings
    from roundoff.studies.compare.study import compare as compare_pairs

    if pairing is not None or settings is not None:
        if pairing is None:
            raise BadInput(
                english("Settings were given without a pairing."), fix=english("leave them out, or add pairing=")
            )
        call = Call("compare", options, DataOptions)
        return compare_pairs(
            reference, candidate, pairing, settings=settings or CompareSettings(), progress=call.progress
        )
    call = Call("compare", options, DataOptions)
    limits = _thresholds(threshold, profile)
    formats = (reference_format, candidate_format, format)
    asked = SidesAsked(reference, candidate, model, *formats, aliases, not no_value_matching, run, reference_run)
    found, network, inputs = compare_sides(call, asked, limits, channel_axis=channel_axis)
    code = EXIT_OK if found.state == "pass" else EXIT_THRESHOLD_MISSED
    return Outcome(found, call.document(inputs, network, comparison=found), code)


def _thresholds(threshold: Any, profile: str | None) -> "ThresholdSet | None":
    from roundoff.measure.verdicts import load_profile, parse_thresholds

    one_of(threshold=threshold, profile=profile)
    if isinstance(threshold, Mapping):
        threshold = ",".join(f"{name}={limit}" for name, limit in threshold.items())
    if threshold is not None:
        if not isinstance(threshold, str):
            what = english("--threshold is {said_of}.", said_of=describe_value(threshold))
            raise BadInput(what, fix=english("give limits by metric, as in {{'cosine': 0.99}}"))
        return parse_thresholds(threshold)
    return None if profile is None else load_profile(profile)


def compare_sides(
    call: Call, asked: SidesAsked, thresholds: "ThresholdSet | None", *, channel_axis: int | None = None
) -> "tuple[Comparison, Topology | None, tuple[InputFile, ...]]":
    """What differs, the network that the names are of, and what was read."""
    from roundoff.graph.interface import topology
    from roundoff.studies.compare.study import CompareSettings
    from roundoff.studies.compare.study import compare as compare_pairs

    with open_sides(call, asked) as sides:
        network = None if sides.model is None else topology(sides.model)
        parts = () if sides.model is None else _parts(sides.model, sides.reference)
        settings = CompareSettings(thresholds, network, channel_axis, parts)
        found = compare_pairs(
            sides.reference, sides.candidate, sides.pairing, settings=settings, progress=call.progress
        )
        if sides.samples is not None:
            found = replace(found, notes=(*fewer_samples(call, sides.samples), *found.notes))
        if _same_files(asked, sides):
            found = replace(found, notes=(message("compare.same_files"), *found.notes))
        return found, network, tuple(_inputs(call, asked, sides))


def _same_files(asked: SidesAsked, sides: "ComparedSides") -> bool:
    """Whether something is compared with itself; of a folder of several runs these may be two."""
    from roundoff.tensors.stored import runs_of

    given = asked.reference, asked.candidate
    ours, theirs = (Path(each) if isinstance(each, str | os.PathLike) else None for each in given)
    if ours is None or theirs is None or not (ours.exists() and theirs.exists()):
        return False
    return ours.samefile(theirs) and runs_of(sides.reference)[:1] == runs_of(sides.candidate)[:1]


def _parts(model: "Model", reference: "TensorSource") -> "tuple[OutputPart, ...]":
    """The outputs, or slices of them that own branches of the network compute."""
    from roundoff.graph.interface import output_parts, outputs

    shapes = {info.name: info.shape for info in reference.tensors if not info.problem}
    known = {name: shapes[name] for name in outputs(model) if name in shapes}
    return tuple(output_parts(model, known, shapes))


def _inputs(call: Call, asked: SidesAsked, sides: ComparedSides) -> "Iterator[InputFile]":
    for role in ("reference", "candidate"):
        given = getattr(asked, role)
        if is_path(given):
            yield from file_inputs((role, given))
        elif _is_model(given):
            yield open_model(given).origin(role)
        elif isinstance(given, Mapping):
            source: TensorSource = getattr(sides, role)
            read = [
                {info.name: source.read(info.name, sample) for info in source.tensors} for sample in source.samples
            ]
            yield array_input(role, read)
    if asked.model is not None:
        yield open_model(asked.model).origin("model")
    yield from file_inputs(("aliases", asked.aliases))
    yield from data_inputs("data", call.get("data"), sides.samples)


@contextlib.contextmanager
def open_sides(call: Call, asked: SidesAsked) -> Iterator[ComparedSides]:
    """Open both sides and match their tensors.

    Raises:
        BadInput: The options contradict each other, or what they name cannot be used.
        CannotAlign: No tensor of one side could be paired with one of the other.
    """
    from roundoff.align.alignment import align, pairs_by_inputs
    from roundoff.align.names import read_aliases
    from roundoff.align.pairing import pair_samples
    from roundoff.graph.interface import outputs
    from roundoff.graph.quantized_model import dequantized_tensors
    from roundoff.graph.units import derived_constants
    from roundoff.studies.compare.pairs import no_sample_in_common
    from roundoff.tensors.msprobe import as_alike
    from roundoff.tensors.stored import SomeTensors, split_batch

    _check_models(call, asked)
    aliases = asked.aliases
    with contextlib.ExitStack() as stack:
        sides = _Opening(call, asked, stack)
        reference, known, shapes = sides.reference()
        candidate, own = sides.source(asked.candidate, asked.candidate_format, shapes=shapes)
        if own is not None:
            # What is made of weights alone, such as their codes, is no tensor that a sample passes through.
            constant = derived_constants(own.proto.graph) - set(outputs(own))
            candidate = SomeTensors(candidate, frozenset(each.name for each in candidate.tensors) - constant)
        reference, candidate = as_alike(reference, candidate)
        candidate = split_batch(candidate, reference.tensors, reference.samples)
        fed = _is_model(asked.reference) and len(reference.samples) > len(candidate.samples)
        if fed and not (
            pair_samples(reference.samples, candidate.samples) or pairs_by_inputs(reference, candidate)
        ):
            raise no_sample_in_common(reference, candidate, fed=True)
        pairing = align(
            reference,
            candidate,
            aliases=dict(aliases)
            if isinstance(aliases, Mapping)
            else {}
            if aliases is None
            else read_aliases(aliases),
            origins={} if own is None else dequantized_tensors(own),
            outputs=() if known is None else outputs(known),
            by_value=asked.by_value,
            progress=call.progress,
        )
        yield ComparedSides(reference, candidate, pairing, known, sides.samples)


class _Opening:
    """Opens both sides of a comparison; what models were fed is kept."""

    def __init__(self, call: Call, asked: SidesAsked, stack: contextlib.ExitStack) -> None:
        self._call, self._asked, self._stack = call, asked, stack
        self.samples: Samples | None = None

    def reference(self) -> "tuple[TensorSource, Model | None, Sequence[TensorInfo] | None]":
        """The reference, the model behind it, and what that says of shapes."""
        from roundoff.align.alignment import behind_pairs, rename_after
        from roundoff.graph.interface import outputs
        from roundoff.graph.quantized_model import dequantized_tensors
        from roundoff.graph.shapes import tensor_infos

        given, chosen = self._asked.reference, self._asked.reference_format
        if self._asked.model is None:
            reference, own = self.source(given, chosen, shapes=None)
            if own is None:
                return reference, None, None
            behind = behind_pairs(reference, dequantized_tensors(own), kept=outputs(own))
            return behind, own, reference.tensors
        model = open_model(self._asked.model).model
        shapes = tensor_infos(model)
        reference, _ = self.source(given, chosen, shapes=shapes)
        return rename_after(reference, shapes), model, shapes

    def source(
        self, given: Any, chosen_format: str | None, *, shapes: "Sequence[TensorInfo] | None"
    ) -> "tuple[TensorSource, Model | None]":
        """One side; a model comes along when it is one."""
        from roundoff.run.capture import LiveSource
        from roundoff.tensors import open_source
        from roundoff.tensors.stored import MappingSource

        if isinstance(given, Mapping):
            label = "reference" if given is self._asked.reference else "candidate"
            return MappingSource(given, label=label), None
        if hasattr(given, "tensors") and hasattr(given, "read"):
            return given, None
        if is_path(given) and not _is_model(given):
            golden = given is self._asked.reference
            run = self._asked.reference_run if golden else self._asked.run
            form = chosen_format or self._asked.format
            return open_source(Path(given), format=form, shapes=shapes, run=run, golden=golden), None
        if not _is_model(given):
            raise BadInput("A side of the comparison is {said_of}.", fix=_SIDES, said_of=describe_value(given))
        if chosen_format:
            raise BadInput(
                english("A format was given for {given}, which is a model.", given=given),
                fix=english("leave the format option out"),
            )
        own = open_model(given).model
        self.samples = samples_for(self._call, own)
        source = LiveSource(own, self.samples, max_memory=self._call.max_memory, threads=self._call.threads)
        return self._stack.enter_context(contextlib.closing(source)), own


def _is_model(given: Any) -> bool:
    from roundoff.graph.load import Model

    if is_path(given):
        return is_model(Path(given))
    pair = isinstance(given, tuple | list) and len(given) == 2 and all(map(is_path, given))
    return pair or isinstance(given, Model | GivenModel) or type(given).__name__ == "ModelProto"


def _check_models(call: Call, asked: SidesAsked) -> None:
    """Refuse options that would have no effect."""
    models = [each for each in (asked.reference, asked.candidate) if _is_model(each)]
    given = [
        name
        for name, value in call.options.items()
        if value is not None
        and name != "progress"
        and not (isinstance(value, str | list) and value in ("auto", []))
    ]
    given = ["--" + name.replace("_", "-") for name in given]
    if given and not models:
        raise BadInput(
            "{given} {count:was|were} given, but neither side is a model.",
            fix=english("leave {given} out, or give an .onnx or .prototxt file", given=" and ".join(given)),
            given=", ".join(given),
            count=len(given),
        )
    if asked.model is not None and _is_model(asked.reference):
        raise BadInput(
            english("--model was given, but REFERENCE is a model itself."), fix=english("leave --model out")
        )
    for option, run, side in (
        ("--run", asked.run, asked.candidate),
        ("--reference-run", asked.reference_run, asked.reference),
    ):
        if run is not None and (_is_model(side) or not is_path(side)):
            raise BadInput(
                english("{option} chooses among runs in a folder of dumps, and there is none.", option=option),
                fix=english("leave {option} out", option=option),
            )
    if asked.format and len(models) == 2:
        raise BadInput(
            english("--format {format} was given, but both sides are models.", format=asked.format),
            fix=english("leave --format out"),
        )
