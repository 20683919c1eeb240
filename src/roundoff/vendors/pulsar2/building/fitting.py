"""What of a configuration does not fit its model and data, found before anything is built."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from roundoff.core.wording import counted
from roundoff.errors import BadInput
from roundoff.graph.interface import inputs, outputs
from roundoff.graph.load import Model, load_model
from roundoff.graph.preparation import prepare
from roundoff.vendors.pulsar2.building.material import located
from roundoff.vendors.pulsar2.chips import target_of
from roundoff.vendors.pulsar2.config.documents import Problem, problem_of
from roundoff.vendors.pulsar2.config.enums import Layout, ModelType
from roundoff.vendors.pulsar2.config.input_shapes import parse_input_shapes
from roundoff.vendors.pulsar2.config.schema import EVERY, BuildConfig
from roundoff.vendors.pulsar2.config.settling import Settled, arrange, strangers
from roundoff.vendors.pulsar2.datasets import dataset_problems
from roundoff.vendors.pulsar2.layers.entries import Frontend, read_entries
from roundoff.vendors.pulsar2.processors import edit_problems

__all__ = ["model_problems"]

_PICTURE_AXES = 4


def model_problems(config: BuildConfig, wrong: bool, *, base: Path | None = None) -> Sequence[Problem]:
    """Everything that does not fit: names, shapes, constants, data sets.

    Layers are looked up only when something else is wrong, too: a build shows them in a table before it refuses.

    Args:
        config: The configuration.
        wrong: Whether something is wrong with it already.
        base: Where relative paths are looked for besides the current folder.
    """
    if not config.input or config.model_type is not ModelType.ONNX:
        return ()
    try:
        model = load_model(located(config.input, base))
    except BadInput as error:
        return [problem_of(("input",), error)]
    shapes, _ = parse_input_shapes(config.input_shapes)
    specs = [replace(spec, shape=shapes.get(spec.name, spec.shape)) for spec in inputs(model)]
    names = outputs(model)
    settled = arrange(config, specs, names)
    found = [
        *edit_problems(model, config, base=base),
        *strangers(config, specs, names),
        *_per_channel(config, settled),
        *dataset_problems(config, settled, base=base),
        *_sample_folder(config, base),
    ]
    return [*found, *(_layers(config, model) if wrong or found else ())]


def _per_channel(config: BuildConfig, settled: Settled) -> Iterator[Problem]:
    """Means and deviations that are neither one number nor one per channel of their input."""
    for settings in settled.inputs.values():
        spec, processor = settings.spec, settings.processor
        axes = spec.shape or ()
        channels = (
            axes[-1 if processor.tensor_layout is Layout.NHWC else 1] if len(axes) == _PICTURE_AXES else None
        )
        if not isinstance(channels, int):
            continue
        own = [each for each in config.input_processors if each.tensor_name in (spec.name, EVERY)]
        for name in ("mean", "std"):
            count = len(getattr(processor, name))
            if count in (0, 1, channels):
                continue
            here = any(getattr(each, name) for each in own)
            place, key = (
                (("input_processors",), name) if here else (("quant", "input_configs"), f"calibration_{name}")
            )
            what = (
                f"{key} has {counted(count, 'number')}, the input {spec.name!r} has {counted(channels, 'channel')}"
            )
            yield Problem(place, f"{what}; give one for each, or one for all")


def _sample_folder(config: BuildConfig, base: Path | None) -> Iterator[Problem]:
    given = config.quant.input_sample_dir
    if given and not located(given, base).is_dir():
        yield Problem(("quant", "input_sample_dir"), f"{given} is not a folder; give one of .npy or .bin files")


def _layers(config: BuildConfig, model: Model) -> Iterator[Problem]:
    layers = config.quant.layer_configs
    if not layers:
        return
    try:
        frontend = Frontend(model, prepare(model), target_of(config))
    except BadInput as error:
        yield problem_of(("input",), error)
        return
    for entry in read_entries(layers, frontend):
        if entry.config.kind != "op_type":
            for name, hint in entry.unknown.items():
                yield Problem(("quant", "layer_configs", entry.number - 1), f"{name!r} names nothing: {hint}")
