"""What a build adds to a ticket: its configuration for the files inside, calibration data and tables.

Where names are secret, all of it is under other names.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from dataclasses import fields as dataclass_fields
from enum import EnumMeta
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from roundoff.case.archive import npy_bytes, zip_bytes
from roundoff.case.excerpt import (
    FACTOR_DB,
    CaseNumbers,
    CaseSamples,
    ChosenSamples,
    FaultMatch,
    QuantizedCase,
    measure,
    same_fault,
)
from roundoff.case.sources import BundleSettings, CaseSource, Extra, refuse_changed
from roundoff.case.synthetic import FoundSynthetic, SyntheticCase, sample_like
from roundoff.core.claims import ScratchFolder
from roundoff.core.document import (
    Environment,
    InputFile,
    bytes_input,
    environment,
    environment_content,
    input_file,
    read_environment,
)
from roundoff.core.names import FileNames, shown
from roundoff.core.progress import Progress
from roundoff.core.tensors import Array
from roundoff.core.untrusted import read_json
from roundoff.errors import BadInput
from roundoff.graph.interface import inputs, outputs
from roundoff.graph.load import Model, load_model
from roundoff.graph.readers.reader import read_quantized
from roundoff.messages.message import english
from roundoff.messages.numbers import number
from roundoff.run.budget import RunBudget
from roundoff.run.capture import Samples
from roundoff.run.evaluators import Subset
from roundoff.samples.arrays import GivenSamples
from roundoff.vendors.pulsar2 import recipe
from roundoff.vendors.pulsar2.build_files import AXMODEL, AXMODEL_JSON, CHART, CONTEXT, OPTIMIZED, TABLE
from roundoff.vendors.pulsar2.config import schema
from roundoff.vendors.pulsar2.config.checks import ResolvedConfig, resolve_config
from roundoff.vendors.pulsar2.config.document import Document, located, to_json
from roundoff.vendors.pulsar2.config.files import parse_config
from roundoff.vendors.pulsar2.config.schema import (
    EVERY,
    BuildConfig,
    CalibrationFormat,
    CompilerConfig,
    InputQuantConfig,
    LayerConfig,
)
from roundoff.vendors.pulsar2.datasets import CalibrationSet
from roundoff.vendors.pulsar2.frontend import Frontend
from roundoff.vendors.pulsar2.layer_configs import read_entries, refuse_unknown
from roundoff.vendors.pulsar2.tables import Log, precision_table, target_of


def build_record(command: Sequence[str], config: BuildConfig, *, config_file: Path | None) -> dict[str, Any]:
    """What the record of a build says of the command, the files it reads, and versions."""
    base = None if config_file is None else config_file.parent
    given = [("model", config.input), ("samples", config.quant.input_sample_dir)]
    given += [("data", each.calibration_dataset) for each in config.quant.input_configs]
    given += [("constant", each.data_path) for each in config.const_processors]
    read = [(role, located(text, base)) for role, text in dict.fromkeys(given) if text]
    # What is missing is refused by the build, with all else that is wrong.
    files = [input_file(role, path) for role, path in read if path.exists()]
    if config_file is not None and config_file.is_file():
        # By its bytes: a configuration may be called .prototxt, which elsewhere is half of a Caffe net.
        files.append(bytes_input("config", str(config_file), config_file.read_bytes()))
    return {
        "command": [shown(word) for word in command],
        "inputs": [asdict(each) for each in files],
        "environment": environment_content(environment(0.0)),
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
    folder = path.parent if path.name == CONTEXT else path
    record = _BuildRecord.read(folder / CONTEXT)
    config, quant = record.config, record.config.quant
    if quant.highest_mix_precision:
        what = english("{folder} was built with highest_mix_precision: nothing in it is quantized.", folder=folder)
        raise BadInput(what, fix=english("leave it out of the configuration, and build again"))
    with ScratchFolder() as unpacked:
        material = recipe.read_build_input(config, unpacked, base=record.base, log=Log())
        samples = material.samples
        if not samples.names:
            what = english("The model has no inputs, so that there is no sample that shows a fault.")
            raise BadInput(what, fix=english("give a model with inputs"))
        if quant.input_sample_dir:
            samples = recipe.sample_directory(located(quant.input_sample_dir, record.base), material.model)
        # A smoothed model has other tensors than the one it was made of.
        optimized = None if quant.enable_smooth_quant else load_model(folder / OPTIMIZED)
        yield CaseSource(
            kind=" ".join(record.command[1:3]) or "pulsar2 build",
            quantized=read_quantized(load_model(folder / AXMODEL), float_model=optimized),
            samples=samples,
            original=material.model,
            model=f"model/float.onnx ({Path(config.input).name}" + _changes(config) + ")",
            words=f"{config.target_hardware.name}, {quant.calibration_method.name}, "
            f"quantized as in config/quantizers.csv{_missed_goal(folder)}",
            command=record.command,
            environment=record.environment,
            paths=record.paths,
            extras=BuildExtras(settings, folder, config, material),
            texts=tuple(_names(config)),
            missed=bool(_missed_goal(folder)),
        )


def _missed_goal(folder: Path) -> str:
    """What was asked of a build that was tuned and did not reach it."""
    file = folder / DECISIONS_NAME
    try:
        found = read_json(file, what=english("The decisions")) if file.is_file() else None
        if found is None or found["met"]:
            return ""
        goal, cosine = float(found["goal"]["output"]), found["output_cosine"]
        reached = "no cosine" if cosine is None else f"a cosine of {float(cosine):.5f}"
        return f"; goal missed: the worst output has {reached}, not above {goal}, whatever was tried"
    except (BadInput, ValueError, TypeError, KeyError):  # someone else's file under our name
        return ""


DECISIONS_NAME = "tuning.json"
"""What tuning leaves beside a build."""


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
            found = read_json(file, what=english("The record of the build"))
            inputs = [InputFile(**each) for each in found["inputs"]]
            environment = read_environment(found["environment"])
            command, stored = tuple(map(str, found["command"])), found["config"]
        except (ValueError, KeyError, TypeError) as error:
            what = english("{file} is damaged, or was written by another version of roundoff.", file=file)
            raise BadInput(what, fix=english("build again, and bundle that")) from error
        refuse_changed(inputs)
        base = next((Path(each.path).parent for each in inputs if each.role == "config"), None)
        config = parse_config(Document(str(file), stored))
        return cls(config, command, base, environment, tuple(each.path for each in inputs))


MODEL, OUTPUT, ANALYSIS_DATA = "model/float.onnx", "out", "data/analysis"
"""Where things are in a ticket, and where a build of it goes."""


def synthetic_samples(
    samples: Samples,
    renamed: Mapping[str, str],
    ready: Mapping[int, Mapping[str, Array]],
    *,
    seed: int,
    keep: bool,
) -> GivenSamples:
    """Samples of which nothing can be recognised, numbered; each is made when it is asked for.

    Args:
        samples: The originals.
        renamed: New names of inputs.
        ready: Samples that are made already, by their places.
        seed: Of what is chosen at random.
        keep: Only inputs are renamed, values stay.
    """

    def feed(index: int) -> dict[str, Array]:
        if index in ready:
            return dict(ready[index])
        random = np.random.default_rng((seed, index))
        return {
            renamed[name]: np.asarray(values) if keep else sample_like(np.asarray(values), random)
            for name, values in samples.feed(index).items()
        }

    return GivenSamples("samples", [f"sample_{number}" for number in range(len(samples.names))], feed)


def analysis_places(samples: CaseSamples) -> dict[str, Array]:
    """Samples of the analysis as files of a ticket, where a build looks for them."""
    found = {}
    for place, feed in enumerate(samples.feeds):
        for name, values in feed.items():
            folder = f"{ANALYSIS_DATA}/{name}" if len(feed) > 1 else ANALYSIS_DATA
            found[f"{folder}/{place:04d}.npy"] = values
    return found


def archive_names(settled: ResolvedConfig) -> dict[str, str]:
    """The archive of each input's calibration data; inputs that shared one still do."""
    names = FileNames()
    given: dict[str, str] = {}
    found = {}
    for name, settings in settled.inputs.items():
        if settings.calibration is not None:
            fresh = f"data/calibration/{names.stem(name)}.zip"
            found[name] = given.setdefault(settings.calibration.calibration_dataset, fresh)
    return found


def inside(config: BuildConfig, settled: ResolvedConfig, archives: Mapping[str, str]) -> BuildConfig:
    """The same configuration for the files of a ticket.

    What it changes of the float model has been done to the one in the ticket.

    Args:
        config: The configuration.
        settled: What counts for which input.
        archives: Where the calibration data of each input is.
    """
    inputs = tuple(
        replace(settings.calibration, calibration_dataset=archives[name])
        for name, settings in settled.inputs.items()
        if settings.calibration is not None
    )
    sampled = ANALYSIS_DATA if config.quant.input_sample_dir else ""
    return replace(
        config,
        input=MODEL,
        output_dir=OUTPUT,
        work_dir="",
        input_shapes="",
        const_processors=(),
        op_processors=(),
        quant=replace(config.quant, input_configs=inputs, input_sample_dir=sampled),
        compiler=_without_paths(config.compiler),
    )


def anonymous_config(
    config: BuildConfig, settled: ResolvedConfig, *, case: SyntheticCase, frontend: Frontend
) -> BuildConfig:
    """The same configuration for a model of which everything is called otherwise.

    Calibration data become arrays as the model is fed with them. What concerns the compiler alone is left out, and
    smoothing, which has been done to the model.

    Args:
        config: The configuration.
        settled: What counts for which input.
        case: The model, and what everything in it was called.
        frontend: The graph that is quantized, with the names it has in the user's model.
    """
    tensors = case.tensors
    renamed = {tensors[name]: settings for name, settings in settled.inputs.items()}
    inputs = tuple(
        InputQuantConfig(
            name,
            f"data/calibration/{name}.zip",
            CalibrationFormat.Numpy,
            settings.calibration.calibration_size,
        )
        for name, settings in renamed.items()
        if settings.calibration is not None
    )
    quant = replace(
        config.quant,
        input_configs=inputs,
        layer_configs=_layers(config.quant.layer_configs, case, frontend),
        input_sample_dir=ANALYSIS_DATA if config.quant.input_sample_dir else "",
        enable_smooth_quant=False,
    )
    return replace(
        config,
        input=MODEL,
        output_dir=OUTPUT,
        output_name=BuildConfig().output_name,
        work_dir="",
        input_shapes="",
        quant=quant,
        input_processors=tuple(replace(each.processor, tensor_name=name) for name, each in renamed.items()),
        output_processors=tuple(
            replace(each, tensor_name=tensors[name]) for name, each in settled.outputs.items() if name in tensors
        ),
        const_processors=(),
        op_processors=(),
        quant_op_processors=(),
        compiler=CompilerConfig(),
    )


def vocabulary() -> tuple[str, ...]:
    """The words of configurations and tables: whoever calls something of his own so gives nothing away."""
    fields = [each.name for kind in vars(schema).values() if is_dataclass(kind) for each in dataclass_fields(kind)]
    members = [name for kind in vars(schema).values() if isinstance(kind, EnumMeta) for name in kind.__members__]
    return (EVERY, *fields, *members, precision_table((), method="PerLayer", mode="Reference"))


def _without_paths(compiler: CompilerConfig) -> CompilerConfig:
    inner = tuple(_without_paths(each) for each in compiler.sub_configs)
    return replace(compiler, input_sample_dir="", sub_configs=inner)


def _layers(configs: Sequence[LayerConfig], case: SyntheticCase, frontend: Frontend) -> tuple[LayerConfig, ...]:
    """Entries under other names; what was folded into something else is called as that is."""
    nodes, tensors = case.names, case.tensors
    found = []
    for entry in read_entries(configs, frontend):
        config = entry.config
        ends = (config.start_tensor_names, config.end_tensor_names)
        if config.kind == "op_type":
            found.append(config)
        elif config.kind == "subgraph" and all(name == EVERY or name in tensors for end in ends for name in end):
            starts, stops = (tuple(tensors.get(name, name) for name in end) for end in ends)
            found.append(replace(config, start_tensor_names=starts, end_tensor_names=stops))
        else:
            graph = dict.fromkeys(node for group in entry.nodes.values() for node in group)
            layers = tuple(nodes[node] for node in graph if node in nodes)
            if layers:
                plain = replace(config, layer_name="", start_tensor_names=(), end_tensor_names=())
                found.append(replace(plain, layer_names=layers))
    return tuple(found)


# Building again on fewer and fewer samples: the smallest calibration set that still gives the fault.


@dataclass(frozen=True, slots=True, eq=False)
class Rebuilt:
    """A build on few samples.

    Attributes:
        indices: Which samples it is calibrated on.
        quantizing: What made it.
        outcome: The quantized model.
        numbers: What it shows.
        shown: Whether that is the fault.
    """

    indices: tuple[int, ...]
    quantizing: recipe.ConfigQuantizer
    outcome: recipe.BuildOutcome
    numbers: CaseNumbers
    shown: FaultMatch


def rebuild(  # noqa: PLR0913 - a model, its data, and what both are to show
    model: Model,
    samples: Samples,
    config: BuildConfig,
    *,
    order: Sequence[int],
    first: int,
    fed: CaseSamples,
    wanted: CaseNumbers,
    limits: RunBudget,
    progress: Progress,
) -> Rebuilt:
    """Calibrate on the first samples, then on twice as many, until the model shows the fault, or on all.

    Args:
        model: The float model, as the configuration changes it.
        samples: All calibration samples.
        config: How it is quantized.
        order: In which order they are taken.
        first: How many at first.
        fed: What the model is fed to see the fault.
        wanted: The fault.
        limits: What runs may take.
        progress: Told of runs.

    Raises:
        BadInput: Something asked for cannot be applied.
        ModelFailed: The model cannot be run.
    """
    resolve_config(config, inputs(model), outputs(model))
    count = max(1, min(first, len(order)))
    while True:
        indices = tuple(sorted(order[:count]))
        optimize = not config.onnx_opt.disable_onnx_optimization
        quantizing = recipe.ConfigQuantizer(model, Subset(samples, indices), target_of(config), optimize=optimize)
        resolved = quantizing.resolve(config.quant.layer_configs)
        refuse_unknown(resolved)
        outcome = quantizing.quantize(config.quant, resolved)
        numbers = measure(QuantizedCase(outcome.quantized, fed), limits=limits, progress=progress)
        shown = same_fault(wanted, numbers, {}, close_db=FACTOR_DB)
        if shown.same or count == len(order):
            return Rebuilt(indices, quantizing, outcome, numbers, shown)
        count = min(2 * count, len(order))


# What a build adds to a bundle.

_CONFIG, _TABLE = "config.json", "tables/precision_analysis_table.txt"
_COMMAND = "roundoff pulsar2 build --config config.json"
_STORED = {
    name: f"tables/{PurePosixPath(name).name}" for name in (TABLE, CHART, AXMODEL_JSON, DECISIONS_NAME, CONTEXT)
}
_WHAT = {
    _CONFIG: english("the configuration of the build, for the files in this folder"),
    _TABLE: english("the precision of every layer"),
    "tables/precision_analysis.mmd": english("the same as a chart"),
    "tables/quant_axmodel.json": english("the scale of every tensor as Pulsar2 writes it"),
    "tables/tuning.json": english("what was tried before"),
    "tables/build_context.json": english("what the build recorded: configuration, layers, figures, log"),
}
_ARCHIVE = english("calibration data, the fewest that give the fault")


@dataclass(frozen=True, slots=True)
class BuildExtras:
    """The vendor's form of a case: its configuration, for the files of the ticket, and its tables.

    Attributes:
        settings: How the bundle is made.
        folder: Where the build is.
        config: Its configuration.
        material: Its model and calibration data.
    """

    settings: BundleSettings
    folder: Path
    config: BuildConfig
    material: recipe.BuildInput

    def open(self, case: QuantizedCase, chosen: ChosenSamples) -> Extra:
        """Configuration, data and tables as they are."""
        material = self.material
        archives = archive_names(material.settled)
        config = inside(self.config, material.settled, archives)
        rebuilt = self._rebuilt(material.model, material.samples, config, chosen, case.samples, chosen.numbers)
        stored = {new: self.folder / old for old, new in _STORED.items() if (self.folder / old).is_file()}
        members = {
            **self._calibration(archives, rebuilt.indices),
            **{name: path.read_bytes() for name, path in stored.items()},
        }
        return self._extra(members, config, rebuilt, case.samples)

    def secret(self, found: FoundSynthetic, chosen: ChosenSamples) -> Extra:
        """The same for another model: names replaced, data as arrays, tables made anew."""
        material = self.material
        optimize = not self.config.onnx_opt.disable_onnx_optimization
        frontend = recipe.ConfigQuantizer(
            material.model, material.samples, target_of(self.config), optimize=optimize
        ).frontend
        config = anonymous_config(self.config, material.settled, case=found.case, frontend=frontend)
        case = found.case.case
        # Calibration samples under other names; those of the case as they are in it.
        ready = {} if self.config.quant.input_sample_dir else dict(zip(
            chosen.indices, found.case.case.samples.feeds, strict=True
        ))  # fmt: skip
        samples = synthetic_samples(
            self.material.samples,
            found.case.tensors,
            ready,
            seed=self.settings.seed,
            keep=self.settings.keep_data,
        )
        model = case.quantized.float_model
        rebuilt = self._rebuilt(model, samples, config, chosen, case.samples, found.numbers)
        feeds = [samples.feed(index) for index in rebuilt.indices]
        members = {
            each.calibration_dataset: zip_bytes(
                {f"sample_{place}.npy": npy_bytes(feed[each.tensor_name]) for place, feed in enumerate(feeds)},
                manifest=False,
            )
            for each in config.quant.input_configs
        }
        members |= self._table(config, rebuilt, case.samples)
        return self._extra(members, config, rebuilt, case.samples)

    def _rebuilt(
        self,
        model: Model,
        samples: Samples,
        config: BuildConfig,
        chosen: ChosenSamples,
        fed: CaseSamples,
        wanted: CaseNumbers,
    ) -> Rebuilt:
        """The build with the fewest calibration samples that give the fault, the worst of them first."""
        # Samples of the analysis may be others than those of the calibration.
        first = () if self.config.quant.input_sample_dir else chosen.indices
        order = tuple(dict.fromkeys((*first, *range(len(samples.names)))))
        return rebuild(
            model,
            samples,
            config,
            order=order,
            first=len(first),
            fed=fed,
            wanted=wanted,
            limits=self.settings.limits,
            progress=self.settings.progress,
        )

    def _calibration(self, archives: Mapping[str, str], indices: Iterable[int]) -> dict[str, bytes]:
        """The files of some samples, packed as they are."""
        samples = self.material.samples
        assert isinstance(samples, CalibrationSet)  # noqa: S101 - a model without inputs was refused
        files: dict[str, dict[str, bytes]] = {}
        for index in indices:
            for name, (file, path) in samples.files(index).items():
                files.setdefault(archives[name], {})[file] = path.read_bytes()
        return {archive: zip_bytes(content, manifest=False) for archive, content in files.items()}

    def _table(self, config: BuildConfig, rebuilt: Rebuilt, samples: CaseSamples) -> dict[str, bytes]:
        """The precision of every layer of the model in the ticket, if that was asked for."""
        quant = config.quant
        if not quant.precision_analysis:
            return {}
        method, mode = quant.precision_analysis_method, quant.precision_analysis_mode
        analysis = recipe.analyze_precision(
            rebuilt.outcome,
            samples,
            rebuilt.quantizing.frontend,
            settings=recipe.PrecisionSettings(method, mode, target_of(config).arithmetic),
            progress=self.settings.progress,
        )
        return {_TABLE: (precision_table(analysis.rows, method=method.name, mode=mode.name) + "\n").encode()}

    def _extra(self, members: dict[str, bytes], config: BuildConfig, rebuilt: Rebuilt, fed: CaseSamples) -> Extra:
        if config.quant.input_sample_dir:
            arrays: dict[str, Array] = analysis_places(fed)
            members |= {name: npy_bytes(array) for name, array in arrays.items()}
        files = dict(_WHAT) | {name: _ARCHIVE for name in members if name.endswith(".zip")}
        shows = (
            english("the same fault, errors within {factor} dB, verified", factor=number(FACTOR_DB))
            if rebuilt.shown.same
            else english(
                "NOT the same fault ({reasons}); model/quantized.onnx shows it",
                reasons="; ".join(rebuilt.shown.reasons),
            )
        )
        return Extra(
            {**members, _CONFIG: to_json(config).encode()},
            target=config.target_hardware.name,
            reproduce=(
                _COMMAND,
                english("Pulsar2 itself: {command}", command=_COMMAND.removeprefix("roundoff ")),
            ),
            recalibrated=english(
                "config.json, calibrated on {few} {few:sample|samples} of {total}: {value} dB; {shows}",
                few=len(rebuilt.indices),
                total=len(self.material.samples.names),
                value=number(rebuilt.numbers.sqnr_db),
                shows=shows,
            ),
            files=files,
            vocabulary=vocabulary(),
        )
