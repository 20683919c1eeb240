"""Quantizing a model as a configuration asks for it, for one set of samples."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from roundoff.core.plan import FLOAT, Precision, Recipe, Rule, Step
from roundoff.core.progress import SILENT, Progress
from roundoff.core.quantizers import Quantizer
from roundoff.core.target import Arithmetic, Target
from roundoff.core.tensors import InputSpec
from roundoff.errors import BadInput
from roundoff.graph.insertion import switch_on
from roundoff.graph.interface import inputs, outputs
from roundoff.graph.load import Model, load_model
from roundoff.graph.preparation.steps import prepare
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.messages.message import english
from roundoff.messages.numbers import counted, decibels_text
from roundoff.quantize.recipes import BuildSettings, BuiltModel, RecipeBuilder
from roundoff.run.bench import Bench, spread
from roundoff.run.capture import NO_INPUTS, Samples
from roundoff.run.variants import FUSED
from roundoff.samples.sample_set import open_samples
from roundoff.search.judges import SignalJudge
from roundoff.studies.layers.result import LayerReport, LayerRow, Method
from roundoff.studies.layers.study import LayerSettings, analyze_layers
from roundoff.vendors.pulsar2.config.checks import ResolvedConfig, arrange, resolve_config, unknown_entries
from roundoff.vendors.pulsar2.config.document import ConfigProblem, located, parse_input_shapes, problem_of
from roundoff.vendors.pulsar2.config.schema import (
    EVERY,
    BuildConfig,
    CalibrationMethod,
    LayerConfig,
    ModelType,
    PictureLayout,
    PrecisionAnalysisMethod,
    PrecisionAnalysisMode,
    QuantConfig,
)
from roundoff.vendors.pulsar2.datasets import dataset_problems, open_datasets
from roundoff.vendors.pulsar2.frontend import Frontend
from roundoff.vendors.pulsar2.layer_configs import ResolvedLayers, read_entries, resolve_layers
from roundoff.vendors.pulsar2.patches import edit_problems, edited_model
from roundoff.vendors.pulsar2.tables import (
    Log,
    PrecisionRow,
    QuantConfigRow,
    quantized_type,
    target_of,
    vendor_dtype,
)

_LISTED = 3


@dataclass(frozen=True, slots=True, eq=False)
class BuildInput:
    """A model and what it is calibrated on.

    Attributes:
        model: The float model.
        samples: What activations are observed on.
        settled: What counts for which input.
        folders: Where the samples of each input are.
    """

    model: Model
    samples: Samples
    settled: ResolvedConfig
    folders: Mapping[str, Path] = field(default_factory=dict)

    def rows(self, named: Callable[[Path], str]) -> list[QuantConfigRow]:
        """The rows of the Quant Config Table, paths as the user will find them."""
        found = []
        for name, settings in self.settled.inputs.items():
            given = settings.calibration
            if given is not None:
                shape = [size if isinstance(size, int) else -1 for size in settings.spec.shape or ()]
                found.append(
                    QuantConfigRow(
                        name,
                        shape,
                        named(self.folders.get(name, Path(given.calibration_dataset))),
                        given.calibration_format.name,
                        settings.processor.tensor_format.name,
                        given.calibration_mean,
                        given.calibration_std,
                    )
                )
        return found


def read_build_input(config: BuildConfig, folder: Path, *, base: Path | None, log: Log) -> BuildInput:
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
    settled = resolve_config(config, specs, outputs(model))
    for note in settled.notes:
        log.alert(note)
    if not specs:
        return BuildInput(model, NO_INPUTS, settled)
    samples = open_datasets(settled, folder, base=base)
    for note in samples.notes:
        log.alert(note)
    if samples.skipped:
        log.alert(english("not taken for samples: {names}", names=", ".join(samples.skipped[:_LISTED])))
    log.tell(f"{counted(len(samples.names), 'File(s)').removesuffix('s')} Loaded.")
    return BuildInput(model, samples, settled, samples.folders)


def sample_directory(folder: Path, model: Model) -> Samples:
    """Samples for the precision analysis, in the format of the original model's inputs.

    Raises:
        BadInput: There are none, or they do not fit.
    """
    if not folder.is_dir():
        raise BadInput(
            english("input_sample_dir {folder} is not a folder.", folder=folder),
            fix=english("give a folder of .npy or .bin files"),
        )
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
        *unknown_entries(config, specs, names),
        *_per_channel(config, settled),
        *dataset_problems(config, settled, base=base),
        *_sample_folder(config, base),
    ]
    return [*found, *(_layers(config, model) if wrong or found else ())]


def _per_channel(config: BuildConfig, settled: ResolvedConfig) -> Iterator[ConfigProblem]:
    """Means and deviations that are neither one number nor one per channel of their input."""
    for settings in settled.inputs.values():
        spec, processor = settings.spec, settings.processor
        axes = spec.shape or ()
        channels = (
            axes[-1 if processor.tensor_layout is PictureLayout.NHWC else 1]
            if len(axes) == _PICTURE_AXES
            else None
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


_VARIANTS: dict[PrecisionAnalysisMethod, Method] = {
    PrecisionAnalysisMethod.PerLayer: "local",
    PrecisionAnalysisMethod.EndToEnd: "accumulated",
}


# A configuration as a recipe: how roundoff makes what it asks for.

METHODS = {
    CalibrationMethod.MinMax: "minmax",
    CalibrationMethod.Percentile: "percentile",
    CalibrationMethod.MSE: "mse",
    CalibrationMethod.KL: "entropy",
}
"""Calibration methods and what roundoff calls them."""


_SMOOTHING_SAMPLES = 16
_LEAST_GAIN_DB = 0.1


def recipe_of(config: QuantConfig, rules: Sequence[Rule], *, insert: bool = True) -> Recipe:
    """The recipe of a configuration.

    Args:
        config: The configuration.
        rules: What layer_configs ask for.
        insert: Whether smoothing inserts a Mul where nothing takes the factors up.
    """
    smooth = Step(
        "smooth",
        (
            ("alpha", config.smooth_quant_strength),
            ("threshold", config.smooth_quant_threshold),
            # In a transformer nothing in front of most products takes factors up: LayerNorm's result has others.
            ("insert", insert),
        ),
    )
    return Recipe(
        method=METHODS[config.calibration_method],
        transforms=(smooth,) if config.enable_smooth_quant else (),
        rules=tuple(rules),
        corrections=(Step("round_weights"),) if config.enable_adaround else (),
    )


@dataclass(frozen=True, slots=True, eq=False)
class BuildOutcome:
    """A quantized model.

    Attributes:
        quantized: The float model, perhaps smoothed, and its quantizers; none with highest_mix_precision.
        built: How it came about; None with highest_mix_precision.
        resolved: What became of layer_configs.
        same_as_minmax: Activations whose scales are those of MinMax, of how many; None where MinMax was asked for.
        notes: What the user should know.
    """

    quantized: QuantizedModel
    built: BuiltModel | None
    resolved: ResolvedLayers
    same_as_minmax: tuple[int, int] | None = None
    notes: tuple[str, ...] = ()


class ConfigQuantizer:
    """Makes quantized models of one float model; it is observed once, whatever is tried.

    Args:
        model: The float model.
        samples: What activations are observed on.
        target: For which chip.
        optimize: Whether the graph is optimized first: batch normalization folded, and the like.
        max_memory: Bytes the process may take; most of the free memory by default.
        progress: Told how far it is.
    """

    def __init__(
        self,
        model: Model,
        samples: Samples,
        target: Target,
        *,
        optimize: bool = True,
        max_memory: int | None = None,
        progress: Progress = SILENT,
    ) -> None:
        self.samples = samples
        self._model = model
        making = BuildSettings(max_memory=max_memory, progress=progress, fold=optimize)
        self._builder = RecipeBuilder(model, samples, target, making=making)

    @cached_property
    def frontend(self) -> Frontend:
        """The graph that is quantized."""
        return Frontend(self._model, self._builder.prepared, self._builder.target)

    def resolve(self, layers: Sequence[LayerConfig]) -> ResolvedLayers:
        """What layer_configs ask for and get; nothing is run."""
        return resolve_layers(layers, self.frontend)

    def quantize(self, config: QuantConfig, resolved: ResolvedLayers) -> BuildOutcome:
        """Quantize as a configuration says.

        Raises:
            BadInput: Something asked for cannot be applied.
            ModelFailed: The model cannot be run.
        """
        prepared = self._builder.prepared
        if config.highest_mix_precision:
            return BuildOutcome(QuantizedModel(prepared.model, (), prepared.notes), None, resolved)
        recipe, told = self._best_recipe(config, resolved.rules)
        built = self._builder.build(recipe)
        same = None
        if config.calibration_method is not CalibrationMethod.MinMax:
            plain = replace(recipe, method=METHODS[CalibrationMethod.MinMax], corrections=())
            same = same_scales(built.quantized.quantizers, self._builder.build(plain).quantized.quantizers)
        return BuildOutcome(built.quantized, built, resolved, same, (*map(str, built.notes), *told))

    def _best_recipe(self, config: QuantConfig, rules: Sequence[Rule]) -> tuple[Recipe, tuple[str, ...]]:
        """Of no smoothing, smoothing, and smoothing with products inserted, what keeps most of the outputs."""
        recipe = recipe_of(config, rules)
        if not any(report.taken for report in self._builder.reports(recipe)):
            return recipe, ()
        wide = tuple(self._rules_of_inserted(recipe))
        tried = [replace(recipe, transforms=()), replace(recipe, rules=(*recipe.rules, *wide))]
        if wide:
            tried.insert(1, recipe_of(config, rules, insert=False))
        try:
            judge = SignalJudge(Bench(self._builder.prepared.model, self.samples))
        except BadInput:  # No output holds floats to compare: done as asked.
            return tried[-1], ()
        seen = spread(judge.total, _SMOOTHING_SAMPLES)
        found: list[float] = []
        for each in tried:
            quantized = self._builder.build(replace(each, corrections=())).quantized
            network = switch_on(quantized.float_model, quantized.quantizers)
            found.append(float(judge.measure(network, seen).mean()))
        # What costs more must gain more: the first within a hair of the best.
        best = next(place for place, value in enumerate(found) if value > max(found) - _LEAST_GAIN_DB)
        before, after, best_of_it = (decibels_text(value) for value in (found[0], found[best], max(found[1:])))
        if best:
            said = english("enable_smooth_quant: outputs {before} -> {after}", before=before, after=after)
        else:
            said = english(
                "enable_smooth_quant is left out: outputs {before} without it, {after} with it",
                before=before,
                after=best_of_it,
            )
        if wide and best == len(tried) - 1:
            said += english("; {count} inserted Mul {count:reads|read} 16 bits", count=len(wide))
        return tried[best], (said,)

    def _rules_of_inserted(self, recipe: Recipe) -> Iterator[Rule]:
        """What smoothing inserts reads 16 bits.

        Rounded to 8 bits in front of the factors, a tensor with outliers would lose what they are there to keep.
        """
        asked = {name: rule.precision.activation for rule in recipe.rules for name in rule.selector}
        prepared, names, unit_of = self.frontend.view, self.frontend.names, self.frontend.unit_of
        for node in self._builder.float_model(recipe).proto.graph.node if recipe.transforms else ():
            writer = prepared.producers.get(node.input[0]) if node.input else None
            if (
                node.name in prepared.by_name
                or node.op_type != "Mul"
                or writer is None
                or writer.name not in unit_of
            ):
                continue
            wanted = {asked.get(names.original(each.name), "") for each in unit_of[writer.name].nodes}
            yield Rule("node", (node.name,), Precision("s16" if "s16" in wanted else "u16"))


def same_scales(quantizers: Sequence[Quantizer], others: Sequence[Quantizer]) -> tuple[int, int]:
    """How many activations have the same scale and zero point in both, and how many there are."""
    theirs = {each.name: each.params for each in others}
    ours = [each for each in quantizers if each.kind == "activation" and each.name in theirs]
    same = [
        each
        for each in ours
        if np.array_equal(each.params.scale, theirs[each.name].scale)
        and np.array_equal(each.params.zero_point, theirs[each.name].zero_point)
    ]
    return len(same), len(ours)


# How precise the build is, layer by layer: precision_analysis.


@dataclass(frozen=True, slots=True)
class PrecisionFinding:
    """A tensor of which the two modes disagree by more than rounding.

    Attributes:
        operator: The layer that writes it.
        tensor: The tensor.
        share: Share of its codes that differ by more than one step.
    """

    operator: str
    tensor: str
    share: float


@dataclass(frozen=True, slots=True)
class Analysis:
    """What a precision analysis found.

    Attributes:
        method: PerLayer or EndToEnd.
        mode: Reference or NPUBackend.
        rows: One for each tensor that a layer writes, in execution order.
        nodes: The node behind each row, by its name in the graph.
        outputs: The tensors that leave the network.
        samples: Names of the samples.
        findings: Where the two modes disagree; only with NPUBackend.
        overflows: Where sums or biases did not fit; only with NPUBackend.
        in_float: Nodes that ran in float although NPUBackend was asked for, each with the reason.
    """

    method: PrecisionAnalysisMethod
    mode: PrecisionAnalysisMode
    rows: tuple[PrecisionRow, ...]
    nodes: tuple[str, ...]
    outputs: frozenset[str]
    samples: tuple[str, ...]
    findings: tuple[PrecisionFinding, ...] = ()
    overflows: tuple[str, ...] = ()
    in_float: tuple[str, ...] = ()

    @property
    def output_cosine(self) -> float | None:
        """The cosine of the worst output; None where no output has one."""
        found = [row.cosine for row in self.rows if row.tensor in self.outputs and row.cosine is not None]
        return min(found, default=None)


@dataclass(frozen=True, slots=True)
class PrecisionSettings:
    """How precision is measured.

    Attributes:
        method: Each layer fed with the float model's tensors, or the quantized model running through.
        mode: Fake quantization, or exact integers.
        arithmetic: How the chip computes.
        max_memory: Bytes the process may take; most of the free memory by default.
    """

    method: PrecisionAnalysisMethod
    mode: PrecisionAnalysisMode
    arithmetic: Arithmetic
    max_memory: int | None = None


def analyze_precision(
    outcome: BuildOutcome,
    samples: Samples,
    frontend: Frontend,
    *,
    settings: PrecisionSettings,
    progress: Progress = SILENT,
) -> Analysis:
    """Measure every layer as the vendor does.

    Args:
        outcome: The quantized model.
        samples: What it is fed.
        frontend: The graph, with the user's names.
        settings: How to measure.
        progress: Told of every sample.

    Raises:
        BadInput: The samples do not fit the model.
        ModelFailed: The model cannot be run.
    """
    integers = settings.mode is PrecisionAnalysisMode.NPUBackend
    variant = _VARIANTS[settings.method]

    def measured(wanted: Method) -> LayerReport:
        how = LayerSettings(
            wanted,
            "integer" if integers else "reference",
            settings.arithmetic,
            max_memory=settings.max_memory,
        )
        return analyze_layers(outcome.quantized, samples, how, progress=progress)

    report = measured(variant)
    # Both modes are compared at layers fed alike; run through, a step here is many steps later.
    compared = report if variant == "local" or not integers else measured("local")
    rows = list(_rows(report, frontend, outcome.resolved.float_nodes, variant))
    leaving = frozenset(row.tensor for row in report.rows if row.output)
    return Analysis(
        method=settings.method,
        mode=settings.mode,
        rows=tuple(row for _, row in rows),
        nodes=tuple(each.node for each, _ in rows),
        outputs=leaving,
        samples=report.samples,
        findings=tuple(_findings(compared.rows, frontend)) if integers else (),
        overflows=tuple(f"{each.node}: {each.text}" for each in report.overflows),
        in_float=tuple(f"{node}: {why}" for node, why in report.float_nodes.items()),
    )


def _rows(
    report: LayerReport, frontend: Frontend, float_nodes: Collection[str], variant: Method
) -> Iterator[tuple[LayerRow, PrecisionRow]]:
    for row in report.rows:
        score = row.local if variant == "local" else row.accumulated
        unit = frontend.unit_of.get(row.node)
        if score is None or unit is None or row.quantized == FUSED or row.tensor in unit.inner:
            continue
        if not any(frontend.view.computes_values(node) for node in unit.nodes):
            continue
        kind = quantized_type(
            frontend.type_of(unit), moves=frontend.moves(unit), in_float=unit.first.name in float_nodes
        )
        operator, dtype = frontend.names.original(unit.first.name), vendor_dtype(row.dtype)
        qdtype = dtype if row.quantized == FLOAT else vendor_dtype(row.quantized)
        if row.output and row.quantized != FLOAT:
            operator, kind, qdtype = f"{row.tensor}_DequantizeLinear", "AxDequantizeLinear", dtype
        yield row, PrecisionRow(operator, kind, row.tensor, row.shape, dtype, qdtype, score.cosine, score.mse)


def _findings(rows: Sequence[LayerRow], frontend: Frontend) -> Iterator[PrecisionFinding]:
    for row in rows:
        if row.distant_codes:
            operator = frontend.names.original(frontend.unit_of[row.node].first.name)
            yield PrecisionFinding(operator, row.tensor, row.distant_codes)
