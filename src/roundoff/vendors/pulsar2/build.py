"""A whole build, step by step in the vendor's order."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from roundoff import __version__
from roundoff.core.document import json_text
from roundoff.core.files import check_output_directory, output_directory, write_text
from roundoff.core.names import shown
from roundoff.errors import BadInput
from roundoff.graph.blocks import node_products
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.save import save_model
from roundoff.graph.shapes import values
from roundoff.graph.transformers import MASK_LEVEL
from roundoff.messages.message import english, some
from roundoff.messages.numbers import share_text
from roundoff.quantize.agreement import check_preparation
from roundoff.quantize.transforms.clamp_mask import masked_attentions
from roundoff.run.budget import RunBudget
from roundoff.run.capture import Samples, complete_values, read_feed
from roundoff.search.strategies.flow_charts import GOOD_LAYER, GOOD_OUTPUT
from roundoff.studies.distribution.study import InspectionSettings, find_outliers
from roundoff.vendors.pulsar2.build_files import (
    AXMODEL,
    CHART,
    CONTEXT,
    DATASET,
    OPTIMIZED,
    TABLE,
    TEST_DATA,
    Tree,
    axmodel_document,
    snapshot,
)
from roundoff.vendors.pulsar2.config.checks import not_applicable
from roundoff.vendors.pulsar2.config.document import located, to_document
from roundoff.vendors.pulsar2.config.schema import BuildConfig, ModelType, PrecisionAnalysisMethod
from roundoff.vendors.pulsar2.layer_configs import (
    ResolvedLayers,
    asked_for,
    refuse_unknown,
    resolution_json,
    resolution_table,
)
from roundoff.vendors.pulsar2.recipe import (
    Analysis,
    BuildInput,
    BuildOutcome,
    ConfigQuantizer,
    PrecisionSettings,
    analyze_precision,
    read_build_input,
    sample_directory,
)
from roundoff.vendors.pulsar2.tables import (
    TABLE_LEVELS,
    Log,
    OutlierTableRow,
    layer_config_table,
    outlier_table,
    precision_table,
    quant_config_table,
    target_of,
)

# build_context.json: what was built, from what, and what came of it.


def count_macs(model: Model, samples: Samples) -> int:
    """Products that the model computes for one sample."""
    feed = read_feed(model, samples, 0)
    inferred = values(model, {name: array.shape for name, array in feed.items()})
    shapes = {
        value.name: value.shape for value in complete_values(model, inferred, feed) if value.shape is not None
    }
    shapes |= {tensor.name: tuple(tensor.dims) for tensor in model.proto.graph.initializer}
    return sum(node_products(node, shapes) for node in model.proto.graph.node)


def context_document(
    config: BuildConfig,
    outcome: BuildOutcome,
    analysis: Analysis | None,
    *,
    macs: int,
    record: Mapping[str, Any],
    log: Sequence[str],
) -> dict[str, Any]:
    """The content of build_context.json.

    Args:
        config: The configuration with everything that the command line changed.
        outcome: The quantized model.
        analysis: Its precision, where that was measured.
        macs: Products that the model computes for one sample.
        record: More of it: the command, the files that were read, versions.
        log: What was said.
    """
    found: dict[str, Any] = {
        "roundoff": __version__,
        **record,
        "config": to_document(config, full=True),
        "not_applicable": [asdict(each) for each in not_applicable(config)],
        "macs": macs,
        "layer_configs": resolution_json(outcome.resolved.entries),
        "notes": list(outcome.notes),
        "log": list(log),
    }
    if outcome.same_as_minmax is not None:
        same, total = outcome.same_as_minmax
        found["scales_of_minmax"] = {"same": same, "activations": total}
    if analysis is not None:
        found["precision_analysis"] = {
            "method": analysis.method.name,
            "mode": analysis.mode.name,
            "samples": list(analysis.samples),
            "output_cosine": analysis.output_cosine,
            "rows": [asdict(row) for row in analysis.rows],
            "modes_disagree": [asdict(each) for each in analysis.findings],
            "overflows": list(analysis.overflows),
            "in_float": list(analysis.in_float),
        }
    return found


# The tables of a build, and what they mean, in words.

_LISTED = 5


def tell_configuration(log: Log, config: BuildConfig, material: BuildInput, tree: Tree) -> None:
    """Show what inputs are calibrated with, what is asked for layers, and what has no meaning here."""
    for each in not_applicable(config):
        log.alert(
            english(
                "{field} = {value} changes nothing here: {why}", field=each.field, value=each.value, why=each.why
            )
        )
    log.table(quant_config_table(material.rows(tree.named), width=log.width))
    rows = [row for entry in config.quant.layer_configs for row in asked_for(entry)]
    if rows:
        log.table(layer_config_table(rows, width=log.width))
    log.tell(f"Transformer optimize level: {config.quant.transformer_opt_level}")


def tell_resolution(log: Log, resolved: ResolvedLayers, config: BuildConfig) -> None:
    """Show what became of layer_configs."""
    if not resolved.entries:
        return
    log.table(resolution_table(resolved.entries, width=log.width))
    missed = sum(len(entry.nodes) - entry.applied for entry in resolved.entries)
    if missed and not config.quant.highest_mix_precision:
        log.alert(
            english(
                "layer_configs are not in effect at {count} {count:node|nodes} they name; the table says why",
                count=missed,
            )
        )


def tell_analysis(log: Log, analysis: Analysis, tree: Tree, *, advise: bool = True) -> None:
    """Show the precision table and what is remarkable in it.

    Args:
        log: Where to.
        analysis: What was measured.
        tree: Where it is written.
        advise: Say what to type next when it is not enough.
    """
    method, mode = analysis.method.name, analysis.mode.name
    log.tell(
        english(
            "precision analysis, {method} {mode}, on {count} {count:sample|samples}",
            method=method,
            mode=mode,
            count=len(analysis.samples),
        )
    )
    log.table(precision_table(analysis.rows, method=method, mode=mode, width=log.width, fold=True))
    log.tell(f"save precision analysis table to [{tree.shown(TABLE)}]")
    log.tell(f"save precision analysis graph to [{tree.shown(CHART)}]")
    _tell_judgement(log, analysis, advise=advise)
    for finding in analysis.findings[:_LISTED]:
        log.alert(
            english(
                "Reference and NPUBackend disagree at {operator}: {share} of the codes of {tensor!r} differ by "
                "more than one step, which rounding cannot explain",
                operator=finding.operator,
                share=share_text(finding.share),
                tensor=finding.tensor,
            )
        )
    if len(analysis.findings) > _LISTED:
        log.alert(
            english(
                "... and at {count} {count:more layer|more layers}; see build_context.json",
                count=len(analysis.findings) - _LISTED,
            )
        )
    for text in analysis.overflows:
        log.alert(english("overflow at {text}", text=text))
    for text in analysis.in_float[:_LISTED]:
        log.tell(english("ran in float, not in integers: {text}", text=text))


def _tell_judgement(log: Log, analysis: Analysis, *, advise: bool) -> None:
    unknown = [row.operator for row in analysis.rows if row.cosine is None]
    if unknown:
        log.alert(english("no cosine, as nothing finite can be compared: {names}", names=some(unknown, _LISTED)))
    if analysis.method is PrecisionAnalysisMethod.EndToEnd:
        cosine = analysis.output_cosine
        if cosine is None:
            log.alert(english("no output can be judged by its cosine"))
        elif cosine > GOOD_OUTPUT:
            log.tell(
                english(
                    "the worst output has a cosine of {cosine:.5f}, above {good_output}: try it on the board",
                    cosine=cosine,
                    good_output=GOOD_OUTPUT,
                )
            )
        else:
            following = english(": 'roundoff pulsar2 tune' with this configuration goes on") if advise else ""
            log.alert(
                english(
                    "the worst output has a cosine of {cosine:.5f}, not above {good_output}{following}",
                    cosine=cosine,
                    good_output=GOOD_OUTPUT,
                    following=following,
                )
            )
        return
    low = [row for row in analysis.rows if row.cosine is not None and row.cosine <= GOOD_LAYER]
    if not low:
        log.tell(
            english(
                "all layers have a cosine above {good_layer} by themselves; EndToEnd says how they add up",
                good_layer=GOOD_LAYER,
            )
        )
    else:
        low.sort(key=lambda row: row.cosine or 0.0)
        names = [f"{row.operator} ({row.cosine:.5f})" for row in low]
        log.alert(
            english(
                "not above {good_layer} by themselves: {count} {count:layer|layers}, {names}",
                good_layer=GOOD_LAYER,
                count=len(low),
                names=some(names, _LISTED),
            )
        )


@dataclass(frozen=True, slots=True, eq=False)
class BuildResult:
    """What a build gave.

    Attributes:
        outcome: The quantized model.
        analysis: Its precision; None where it was not asked for, or nothing is quantized.
        folder: Where everything is.
    """

    outcome: BuildOutcome
    analysis: Analysis | None
    folder: Path

    @property
    def followed(self) -> bool:
        """Whether every entry of layer_configs names something and is in effect wherever it does."""
        return all(
            not entry.unknown and entry.applied == len(entry.nodes) for entry in self.outcome.resolved.entries
        )


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How a build is run, besides its configuration.

    Attributes:
        base: Where relative paths of the configuration are looked for besides the current folder.
        force: Replace an earlier build in the same folder.
        record: What the record of the build says besides: the command, the files that were read, versions.
        advise: Say what to type next when the precision is not enough.
        max_memory: Bytes the process may take; most of the free memory by default.
    """

    base: Path | None = None
    force: bool = False
    record: Mapping[str, Any] = field(default_factory=dict)
    advise: bool = True
    max_memory: int | None = None


_PLAIN = BuildOptions()


def build(config: BuildConfig, log: Log, *, options: BuildOptions = _PLAIN) -> BuildResult:
    """Quantize a model as a configuration says, and write everything down.

    Args:
        config: The configuration, complete with ``input`` and ``output_dir``.
        log: Told what is done.
        options: How it is run.

    Raises:
        BadInput: The model, the data and the configuration do not fit together, or the folder is taken.
        ModelFailed: The model cannot be run.
    """
    check_complete(config)
    folder = Path(config.output_dir)
    check_output_directory(folder, marker=CONTEXT, force=options.force, option="--output_dir")
    with output_directory(folder, marker=CONTEXT, force=options.force) as staged:
        work = _Build(config, log, Tree(staged, shown(config.output_dir)), options)
        outcome, analysis, macs = work.run()
        content = context_document(config, outcome, analysis, macs=macs, record=options.record, log=log.lines)
        write_text(staged / CONTEXT, json_text(content))
    return BuildResult(outcome, analysis, folder)


def check_complete(config: BuildConfig) -> None:
    """Refuse a configuration that says not what is built, or something that is no float model.

    Raises:
        BadInput: It does.
    """
    if not config.input:
        raise BadInput(
            english("No model is given."), fix=english("add --input MODEL.onnx, or 'input' to the configuration")
        )
    if not config.output_dir:
        raise BadInput(
            english("No folder is given."),
            fix=english("add --output_dir DIR, or 'output_dir' to the configuration"),
        )
    if config.model_type is not ModelType.ONNX:
        what = english("Models of the type {name} are quantized already.", name=config.model_type.name)
        fix = english(
            "give the float model, or look at this one with 'roundoff layers --quantized MODEL --data ...'"
        )
        raise BadInput(what, fix=fix)


@dataclass(frozen=True, slots=True)
class _Build:
    config: BuildConfig
    log: Log
    tree: Tree
    options: BuildOptions

    def run(self) -> tuple[BuildOutcome, Analysis | None, int]:
        config, log = self.config, self.log
        material = read_build_input(config, self.tree.folder / DATASET, base=self.options.base, log=log)
        target = target_of(config)
        optimize = not config.onnx_opt.disable_onnx_optimization
        quantizing = ConfigQuantizer(
            material.model,
            material.samples,
            target,
            optimize=optimize,
            max_memory=self.options.max_memory,
            progress=log.progress,
        )
        prepared = quantizing.frontend.prepared
        save_model(prepared.model, self.tree.folder / OPTIMIZED)
        log.tell(f"save optimized onnx to [{self.tree.shown(OPTIMIZED)}]")
        if config.onnx_opt.model_check:
            # Compare the outputs of the optimized model with those of the original.
            check = check_preparation(material.model, prepared.model, material.samples)
            for note in check.notes:
                say = self.log.tell if check.agrees else self.log.alert
                say(english("model_check: {note}", note=note))
        tell_configuration(log, config, material, self.tree)
        resolved = quantizing.resolve(config.quant.layer_configs)
        tell_resolution(log, resolved, config)
        refuse_unknown(resolved)
        self._tell_steps(before=True)
        outcome = quantizing.quantize(config.quant, resolved)
        self._tell_steps(before=False)
        self._tell_outcome(outcome)
        document = axmodel_document(outcome.quantized, quantizing.frontend, resolved, config)
        log.table(snapshot(outcome.quantized, resolved.plan, document))
        log.tell("Network Quantization Finished.")
        self._write(outcome, material, document)
        if config.quant.enable_smooth_quant:
            self._show_outliers(prepared.model, material.samples)
        analysis = self._analyze(quantizing, outcome, material)
        log.tell(
            english(
                "{output_name} is not written: compiling for the chip takes the vendor's tool, with this "
                "configuration",
                output_name=config.output_name,
            )
        )
        return outcome, analysis, count_macs(prepared.model, material.samples)

    def _tell_steps(self, *, before: bool) -> None:
        """Name the steps that are done, under the vendor's names."""
        steps = (
            "Set MixPrecision Pass",
            "Quantization Fusion Pass",
            "Parameter Quantization Pass",
            "Runtime Calibration Pass",
        )
        later = ["Quantization Alignment Pass", "Passive Parameter Quantization", "Parameter Baking Pass"]
        if self.config.quant.enable_adaround:
            later.insert(1, "Adaround Reconstruction")
        if before and self.config.quant.enable_smooth_quant:
            self.log.tell("Enable Smooth Quant, this pass is used for outlier activation.")
        for step in steps if before else later:
            self.log.running(step)

    def _tell_outcome(self, outcome: BuildOutcome) -> None:
        log, quant = self.log, self.config.quant
        if quant.highest_mix_precision:
            log.alert(
                english(
                    "highest_mix_precision: every operation stays in FP32, nothing is quantized, and "
                    "layer_configs have no effect"
                )
            )
        if outcome.built is not None:
            for step in outcome.built.steps:
                taken = len(step.taken)
                log.tell(
                    english("{step}: {count} {count:operation|operations} took part", step=step.name, count=taken)
                )
        for note in outcome.notes:
            log.tell(english("note: {note}", note=note))
        self._warn_of_masks(outcome)
        if outcome.same_as_minmax is not None:
            same, total = outcome.same_as_minmax
            name = quant.calibration_method.name
            if same == total:
                log.alert(
                    english(
                        "{name} gave the scales of MinMax for all {total} activations: it changes nothing here",
                        name=name,
                        total=total,
                    )
                )
            else:
                log.tell(
                    english(
                        "{name} gave other scales than MinMax for {others} of {count} "
                        "{count:activation|activations}",
                        name=name,
                        others=total - same,
                        count=total,
                    )
                )

    def _warn_of_masks(self, outcome: BuildOutcome) -> None:
        """Name attention scores whose scale a mask sets: whether the vendor's tool limits masks is not known."""
        quantized = outcome.quantized
        scores = {part.masked for part in masked_attentions(quantized.float_model)}
        steps = {
            each.tensor: float(np.max(each.params.scale))
            for each in quantized.quantizers
            if each.tensor in scores and float(np.max(each.params.scale)) * 2**each.spec.bits > -MASK_LEVEL
        }
        if steps:
            name, step = max(steps.items(), key=lambda each: each[1])
            self.log.alert(
                english(
                    "a mask sets the scale of {count} {count:tensor|tensors} of attention scores: {name} has "
                    "steps of {step:.3g}; 'roundoff transform clamp_mask' writes a model with the same outputs "
                    "and limited masks, for the vendor's tool too",
                    count=len(steps),
                    name=name,
                    step=step,
                )
            )

    def _write(self, outcome: BuildOutcome, material: BuildInput, document: dict[str, object]) -> None:
        tree, log = self.tree, self.log
        tree.write_quantized(outcome.quantized, document, frontend_too=self.config.debug.dump_frontend_graph)
        log.tell(f"quant.axmodel export success: {tree.shown(AXMODEL)}")
        for note in tree.write_deployed(outcome.quantized, material.settled):
            # What was said of the calibration's mean and std holds for the input that has the same.
            if note not in log.lines:
                log.tell(note)
        tree.write_test_data(outcome.quantized, material.samples)
        log.tell(f"export pb data to folder: {tree.shown(TEST_DATA)}")

    def _show_outliers(self, model: Model, samples: Samples) -> None:
        """The outliers of the float model as it was before smoothing."""
        settings = InspectionSettings(limits=RunBudget(max_memory=self.options.max_memory))
        report = find_outliers(QuantizedModel(model, ()), samples, settings, progress=self.log.progress)
        rows = [
            OutlierTableRow(row.tensor, row.sparse_share, [row.share(level) for level in TABLE_LEVELS])
            for row in report.rows
            if row.node and any(row.share(level) for level in TABLE_LEVELS)
        ]
        if rows:
            self.log.table(outlier_table(rows, width=self.log.width, fold=True))
        else:
            self.log.tell(english("no tensor has outliers of level {level} or more", level=TABLE_LEVELS[0]))

    def _analyze(
        self, quantizing: ConfigQuantizer, outcome: BuildOutcome, material: BuildInput
    ) -> Analysis | None:
        quant, log = self.config.quant, self.log
        if not quant.precision_analysis:
            return None
        if not outcome.quantized.quantizers:
            log.alert(english("precision_analysis: nothing is quantized, so there is nothing to measure"))
            return None
        samples = material.samples
        if quant.input_sample_dir:
            samples = sample_directory(located(quant.input_sample_dir, self.options.base), material.model)
        frontend, arithmetic = quantizing.frontend, target_of(self.config).arithmetic
        analysis = analyze_precision(
            outcome,
            samples,
            frontend,
            settings=PrecisionSettings(
                quant.precision_analysis_method,
                quant.precision_analysis_mode,
                arithmetic,
                self.options.max_memory,
            ),
            progress=log.progress,
        )
        self.tree.write_analysis(
            analysis, frontend, quantized=outcome.quantized, samples=samples, arithmetic=arithmetic
        )
        tell_analysis(log, analysis, self.tree, advise=self.options.advise)
        return analysis
