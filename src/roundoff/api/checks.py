"""Checks of what a model is fed, and of the machine, as functions: check_io, check_calibration, self_check."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from roundoff.api.call import Call, DataOptions, Limits, numbers_in, public, sizes_in
from roundoff.api.inputs import (
    DataLike,
    GivenModel,
    LabelsLike,
    ModelLike,
    data_inputs,
    describe_value,
    file_inputs,
    is_path,
    open_data,
    open_labels,
    open_model,
    own_inputs,
)
from roundoff.api.outcome import Outcome, PageOutcome
from roundoff.api.subject import target_of
from roundoff.core.document import array_input, input_file
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED, BadInput, nearest
from roundoff.messages.message import english

if TYPE_CHECKING:
    from roundoff.core.document import InputFile
    from roundoff.run.host_arithmetic import HostArithmetic
    from roundoff.studies.check_calibration.result import CalibrationCheck
    from roundoff.studies.check_io.result import IoCheck, Stage
    from roundoff.studies.check_io.study import IoCheckSettings, RawLayout, SideLike, StageValues

STAGES: "dict[Stage, str]" = {
    "original": "the original inputs; one path serves both sides",
    "preprocessed": "what the model is fed",
    "output": "what the model gives",
    "result": "what post-processing makes of it",
}
"""The stages of a pipeline, and what they hold."""

_MISSING = "-"
_HIGHEST_SHARE = 0.5
_Pair = "tuple[SideLike | None, SideLike | None]"


@public
def check_io(
    *,
    original: Any = None,
    preprocessed: Any = None,
    output: Any = None,
    result: Any = None,
    shape: Any = None,
    dtype: Any = None,
    model: ModelLike | None = None,
    scale: float | None = None,
    mean: Any = None,
    std: Any = None,
    input_tolerance: float = 1e-4,
    result_tolerance: float = 1e-3,
) -> "Outcome[IoCheck]":
    """Compare what a deployed model is fed and gives with what it was in training.

    Each stage is a pair: training's side, then the deployed one; each a file, a folder, an array, or arrays by
    the name of the sample. None, or ``-``, stands for a side that is not there.

    Args:
        original: The original inputs; one side serves both.
        preprocessed: What the model is fed.
        output: What the model gives.
        result: What post-processing makes of it.
        shape: Shape of a sample in raw files; or shapes by stage.
        dtype: Type of raw files; or types by stage.
        model: The float model; says the shapes of raw files.
        scale: What training does: factor on pixels.
        mean: What training does: one number or one per channel.
        std: What training does: one number or one per channel.
        input_tolerance: Largest absolute difference of inputs that passes.
        result_tolerance: Largest absolute difference of outputs and results that passes.
    """
    from roundoff.studies.check_io.study import check_io as check_stages
    from roundoff.vendors.pulsar2.config.document import with_fields

    given = {"original": original, "preprocessed": preprocessed, "output": output, "result": result}
    call = Call("check_io", {}, Limits)
    pairs = _pairs(given)
    settings = _settings(scale, mean, std, (input_tolerance, result_tolerance))
    loaded = None if model is None else open_model(model)
    found = with_fields(check_stages(_values(pairs, _layouts(shape, dtype, loaded)), settings))
    read: list[InputFile] = []
    for stage, pair in pairs.items():
        for side, each in zip(("training", "deployed"), pair, strict=True):
            role = f"{stage}, {side}"
            if isinstance(each, Path):
                read.append(input_file(role, each))
            elif each is not None:
                read.append(array_input(role, [each if isinstance(each, Mapping) else {"": each}]))
    read += [] if loaded is None else [loaded.origin("model")]
    code = EXIT_OK if found.passed else EXIT_THRESHOLD_MISSED
    return Outcome(found, call.document(read, io_check=found), code)


def _pairs(given: Mapping[str, Any]) -> "dict[Stage, Any]":
    """Both sides of every stage that was given."""
    found: dict[Stage, Any] = {}
    for stage in STAGES:
        each = given[stage]
        if each is None:
            continue
        pair = list(each) if isinstance(each, list | tuple) else [each]
        if len(pair) == 1 and stage == "original":
            pair = [*pair, _MISSING]
        if len(pair) != 2:
            raise BadInput(
                "--{stage} has {count} path(s); two are needed: training's and the deployed side's.",
                fix=english(
                    "write --{stage} TRAINING DEPLOYED, with {missing} for a side that is not there",
                    stage=stage,
                    missing=_MISSING,
                ),
                stage=stage,
                count=len(pair),
            )
        one, other = (_side(stage, side) for side in pair)
        if one is None and other is None:
            raise BadInput(
                english("--{stage} names neither side.", stage=stage),
                fix=english("give a path, or leave --{stage} out", stage=stage),
            )
        found[stage] = (one, other)
    if not found:
        stages = ", ".join(f"--{stage}" for stage in STAGES)
        raise BadInput(
            english("There is nothing to check."), fix=english("give at least one of {stages}", stages=stages)
        )
    return found


def _side(stage: str, given: Any) -> "SideLike | None":
    import numpy as np

    if given is None or (isinstance(given, str) and given == _MISSING):
        return None
    if is_path(given):
        return Path(given)
    if isinstance(given, Mapping) and not given:
        raise BadInput(
            english("--{stage}: a side is an empty dictionary.", stage=stage),
            fix=english("give at least one array, by its name"),
        )
    members = given if isinstance(given, Mapping) else {"": given}
    arrays = {}
    for name, value in members.items():
        try:
            arrays[str(name)] = np.asarray(value)
        except (TypeError, ValueError, RuntimeError) as error:
            fix = english("give a path, or numpy arrays of numbers")
            raise BadInput(
                english("--{stage}: {split}.", stage=stage, split=" ".join(str(error).split())), fix=fix
            ) from error
        if arrays[str(name)].dtype.kind not in "biufc":
            fix = english("give a path, an array, or arrays by the name of their sample")
            raise BadInput("--{stage}: a side is {said_of}.", fix=fix, stage=stage, said_of=describe_value(given))
    return arrays if isinstance(given, Mapping) else arrays[""]


def _settings(scale: Any, mean: Any, std: Any, tolerances: tuple[float, float]) -> "IoCheckSettings":
    from roundoff.preprocessing.conventions import BYTE, MeanStd
    from roundoff.studies.check_io.study import IoCheckSettings

    for option, value in zip(("input", "result"), tolerances, strict=True):
        if value < 0:
            raise BadInput(
                english("--{option}-tolerance {value:g} is negative.", option=option, value=value),
                fix=english("give 0 or more"),
            )
    if scale is None and mean is None and std is None:
        return IoCheckSettings(*tolerances)
    scale, mean, std = map(numbers_in, (scale, mean, std))
    factor, means, stds = 1.0 if scale is None else scale, _channels(mean) or (0.0,), _channels(std) or (1.0,)
    if 0 in (factor, *stds):
        what = english("A scale or std of 0 leaves nothing of a picture.")
        raise BadInput(what, fix=english("give --scale and --std numbers other than 0"))
    channels = max(len(means), len(stds))
    if not {len(means), len(stds)} <= {1, channels}:
        raise BadInput(
            english("The mean has {count} numbers, the std {count2}.", count=len(means), count2=len(stds)),
            fix=english("give one number, or one per channel"),
        )
    means, stds = (values * (channels // len(values)) for values in (means, stds))
    # The same numbers for values from 0 to 1.
    unit = BYTE * factor
    known = MeanStd("training", tuple(value / unit for value in means), tuple(value / unit for value in stds))
    return IoCheckSettings(*tolerances, (known,))


def _channels(given: Any) -> tuple[float, ...]:
    if given is None:
        return ()
    return tuple(map(float, given)) if isinstance(given, Sequence) else (float(given),)


def _values(pairs: "Mapping[Stage, Any]", layouts: "Mapping[Stage, RawLayout]") -> "dict[Stage, StageValues]":
    from roundoff.studies.check_io.study import read_sides

    return {stage: read_sides(one, other, layouts[stage]) for stage, (one, other) in pairs.items()}


def _layouts(shape: Any, dtype: Any, model: GivenModel | None) -> "dict[Stage, RawLayout]":
    """What is said of the raw files of each stage."""
    from roundoff.studies.check_io.study import RawLayout, numeric_type

    shapes, types = _by_stage("--shape", shape), _by_stage("--dtype", dtype)
    for each in types.values():
        numeric_type(each)
    modelled = {} if model is None else _model_shapes(model)
    found: dict[Stage, RawLayout] = {}
    for stage in STAGES:
        said = shapes.get(stage)
        sizes = modelled.get(stage) if said is None else sizes_in("--shape", said)
        found[stage] = RawLayout(types.get(stage), sizes)
    return found


def _by_stage(option: str, given: Any) -> "dict[Stage, Any]":
    """One value for all stages, or one each."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        return dict.fromkeys(STAGES, given)
    for name in given:
        if name not in STAGES:
            raise BadInput(
                "There is no stage {name!r} ({option}).", fix=nearest(str(name), STAGES), name=name, option=option
            )
    return dict(given)


def _model_shapes(given: GivenModel) -> "dict[Stage, tuple[int, ...]]":
    """Shapes of what goes in and comes out; a free first axis counts one."""
    from roundoff.graph.interface import inputs, outputs
    from roundoff.graph.shapes import tensor_infos

    model = given.model
    found: dict[Stage, tuple[int, ...]] = {}
    fed = inputs(model)
    if len(fed) == 1 and fed[0].shape is not None:
        axes = tuple(
            1 if not place and not isinstance(axis, int) else axis for place, axis in enumerate(fed[0].shape)
        )
        if all(isinstance(axis, int) for axis in axes):
            found["preprocessed"] = tuple(axis for axis in axes if isinstance(axis, int))
    results = outputs(model)
    sizes = {info.name: info.shape for info in tensor_infos(model)}
    if len(results) == 1 and sizes.get(results[0]):
        found["output"] = sizes[results[0]]
    return found


@public
def check_calibration(
    model: ModelLike,
    *,
    target: Any = "generic-int8",
    calibration: str | None = None,
    held_out: DataLike = None,
    share: float = 0.2,
    labels: LabelsLike = None,
    seed: int = 0,
    **options: Unpack[DataOptions],
) -> "Outcome[CalibrationCheck]":
    """Say whether samples are fit for calibration, what is wrong, and what to do.

    Args:
        model: The float model.
        target: The chip; says which tensors are quantized, and how.
        calibration: Method by which ranges are chosen; the target's when None.
        held_out: Other samples that ranges must hold for.
        share: Share of the samples that is held out instead; 0 for none.
        labels: Right classes of the samples: check coverage.
        seed: Of what is chosen at random.
        options: The samples, and what the run may take.
    """
    from roundoff.graph.interface import inputs
    from roundoff.studies.check_calibration.ranges import CalibrationCheckSettings
    from roundoff.studies.check_calibration.study import check_calibration as check_samples

    call = Call("check_calibration", options, DataOptions)
    if not isinstance(seed, int) or seed < 0:
        raise BadInput(english("--seed {seed} is negative.", seed=seed), fix=english("give a number from 0 on"))
    if not 0 <= share <= _HIGHEST_SHARE:
        raise BadInput("--share {share} is not a share.", fix=english("give a number from 0 to 0.5"), share=share)
    settings = CalibrationCheckSettings(
        target=target_of(target), method=calibration or "", share=share, seed=seed, limits=call.limits
    )
    given = open_model(model)
    specs = inputs(given.model)
    samples = open_data(call.get("data"), specs, call.sample_options(limit=call.get("samples")))
    # Read like the samples themselves, whatever words name it.
    words = [held_out] if is_path(held_out) else held_out
    others = None if held_out is None else open_data(words, specs, call.sample_options(limit=None))
    classes = open_labels(labels, samples.names, cut=call.get("samples") is not None)
    found = check_samples(given.model, samples, settings, held_out=others, labels=classes, progress=call.progress)
    read = [given.origin("model"), *data_inputs("held_out", held_out, others), *file_inputs(("labels", labels))]
    read += own_inputs(("target", target))
    read += data_inputs("data", call.get("data"), samples)
    code = EXIT_OK if found.passed else EXIT_THRESHOLD_MISSED
    return Outcome(found, call.document(read, calibration_check=found), code)


@public
def self_check() -> "PageOutcome[HostArithmetic]":
    """Measure how this machine computes with integers, by small quantized models run in several ways.

    Raises:
        ModelFailed: onnxruntime cannot run here at all.
    """
    from roundoff.run.host_arithmetic import host_page, measure_host

    call = Call("self_check", {}, Limits)
    host = measure_host()
    return PageOutcome(host, call.document(()), shown=host_page(host))
