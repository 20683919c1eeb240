"""What a build starts from: the model as the configuration changes it, and samples."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from roundoff.core.files import reading
from roundoff.core.tensors import InputSpec
from roundoff.errors import BadInput
from roundoff.graph.interface import inputs, outputs
from roundoff.graph.load import Model, load_model
from roundoff.graph.preparation.steps import prepare
from roundoff.messages.numbers import counted
from roundoff.run.capture import NO_INPUTS, Samples
from roundoff.samples.sample_set import open_samples
from roundoff.vendors.pulsar2.building.files import Tree
from roundoff.vendors.pulsar2.building.log import Log
from roundoff.vendors.pulsar2.config.decoding import ConfigProblem, parse_input_shapes, problem_of
from roundoff.vendors.pulsar2.config.resolution import Settled, arrange, settle, strangers
from roundoff.vendors.pulsar2.config.schema import EVERY, BuildConfig, Layout, ModelType
from roundoff.vendors.pulsar2.datasets import dataset_problems, open_datasets
from roundoff.vendors.pulsar2.layer_configs import Frontend, read_entries
from roundoff.vendors.pulsar2.operators import target_of
from roundoff.vendors.pulsar2.patches import edit_problems, edited_model
from roundoff.vendors.pulsar2.tables import QuantConfigRow

__all__ = [
    "Material",
    "gather",
    "located",
    "model_problems",
    "sample_directory",
]


_LISTED = 3


@dataclass(frozen=True, slots=True, eq=False)
class Material:
    """A model and what it is calibrated on.

    Attributes:
        model: The float model.
        samples: What activations are observed on.
        settled: What counts for which input.
        folders: Where the samples of each input are.
    """

    model: Model
    samples: Samples
    settled: Settled
    folders: Mapping[str, Path] = field(default_factory=dict)

    def rows(self, tree: Tree) -> list[QuantConfigRow]:
        """The rows of the Quant Config Table."""
        found = []
        for name, settings in self.settled.inputs.items():
            given = settings.calibration
            if given is not None:
                shape = [size if isinstance(size, int) else -1 for size in settings.spec.shape or ()]
                found.append(
                    QuantConfigRow(
                        name,
                        shape,
                        tree.named(self.folders.get(name, Path(given.calibration_dataset))),
                        given.calibration_format.name,
                        settings.processor.tensor_format.name,
                        given.calibration_mean,
                        given.calibration_std,
                    )
                )
        return found


def gather(config: BuildConfig, folder: Path, *, base: Path | None, log: Log) -> Material:
    """Read the model and unpack its calibration data.

    Args:
        config: The configuration.
        folder: Where calibration data is unpacked.
        base: Where relative paths are looked for besides the current folder.
        log: Told what is done.

    Raises:
        BadInput: Something is missing or does not fit.
    """
    model, changes = edited_model(load_model(located(config.input, base)), config, base=base)
    for note in changes:
        log.tell(note)
    specs = inputs(model)
    settled = settle(config, specs, outputs(model))
    for note in settled.notes:
        log.alert(note)
    if not specs:
        return Material(model, NO_INPUTS, settled)
    samples = open_datasets(settled, folder, base=base)
    for note in samples.notes:
        log.alert(note)
    if samples.skipped:
        log.alert(f"not taken for samples: {', '.join(samples.skipped[:_LISTED])}")
    log.tell(f"{counted(len(samples.names), 'File(s)').removesuffix('s')} Loaded.")
    return Material(model, samples, settled, samples.folders)


def located(given: str, base: Path | None) -> Path:
    """A path of the configuration: from the current folder, else from that of the configuration."""
    here = Path(given)
    with reading(here, what="The path"):
        return base / given if base is not None and not here.exists() and (base / given).exists() else here


def sample_directory(folder: Path, model: Model) -> Samples:
    """Samples for the precision analysis, in the format of the original model's inputs.

    Raises:
        BadInput: There are none, or they do not fit.
    """
    if not folder.is_dir():
        raise BadInput(f"input_sample_dir {folder} is not a folder.", fix="give a folder of .npy or .bin files")
    specs: Sequence[InputSpec] = inputs(model)
    parts = {spec.name: folder / spec.name for spec in specs}
    if len(specs) > 1 and all(path.is_dir() for path in parts.values()):
        return open_samples(parts, specs)
    return open_samples(folder, specs)


# What of a configuration does not fit its model and data, found before anything is built.

_PICTURE_AXES = 4


def model_problems(config: BuildConfig, wrong: bool, *, base: Path | None = None) -> Sequence[ConfigProblem]:
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


def _per_channel(config: BuildConfig, settled: Settled) -> Iterator[ConfigProblem]:
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
            yield ConfigProblem(place, f"{what}; give one for each, or one for all")


def _sample_folder(config: BuildConfig, base: Path | None) -> Iterator[ConfigProblem]:
    given = config.quant.input_sample_dir
    if given and not located(given, base).is_dir():
        yield ConfigProblem(
            ("quant", "input_sample_dir"), f"{given} is not a folder; give one of .npy or .bin files"
        )


def _layers(config: BuildConfig, model: Model) -> Iterator[ConfigProblem]:
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
                yield ConfigProblem(
                    ("quant", "layer_configs", entry.number - 1), f"{name!r} names nothing: {hint}"
                )
