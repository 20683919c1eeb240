"""What is analyzed: a model that is quantized here, or was before; shared by all functions that look into one."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from roundoff.api.call import Call, TargetOptions, words_in
from roundoff.api.inputs import (
    GivenModel,
    ModelLike,
    as_path,
    data_inputs,
    describe_value,
    file_inputs,
    is_path,
    open_data,
    open_model,
    own_inputs,
)
from roundoff.core.document import bytes_input, input_file
from roundoff.core.progress import NO_DEADLINE, Deadline
from roundoff.errors import BadInput, typed_words
from roundoff.messages.message import NOTHING, Message, as_message, english, message

if TYPE_CHECKING:
    from roundoff.core.document import InputFile
    from roundoff.core.plan import QuantPlan, Rule
    from roundoff.core.quantizers import Quantizer
    from roundoff.core.target import Arithmetic, Target
    from roundoff.core.tensors import Array
    from roundoff.graph.load import Model
    from roundoff.graph.quantized_model import QuantizedModel
    from roundoff.quantize.pipeline import Quantization, QuantizeSettings
    from roundoff.quantize.plan_file import SavedPlan
    from roundoff.run.capture import Samples

QuantizedLike: TypeAlias = Any
"""A quantized model as a path, a folder of `quantize`, an ``onnx.ModelProto`` or a `QuantizedModel`."""

# AIMET's files of scales end so.
_ENCODINGS = ".encodings"
# Options that say how to quantize, once it is clear for which chip.
_HOW = ("calibration", "weight_method", "calibration_option", "set", "rules")


class SubjectOptions(TargetOptions, total=False):
    """A model that was quantized before, or the chip to quantize it for; and what it is fed."""

    quantized: QuantizedLike


@dataclass(frozen=True, slots=True)
class Subject:
    """What is analyzed.

    Attributes:
        quantized: The quantized model.
        samples: What it is fed.
        arithmetic: The one it is made for.
        words: Words for it.
        call: The call that asked for it.
        given: The float model that was given, if any.
        file: The quantized model as it was given, where that is a model.
        plan: What was planned for it, where that is known.
        quantization: What quantized it here; None when it was before.
    """

    quantized: "QuantizedModel"
    samples: "Samples"
    arithmetic: "Arithmetic"
    words: Message
    call: Call
    given: GivenModel | None = None
    file: "Model | None" = None
    plan: "QuantPlan | None" = None
    quantization: "Quantization | None" = None

    @property
    def model(self) -> "Model | None":
        """The float model as it was read."""
        return None if self.given is None else self.given.model

    @property
    def origin(self) -> Path:
        """What the user calls it: the float model, else the quantized one."""
        if self.given is not None:
            return self.given.path
        quantized = self.call.get("quantized")
        return Path(quantized) if is_path(quantized) else self.quantized.float_model.path

    def inputs(self) -> "tuple[InputFile, ...]":
        """What was read, for the run document."""
        read = [] if self.given is None else [self.given.origin("model")]
        read += self._quantized_input()
        read += file_inputs(("rules", self.call.get("rules")))
        target = self.call.get("target")
        read += own_inputs(("target", target))
        return (*read, *data_inputs("data", self.call.get("data"), self.samples))

    def _quantized_input(self) -> "tuple[InputFile, ...]":
        given = self.call.get("quantized")
        if given is None or is_path(given):
            return file_inputs(("quantized", given))
        proto = self.quantized.float_model.proto if self.file is None else self.file.proto
        content = proto.SerializeToString() + repr(self.quantized.quantizers).encode("utf-8", "replace")
        return (bytes_input("quantized", f"({type(given).__name__})", content),)


def check_subject(call: Call, model: ModelLike | None) -> None:
    """Refuse options that contradict each other or would have no effect.

    Raises:
        BadInput: They do.
    """
    quantized, target = call.get("quantized"), call.get("target")
    if quantized is not None and target is not None:
        what = english("Both --quantized and --target were given: one is quantized already, the other would be.")
        raise BadInput(what, fix=english("leave one of them out"))
    if target is None:
        given = ["--" + name.replace("_", "-") for name in _HOW if call.get(name)]
        if given:
            already = (
                english("nothing is quantized")
                if quantized is None
                else english("{called} is quantized already", called=_called(quantized))
            )
            say = "says" if len(given) == 1 else "say"
            what = english(
                "{given} {say} how to quantize, but {already}.",
                given=" and ".join(given),
                say=say,
                already=already,
            )
            raise BadInput(what, fix=english("leave them out, or give --target instead of --quantized"))
        if model is None and quantized is None:
            raise BadInput(
                english("No model was given."),
                fix=english("name a float model, or a quantized one with --quantized"),
            )
    elif model is None:
        what = english("--target quantizes a float model, but none was given.")
        raise BadInput(what, fix=english("name the model before --target"))


def open_subject(
    call: Call,
    model: ModelLike | None,
    *,
    required: bool = True,
    needs_samples: bool = True,
    explore: bool = False,
    deadline: Deadline = NO_DEADLINE,
) -> Subject:
    """Quantize for a target, or read what is quantized; without both it is the float model.

    Args:
        call: Its options.
        model: The float model.
        required: Whether there must be something quantized; otherwise a float model will do.
        needs_samples: Whether samples must be given even where nothing has to be calibrated.
        explore: Whether other recipes will be tried; what they would quantize is then observed in the same run.
        deadline: When all has to be done, what comes after it included.

    Raises:
        BadInput: The options contradict each other, or what they name cannot be used.
        ModelFailed: The model cannot be run.
    """
    check_subject(call, model)
    if required and call.get("quantized") is None and call.get("target") is None:
        what = english("Neither a quantized model nor a chip to quantize for was given.")
        raise BadInput(what, fix=or_in_project(english("add --quantized FILE or --target NAME")))
    if call.get("target") is not None:
        return _quantized_here(call, model, explore=explore, deadline=deadline)
    found = _quantized_before(call, model, needs_samples=needs_samples)
    if required:
        check_quantizers(found)
    return found


def check_quantizers(subject: Subject) -> None:
    """Refuse a file that was given as the quantized one and quantizes nothing.

    Raises:
        BadInput: It does not; the float model is not to blame.
    """
    quantized, file = subject.quantized, subject.file
    if file is None or quantized.quantizers or quantized.oddities:
        return
    raise BadInput(
        english("{path}, given with --quantized, holds no quantizers: it is a float model.", path=file.path),
        fix=english("give the file that was quantized, or --target NAME to quantize the float model here"),
    )


def samples_for(call: Call, model: "Model", *, needed: bool = True) -> "Samples":
    """What the model is fed; nothing where it has no inputs, or nothing is needed and none was given."""
    from roundoff.graph.interface import inputs
    from roundoff.run.capture import NO_INPUTS

    specs, data = inputs(model), call.get("data")
    given = data is not None and not (isinstance(data, list | tuple) and not data)
    if not given and not (specs and needed):
        return NO_INPUTS
    return open_data(data, specs, call.sample_options(limit=call.get("samples")))


def notes_on_samples(
    call: Call,
    model: "Model",
    samples: "Samples | None",
    *,
    quantizers: "Sequence[Quantizer]" = (),
    labels: "Array | None" = None,
) -> "tuple[Message, ...]":
    """What is to be said first of samples that calibrate or judge: too few, or not as the network expects them.

    Args:
        call: Its options.
        model: The float model as it was read.
        samples: What it is fed.
        quantizers: Those of the file that they judge, which say what it was calibrated on.
        labels: The right class of each sample.
    """
    from roundoff.studies.check_calibration.study import input_notes

    if samples is None or not samples.names:
        return ()
    found = input_notes(model, samples, quantizers=quantizers, labels=labels, threads=call.threads)
    return (*fewer_samples(call, samples), *found)


def fewer_samples(call: Call, samples: "Samples") -> "tuple[Message, ...]":
    """That there are fewer samples than were asked for; nothing where that is not so."""
    asked, there = call.get("samples"), len(samples.names)
    fewer = isinstance(asked, int) and asked > there
    return (message("check_calibration.fewer_samples", asked=asked, count=there),) if fewer else ()


# How to quantize.


def or_in_project(fix: str) -> str:
    """What to do without a chip, and where the project's file would say it, of which functions take nothing."""
    from roundoff.api.project import target_hint

    hint = target_hint() if typed_words() is not None else ""
    return english("{fix}, or {hint}", fix=fix, hint=hint) if hint else fix


def target_of(given: Any) -> "Target":
    """The chip of that name, or in that file.

    Raises:
        BadInput: There is none.
    """
    from roundoff.core.target import Target
    from roundoff.quantize.targets.files import load_target

    if isinstance(given, Target):
        return given
    if not is_path(given):
        what = english("The target is {said_of}.", said_of=describe_value(given))
        raise BadInput(what, fix=english("give the name of a target, or the path of a .toml file"))
    return load_target(os.fspath(given))


def check_target(call: Call) -> None:
    """Refuse a call that names no chip.

    Raises:
        BadInput: It names none.
    """
    if call.get("target") is None:
        raise BadInput(english("No chip to quantize for was given."), fix=english("add --target NAME"))


def quantize_settings(call: Call) -> "QuantizeSettings":
    """What the options say.

    Raises:
        BadInput: A name is unknown or a value cannot be read.
    """
    from roundoff.quantize.pipeline import QuantizeSettings
    from roundoff.quantize.planning.rules import load_rules

    for name in ("calibration", "weight_method"):
        if call.options.get(name) == "":
            option = "--" + name.replace("_", "-")
            raise BadInput(
                "{option} is empty.", fix=english("name a calibration method, or leave it out"), option=option
            )
    rules = call.get("rules")
    calibration = call.get("calibration")
    return QuantizeSettings(
        target=target_of(call.get("target")),
        rules=(*(() if rules is None else load_rules(as_path(rules, option="--rules"))), *_rules(call.get("set"))),
        # An empty name is told as one that is not known.
        methods=tuple(name.strip() for name in calibration.split(","))
        if isinstance(calibration, str)
        else words_in(calibration, option="--calibration"),
        weight_method=call.get("weight_method", ""),
        options=_calibration_options(call.get("calibration_option")),
        threads=call.threads,
        max_memory=call.max_memory,
    )


def _rules(given: Any) -> "list[Rule]":
    from roundoff.core.plan import Rule
    from roundoff.quantize.planning.rules import parse_rule

    if given is None:
        return []
    if isinstance(given, str):
        given = [given]
    if isinstance(given, Mapping):
        given = [f"{selector}={precision}" for selector, precision in given.items()]
    if not isinstance(given, Sequence) or not all(isinstance(each, str | Rule) for each in given):
        what = english("--set is {said_of}.", said_of=describe_value(given))
        raise BadInput(
            what, fix=english("give precisions by node, as in {{'conv1': 'u16'}}, or texts such as 'conv1=u16'")
        )
    return [each if isinstance(each, Rule) else parse_rule(each) for each in given]


def _calibration_options(given: Any) -> dict[str, float]:
    if given is None:
        return {}
    if isinstance(given, Mapping):
        pairs = [(str(key), value) for key, value in given.items()]
    elif isinstance(given, Sequence) and not isinstance(given, str):
        pairs = [(key.strip(), value) for key, _, value in (str(each).partition("=") for each in given)]
    else:
        what = english("--calibration-option is {said_of}.", said_of=describe_value(given))
        raise BadInput(what, fix=english("give numbers by name, as in {{'percentile': 0.9999}}"))
    return {key: _option_number(key, value) for key, value in pairs}


def _option_number(key: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        text = f"{key}={value}" if value != "" else key
        what = english("--calibration-option {text!r} is not of the form KEY=NUMBER.", text=text)
        raise BadInput(what, fix=english("write it as in --calibration-option percentile=0.9999")) from error


# Opening.


def _called(quantized: QuantizedLike) -> Message:
    return as_message(
        str(quantized) if is_path(quantized) else english("the {name}", name=type(quantized).__name__)
    )


def check_weights(call: Call, given: GivenModel, *, kind: str) -> None:
    """Refuse a model whose weights do not fit the memory that a command may take.

    Args:
        call: The call.
        given: The model.
        kind: What is done with it, of `WEIGHTS_HELD`.

    Raises:
        BadInput: They do not fit.
    """
    from roundoff.run.budget import WEIGHTS_HELD

    doing = english("Quantizing") if kind == "quantize" else english("Analyzing")
    call.limits.check_weights(given.model, doing=doing, times=WEIGHTS_HELD[kind])


def _quantized_here(call: Call, model: ModelLike, *, explore: bool, deadline: Deadline) -> Subject:
    from roundoff.quantize.pipeline import quantize_model

    settings = quantize_settings(call)
    given = open_model(model)
    check_weights(call, given, kind="diagnose" if explore else "study")
    samples = samples_for(call, given.model)
    how: dict[str, Any] = {"explore": explore, "progress": call.progress, "deadline": deadline}
    result = quantize_model(given.model, samples, settings, **how)
    words = message("common.quantized_for", target=settings.target.name, method=str(result.best.method))
    # Said of the model, so that every page that is made of it says so first.
    quantized = result.quantized
    notes = () if result.skipped else notes_on_samples(call, given.model, samples)
    return Subject(
        replace(quantized, notes=(*notes, *quantized.notes)),
        samples,
        settings.target.arithmetic,
        words,
        call,
        given=given,
        plan=result.best.plan,
        quantization=result,
    )


def _quantized_before(call: Call, model: ModelLike | None, *, needs_samples: bool) -> Subject:
    from roundoff.core.target import WIDEST
    from roundoff.graph.preparation.steps import check_float
    from roundoff.graph.quantized_model import QuantizedModel
    from roundoff.graph.readers.reader import read_quantized

    given = call.get("quantized")
    words = NOTHING if given is None else _called(given)
    arithmetic, file, plan = WIDEST, None, None
    ours = None if model is None else open_model(model)
    if ours is not None and needs_samples:
        check_weights(call, ours, kind="study")
    if given is None and ours is not None:
        quantized = QuantizedModel(ours.model, ())
    elif isinstance(given, QuantizedModel):
        quantized = given
    elif is_path(given) and Path(given).is_dir():
        quantized, arithmetic, words, _, plan, file = open_stored(Path(given), ours)
    elif is_path(given) and Path(given).suffix == _ENCODINGS:
        quantized = _encoded(Path(given), ours)
    else:
        if ours is not None:
            check_float(ours.model)
        file = open_model(given, what=english("The quantized model")).model
        quantized = read_quantized(file, float_model=None if ours is None else ours.model)
    samples = samples_for(call, quantized.float_model, needed=needs_samples)
    source = quantized.float_model if ours is None else ours.model
    # A diagnosis proves it, and says so as a finding.
    calibrated = () if call.name == "diagnose" else quantized.quantizers
    notes = notes_on_samples(call, source, samples, quantizers=calibrated)
    quantized = replace(quantized, notes=(*notes, *quantized.notes))
    return Subject(quantized, samples, arithmetic, words, call, given=ours, file=file, plan=plan)


def _encoded(path: Path, model: GivenModel | None) -> "QuantizedModel":
    """The float model with the scales of a file of AIMET's."""
    from roundoff.graph.preparation.steps import check_float
    from roundoff.vendors.dialects.chips import read_encodings

    if model is None:
        what = english("{path} holds scales only, and no float model was given.", path=path)
        raise BadInput(what, fix=english("name the float model they belong to before --quantized"))
    check_float(model.model)
    return read_encodings(path, model.model)


def _right_float_model(folder: Path, saved: "SavedPlan") -> str:
    """Where the float model of a stored quantization is; alone, the folder says it all."""
    alone = english("leave the model out: '--quantized {folder}' has its own", folder=folder)
    places = (Path(saved.model), folder / saved.model, folder / Path(saved.model).name)
    for place in places:
        if place.is_file() and input_file("model", place).sha256 == saved.model_sha256:
            return english("give {place}, or {alone}", place=place, alone=alone)
    return alone


class StoredQuantization(NamedTuple):
    """What an earlier run stored: the model, its arithmetic, words for it, the float model, the plan, the file."""

    quantized: "QuantizedModel"
    arithmetic: "Arithmetic"
    words: Message
    model: "Model | None"
    plan: "QuantPlan"
    file: "Model"


def open_stored(folder: Path, model: ModelLike | None) -> StoredQuantization:
    """What an earlier run of quantize stored in a folder.

    Raises:
        BadInput: It holds no such thing, or was made from another float model.
    """
    from roundoff.graph.load import load_model
    from roundoff.graph.preparation.steps import prepare
    from roundoff.graph.quantized_model import QuantizedModel
    from roundoff.graph.readers.reader import read_quantized
    from roundoff.quantize.plan_file import CORRECTED, load_plan

    saved = load_plan(folder)
    words = message("common.saved_for", folder=str(folder), target=saved.plan.target, method=saved.method)
    # What was written may have been changed since: whoever judges it looks at the file as it is.
    file = load_model(folder / saved.files["fake_quant"])
    if model is None:
        return StoredQuantization(read_quantized(file), saved.arithmetic, words, None, saved.plan, file)
    given = open_model(model)
    if given.origin("model").sha256 != saved.model_sha256:
        what = english(
            "{folder} was made from {model}, whose content differs from that of {path}.",
            folder=folder,
            model=saved.model,
            path=given.path,
        )
        raise BadInput(what, fix=_right_float_model(folder, saved))
    if CORRECTED in saved.files:
        found = read_quantized(load_model(folder / saved.files[CORRECTED]), float_model=given.model)
    else:
        prepared, quantizers = prepare(given.model).model, saved.quantizers()
        known = {name for node in prepared.proto.graph.node for name in (*node.input, *node.output)}
        found = QuantizedModel(prepared, quantizers, preparation=saved.notes)
        if any(each.tensor not in known for each in quantizers):
            # Quantizing changed the graph itself, as a mask that two attentions share and that was limited.
            found = read_quantized(file, float_model=given.model)
    return StoredQuantization(found, saved.arithmetic, words, given.model, saved.plan, file)
