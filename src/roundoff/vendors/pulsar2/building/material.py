"""What a build starts from: the model as the configuration changes it, and samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from roundoff.core.files import reading
from roundoff.core.tensors import InputSpec
from roundoff.core.wording import counted
from roundoff.data import open_samples
from roundoff.errors import BadInput
from roundoff.graph.interface import inputs, outputs
from roundoff.graph.load import Model, load_model
from roundoff.runtime.feeds import NO_INPUTS, Samples
from roundoff.vendors.pulsar2.building.log import Log
from roundoff.vendors.pulsar2.building.tree import Tree
from roundoff.vendors.pulsar2.config.schema import BuildConfig
from roundoff.vendors.pulsar2.config.settling import Settled, settle
from roundoff.vendors.pulsar2.datasets import open_datasets
from roundoff.vendors.pulsar2.processors import edited_model
from roundoff.vendors.pulsar2.tables import QuantConfigRow

__all__ = ["Material", "gather", "located", "sample_directory"]

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
