"""What a build starts from: the model as the configuration changes it, and samples."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from roundoff.core.tensors import InputSpec
from roundoff.core.wording import counted
from roundoff.data import open_samples
from roundoff.errors import BadInput
from roundoff.graph.interface import inputs, outputs
from roundoff.graph.load import Model, load_model
from roundoff.runtime.feeds import NO_INPUTS, Samples
from roundoff.vendors.pulsar2.building.log import Log
from roundoff.vendors.pulsar2.building.tree import DATASET, Tree
from roundoff.vendors.pulsar2.config.schema import BuildConfig
from roundoff.vendors.pulsar2.config.settling import Settled, settle
from roundoff.vendors.pulsar2.tables import QuantConfigRow

__all__ = ["Material", "gather", "sample_directory"]


@dataclass(frozen=True, slots=True, eq=False)
class Material:
    """A model and what it is calibrated on.

    Attributes:
        model: The float model.
        samples: What activations are observed on.
        settled: What counts for which input.
    """

    model: Model
    samples: Samples
    settled: Settled

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
                        tree.shown(f"{DATASET}/{name}"),
                        given.calibration_format.name,
                        settings.processor.tensor_format.name,
                        given.calibration_mean,
                        given.calibration_std,
                    )
                )
        return found


def gather(config: BuildConfig, folder: Path, *, base: Path, log: Log) -> Material:
    """Read the model and unpack its calibration data.

    Args:
        config: The configuration.
        folder: Where calibration data is unpacked.
        base: Paths in the configuration are relative to it.
        log: Told what is done.

    Raises:
        BadInput: Something is missing or does not fit.
    """
    model = load_model(base / config.input)
    specs = inputs(model)
    settled = settle(config, specs, outputs(model))
    for note in settled.notes:
        log.warning(note)
    samples: Samples = NO_INPUTS
    if specs:
        source = {name: base / each.calibration.calibration_dataset for name, each in settled.inputs.items() if each.calibration}
        samples = open_samples(source, specs)
        log.info(f"{counted(len(samples.names), 'File')} Loaded.")
    return Material(model, samples, settled)


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
