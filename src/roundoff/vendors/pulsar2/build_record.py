"""The record that a build leaves of itself, and what a bundle of that build is made of."""

import contextlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from roundoff.case.sources import BundleSettings, CaseSource, refuse_changed
from roundoff.core.document import Environment, InputFile
from roundoff.core.files import read_small
from roundoff.core.names import shown
from roundoff.core.provenance import environment, input_file
from roundoff.errors import BadInput
from roundoff.graph.load import load_model
from roundoff.graph.reading.read import read_quantized
from roundoff.vendors.pulsar2.building.files import AXMODEL, OPTIMIZED
from roundoff.vendors.pulsar2.building.log import Log
from roundoff.vendors.pulsar2.building.material import gather, located, sample_directory
from roundoff.vendors.pulsar2.config.decoding import Document
from roundoff.vendors.pulsar2.config.files import parse_config
from roundoff.vendors.pulsar2.config.schema import BuildConfig
from roundoff.vendors.pulsar2.ticket import BuildExtras

__all__ = ["build_record", "open_build"]

_CONTEXT = "build_context.json"


def build_record(command: Sequence[str], config: BuildConfig, *, config_file: Path | None) -> dict[str, Any]:
    """What the record of a build says of the command, the files it reads, and versions."""
    base = None if config_file is None else config_file.parent
    given = [("model", config.input), ("samples", config.quant.input_sample_dir)]
    given += [("data", each.calibration_dataset) for each in config.quant.input_configs]
    given += [("constant", each.data_path) for each in config.const_processors]
    read = [(role, located(text, base)) for role, text in dict.fromkeys(given) if text]
    read += [] if config_file is None else [("config", config_file)]
    # What is missing is refused by the build, with all else that is wrong.
    files = [input_file(role, path) for role, path in read if path.exists()]
    versions = {key: value for key, value in asdict(environment(0.0)).items() if key != "elapsed_s"}
    return {
        "command": [shown(word) for word in command],
        "inputs": [asdict(each) for each in files],
        "environment": versions,
    }


@contextlib.contextmanager
def open_build(path: Path, settings: BundleSettings) -> Iterator[CaseSource]:
    """Read what a build left, and the model and data that it was made of; `roundoff.case.sources.BuildReader`.

    Args:
        path: The folder of the build, or its record.
        settings: How the bundle is made.

    Raises:
        BadInput: The folder is damaged, or what the build read is gone or has changed.
        ModelFailed: A model cannot be run.
    """
    folder = path.parent if path.name == _CONTEXT else path
    record = _BuildRecord.read(folder / _CONTEXT)
    config, quant = record.config, record.config.quant
    if quant.highest_mix_precision:
        what = f"{folder} was built with highest_mix_precision: nothing in it is quantized."
        raise BadInput(what, fix="leave it out of the configuration, and build again")
    with tempfile.TemporaryDirectory() as unpacked:
        material = gather(config, Path(unpacked), base=record.base, log=Log())
        samples = material.samples
        if not samples.names:
            what = "The model has no inputs, so that there is no sample that shows a fault."
            raise BadInput(what, fix="give a model with inputs")
        if quant.input_sample_dir:
            samples = sample_directory(located(quant.input_sample_dir, record.base), material.model)
        # A smoothed model has other tensors than the one it was made of.
        optimized = None if quant.enable_smooth_quant else load_model(folder / OPTIMIZED)
        yield CaseSource(
            kind=" ".join(record.command[1:3]) or "pulsar2 build",
            quantized=read_quantized(load_model(folder / AXMODEL), float_model=optimized),
            samples=samples,
            original=material.model,
            model=f"model/float.onnx ({Path(config.input).name}" + _changes(config) + ")",
            words=f"{config.target_hardware.name}, {quant.calibration_method.name}, "
            "quantized as in config/quantizers.csv",
            command=record.command,
            environment=record.environment,
            paths=record.paths,
            extras=BuildExtras(settings, folder, config, material),
            texts=tuple(_names(config)),
        )


def _changes(config: BuildConfig) -> str:
    """What the configuration changes of the model, which has been done to the one in the ticket."""
    done = [name for name in ("input_shapes", "const_processors", "op_processors") if getattr(config, name)]
    return f", with {', '.join(done)} applied" if done else ""


def _names(config: BuildConfig) -> Iterator[str]:
    for layer in config.quant.layer_configs:
        yield from (*layer.layers, *layer.start_tensor_names, *layer.end_tensor_names)
    yield from (each.tensor_name for each in config.quant.input_configs)
    yield from (each.tensor_name for each in config.input_processors)
    yield from (each.tensor_name for each in config.output_processors)


@dataclass(frozen=True, slots=True)
class _BuildRecord:
    """What build_context.json says."""

    config: BuildConfig
    command: tuple[str, ...]
    base: Path | None
    environment: Environment
    paths: tuple[str, ...]

    @classmethod
    def read(cls, file: Path) -> "_BuildRecord":

        try:
            found = json.loads(read_small(file, what="The record of the build"))
            inputs = [InputFile(**each) for each in found["inputs"]]
            environment = Environment(**found["environment"], elapsed_s=0.0)
            command, stored = tuple(map(str, found["command"])), found["config"]
        except (ValueError, KeyError, TypeError) as error:
            what = f"{file} is damaged, or was written by another version of roundoff."
            raise BadInput(what, fix="build again, and bundle that") from error
        refuse_changed(inputs)
        base = next((Path(each.path).parent for each in inputs if each.role == "config"), None)
        config = parse_config(Document(str(file), stored))
        return cls(config, command, base, environment, tuple(each.path for each in inputs))
