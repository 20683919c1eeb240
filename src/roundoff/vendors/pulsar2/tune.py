"""Following the flow charts for a configuration, and delivering what they lead to."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from roundoff.core.claims import ScratchFolder
from roundoff.core.document import json_text
from roundoff.core.files import check_output_directory, write_text
from roundoff.core.plan import FLOAT, NodePlan, QuantPlan
from roundoff.core.progress import SILENT, Progress
from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.messages.message import english, listed
from roundoff.quantize.planning.view import FusedUnit
from roundoff.run.capture import Samples
from roundoff.run.evaluators import Subset
from roundoff.search.strategies.flow_charts import (
    ChartDecision,
    ChartGoal,
    ChartLayer,
    ChartSettings,
    ChartsFollowed,
    follow_charts,
)
from roundoff.vendors.pulsar2.build import BuildOptions, BuildResult, build, check_complete
from roundoff.vendors.pulsar2.build_files import CONTEXT
from roundoff.vendors.pulsar2.config.document import located, to_json
from roundoff.vendors.pulsar2.config.schema import (
    BuildConfig,
    CalibrationMethod,
    DataType,
    LayerConfig,
    PrecisionAnalysisMethod,
    QuantConfig,
)
from roundoff.vendors.pulsar2.frontend import Frontend
from roundoff.vendors.pulsar2.layer_configs import refuse_unknown, resolve_layers
from roundoff.vendors.pulsar2.recipe import (
    Analysis,
    ConfigQuantizer,
    PrecisionSettings,
    analyze_precision,
    read_build_input,
    sample_directory,
)
from roundoff.vendors.pulsar2.tables import NATURAL, Column, Log, render_table, target_of
from roundoff.vendors.pulsar2.ticket import DECISIONS_NAME

# Compiling and measuring for the flow charts.

_WIDE = 16


def tuned_config(config: QuantConfig, settings: ChartSettings) -> QuantConfig:
    """A configuration with what tuning changes of it, to be looked at end to end."""
    entries: dict[tuple[str, bool], list[str]] = {}
    for name in dict.fromkeys((*settings.raised, *settings.float_weights)):
        dtype = settings.raised.get(name, DataType.DefaultDataType.name)
        entries.setdefault((dtype, name in settings.float_weights), []).append(name)
    layers = [
        LayerConfig(
            layer_names=tuple(names),
            data_type=DataType[dtype],
            weight_data_type=DataType.FP32 if in_float else DataType.DefaultDataType,
        )
        for (dtype, in_float), names in entries.items()
    ]
    switched: dict[str, Any] = dict.fromkeys(settings.switches, True)
    return replace(
        config,
        calibration_method=CalibrationMethod[settings.method],
        layer_configs=(*config.layer_configs, *layers),
        precision_analysis=True,
        precision_analysis_method=PrecisionAnalysisMethod.EndToEnd,
        **switched,
    )


class ModelTrials:
    """Trials of a real model.

    Args:
        model: The float model.
        samples: What it is calibrated and measured on; the first of them alone for single layers.
        config: The configuration it starts from.
        measured: What models are measured on end to end; the samples by default.
        max_memory: Bytes the process may take; most of the free memory by default.
        progress: Told how far it is.
    """

    def __init__(
        self,
        model: Model,
        samples: Samples,
        config: BuildConfig,
        *,
        measured: Samples | None = None,
        max_memory: int | None = None,
        progress: Progress = SILENT,
    ) -> None:
        self._max_memory = max_memory
        self._model, self._samples, self._config = model, samples, config
        self._target = target_of(config)
        self._measured, self._progress = measured or samples, progress

    @property
    def frontend(self) -> Frontend:
        """The graph that is quantized."""
        return self._all.frontend

    @cached_property
    def _all(self) -> ConfigQuantizer:
        return self._quantizing(self._samples)

    @cached_property
    def _one(self) -> ConfigQuantizer:
        return self._quantizing(Subset(self._samples, (0,)))

    def _quantizing(self, samples: Samples) -> ConfigQuantizer:
        optimize = not self._config.onnx_opt.disable_onnx_optimization
        return ConfigQuantizer(
            self._model,
            samples,
            self._target,
            optimize=optimize,
            max_memory=self._max_memory,
            progress=self._progress,
        )

    def end_to_end(self, settings: ChartSettings) -> float | None:
        """The cosine of the worst output."""
        config = tuned_config(self._config.quant, settings)
        analysis, _ = self._measure(self._all, config, self._measured, PrecisionAnalysisMethod.EndToEnd)
        return analysis.output_cosine

    def per_layer(self, settings: ChartSettings) -> Sequence[ChartLayer]:
        """All layers, each by itself, on the first sample."""
        config = tuned_config(self._config.quant, settings)
        quantizing = self._one
        analysis, plan = self._measure(quantizing, config, quantizing.samples, PrecisionAnalysisMethod.PerLayer)
        return tuple(_Remedies(quantizing.frontend, plan).layers(analysis))

    def _measure(
        self, quantizing: ConfigQuantizer, config: QuantConfig, samples: Samples, method: PrecisionAnalysisMethod
    ) -> tuple[Analysis, QuantPlan]:
        resolved = quantizing.resolve(config.layer_configs)
        outcome = quantizing.quantize(config, resolved)
        if not outcome.quantized.quantizers:
            what = english("Nothing in {path} is quantized, so there is nothing to tune.", path=self._model.path)
            raise BadInput(what, fix=english("see what 'roundoff pulsar2 build' says about it"))
        analysis = analyze_precision(
            outcome,
            samples,
            quantizing.frontend,
            settings=PrecisionSettings(
                method, config.precision_analysis_mode, self._target.arithmetic, self._max_memory
            ),
            progress=self._progress,
        )
        return analysis, resolved.plan


class _Remedies:
    """What can be given 16 bits for the sake of a layer."""

    def __init__(self, frontend: Frontend, plan: QuantPlan) -> None:
        self._frontend = frontend
        nodes = zip(frontend.view.nodes, plan.nodes, strict=True)
        self._plans: dict[str, NodePlan] = {node.name: planned for node, planned in nodes}

    def layers(self, analysis: Analysis) -> Iterator[ChartLayer]:
        """The layers of an analysis."""
        for row, node in zip(analysis.rows, analysis.nodes, strict=True):
            if row.cosine is not None:
                unit = self._frontend.unit_of[node]
                name = self._frontend.names.original(unit.first.name)
                yield ChartLayer(name, row.cosine, dict(self._remedy(unit)), self._has_weight(unit))

    def _remedy(self, unit: FusedUnit) -> Iterator[tuple[str, str]]:
        own = self._wider(unit)
        if own is not None:
            yield own
            return
        for reader in self._readers(unit):
            wider = self._wider(reader)
            if wider is not None:
                yield wider

    def _has_weight(self, unit: FusedUnit) -> bool:
        """Whether a unit has a quantized weight that the chip could have in float."""
        able = self._frontend.target.only.get(f"weight.{FLOAT}", frozenset())
        quantized = self._plans[unit.first.name].effective.weight not in ("", FLOAT)
        return quantized and unit.first.operation in able

    def _wider(self, unit: FusedUnit) -> tuple[str, str] | None:
        """A unit and the wider type of its sign; None where it moves data, is in float, or has 16 bits."""
        dtypes = self._plans[self._frontend.owners(unit)[0]].effective.activation.split("/")
        narrow = [dtype for dtype in dtypes if dtype[1:].isdigit() and int(dtype[1:]) < _WIDE]
        if self._frontend.moves(unit) or not narrow:
            return None
        signed = all(dtype.startswith("s") for dtype in dtypes)
        return self._frontend.names.original(unit.first.name), f"{'S' if signed else 'U'}{_WIDE}"

    def _readers(self, unit: FusedUnit) -> Iterator[FusedUnit]:
        """What computes with what a unit writes, also behind what only moves it."""
        for tensor in self._frontend.view.results(unit.last):
            for reader in self._frontend.view.readers[tensor]:
                other = self._frontend.unit_of[reader.node]
                if self._frontend.moves(other):
                    yield from self._readers(other)
                else:
                    yield other


CONFIG_NAME = "config.json"
"""What is written beside the build: the answer, and how it was found."""

DEFAULT_METHODS = ("MinMax", "MSE", "Percentile")
"""Those of the manual, in its order."""

# Tried behind the charts; what is on already is no news.
_SWITCHES = ("enable_smooth_quant", "enable_adaround")

_COLUMNS: tuple[Column, ...] = (
    ("#", "left"), ("Chart", "left"), ("Analysis", "left"), ("Method", "left"), ("16 bit", "left"),
    ("Cosin", "left"), ("What follows", "left"),
)  # fmt: skip
# The same model on the same samples; only sums in another order may differ.
_SAME = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class TunedBuild:
    """What tuning gave.

    Attributes:
        followed: The way there.
        config: The configuration it leads to.
        result: The build with it.
    """

    followed: ChartsFollowed
    config: BuildConfig
    result: BuildResult

    @property
    def verified(self) -> bool:
        """Whether the build has the cosine that the charts ended with."""
        built = None if self.result.analysis is None else self.result.analysis.output_cosine
        if built is None or self.followed.cosine is None:
            return built is self.followed.cosine
        return abs(built - self.followed.cosine) <= _SAME


def tune_build(
    config: BuildConfig,
    log: Log,
    *,
    methods: Sequence[str] = DEFAULT_METHODS,
    goal: ChartGoal | None = None,
    options: BuildOptions | None = None,
) -> TunedBuild:
    """Follow the flow charts, build with the configuration they lead to, and write down how it came about.

    Args:
        config: Where it starts.
        log: Told what is done.
        methods: Calibration methods, in the order they are tried.
        goal: When a model is close enough.
        options: How the model is built.

    Raises:
        BadInput: The model, the data and the configuration do not fit together, or the folder is taken.
        ModelFailed: The model cannot be run.
    """
    options = replace(options or BuildOptions(), advise=False)
    check_complete(config)
    if config.quant.highest_mix_precision:
        what = english("With highest_mix_precision nothing is quantized, so there is nothing to tune.")
        raise BadInput(what, fix=english("leave it out"))
    folder, goal = Path(config.output_dir), goal or ChartGoal()
    check_output_directory(folder, marker=CONTEXT, force=options.force, option="--output_dir")
    with ScratchFolder() as unpacked:
        followed = _followed(config, log, unpacked, methods=methods, goal=goal, options=options)
    log.table(decisions_table(followed.decisions, width=log.width))
    final = replace(config, quant=tuned_config(config.quant, followed.settings))
    log.tell(english("building with {answer}", answer=_answer(followed.settings)))
    result = build(final, log, options=options)
    tuned = TunedBuild(followed, final, result)
    write_text(folder / CONFIG_NAME, to_json(final))
    write_text(folder / DECISIONS_NAME, json_text(_document(tuned, goal)))
    _tell(log, tuned, goal)
    return tuned


def _followed(
    config: BuildConfig,
    log: Log,
    unpacked: Path,
    *,
    methods: Sequence[str],
    goal: ChartGoal,
    options: BuildOptions,
) -> ChartsFollowed:
    material = read_build_input(config, unpacked, base=options.base, log=Log())
    measured = None
    if config.quant.input_sample_dir:
        measured = sample_directory(located(config.quant.input_sample_dir, options.base), material.model)
    trials = ModelTrials(
        material.model,
        material.samples,
        config,
        measured=measured,
        max_memory=options.max_memory,
        progress=log.progress,
    )
    refuse_unknown(resolve_layers(config.quant.layer_configs, trials.frontend))
    switches = [name for name in _SWITCHES if not getattr(config.quant, name)]
    return follow_charts(trials, methods, goal, switches=switches, told=lambda each: log.tell(_line(each)))


def _answer(settings: ChartSettings) -> str:
    weights = english("float weights in {count} {count:layer|layers}", count=len(settings.float_weights))
    wide = english("{count} {count:layer|layers} of 16 bits", count=len(settings.raised))
    return listed([settings.method, wide, *settings.switches, *([weights] if settings.float_weights else [])])


def _line(decision: ChartDecision) -> str:
    return english(
        "chart {chart}, {analysis}, {method}, {count} {count:layer|layers} of 16 bits: {cosine}, {verdict}",
        chart=decision.chart,
        analysis=decision.analysis,
        method=decision.method,
        count=decision.raised,
        cosine=english("no cosine") if decision.cosine is None else f"{decision.cosine:.5f}",
        verdict=decision.verdict,
    )


def decisions_table(decisions: Sequence[ChartDecision], *, width: int = NATURAL) -> str:
    """All steps, with what followed from each."""
    rows = [
        (
            str(number),
            each.chart,
            each.analysis,
            each.method,
            str(each.raised),
            "None" if each.cosine is None else f"{each.cosine:.5f}",
            each.verdict,
        )
        for number, each in enumerate(decisions, 1)
    ]
    return render_table("Tuning Steps", _COLUMNS, rows, width=width, fold=True)


def _document(tuned: TunedBuild, goal: ChartGoal) -> Mapping[str, Any]:
    followed, analysis = tuned.followed, tuned.result.analysis
    return {
        "goal": asdict(goal),
        "decisions": [asdict(each) for each in followed.decisions],
        "method": followed.settings.method,
        "layers": dict(followed.settings.raised),
        "switches": list(followed.settings.switches),
        "float_weights": list(followed.settings.float_weights),
        "output_cosine": followed.cosine,
        "output_cosine_of_build": None if analysis is None else analysis.output_cosine,
        "verified": tuned.verified,
        "met": followed.met,
        "stuck": list(followed.stuck),
    }


def _tell(log: Log, tuned: TunedBuild, goal: ChartGoal) -> None:
    followed = tuned.followed
    if not tuned.verified:
        log.alert(
            english(
                "the build does not have the cosine of the trial, {cosine}: please report this",
                cosine=followed.cosine,
            )
        )
    cosine = (
        "no cosine" if followed.cosine is None else english("a cosine of {cosine:.5f}", cosine=followed.cosine)
    )
    if followed.met:
        log.tell(
            english(
                "good enough: the worst output has {cosine}, above {output}", cosine=cosine, output=goal.output
            )
        )
        return
    log.alert(
        english(
            "not good enough: the worst output has {cosine}, not above {output}, whatever is tried",
            cosine=cosine,
            output=goal.output,
        )
    )
    log.tell(english("what is left is a ticket to the vendor, with everything needed to see the loss:"))
    log.tell(f"  {shlex.join(['roundoff', 'bundle', str(tuned.result.folder), '-o', 'case.zip'])}")
