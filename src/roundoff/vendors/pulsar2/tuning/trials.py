"""Compiling and measuring for the flow charts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from roundoff.core.progress import SILENT, Progress
from roundoff.core.quant_plan import FLOAT, NodePlan, QuantPlan
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.quantize.planning.fusing import Unit
from roundoff.runtime.feeds import Samples
from roundoff.vendors.pulsar2.building.precision import Analysis, PrecisionSettings, analyze_precision
from roundoff.vendors.pulsar2.building.quantizing import Quantizing
from roundoff.vendors.pulsar2.chips import target_of
from roundoff.vendors.pulsar2.config.enums import CalibrationMethod, DataType, PrecisionAnalysisMethod
from roundoff.vendors.pulsar2.config.schema import BuildConfig, LayerConfig, QuantConfig
from roundoff.vendors.pulsar2.layers.entries import Frontend
from roundoff.vendors.pulsar2.tuning.charts import Layer, Settings

__all__ = ["ModelTrials", "tuned_config"]

_WIDE = 16


def tuned_config(config: QuantConfig, settings: Settings) -> QuantConfig:
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


@dataclass(frozen=True, slots=True)
class _First:
    """The first of some samples, alone."""

    samples: Samples

    @property
    def label(self) -> str:
        """Where it comes from."""
        return self.samples.label

    @property
    def names(self) -> tuple[str, ...]:
        """Its name."""
        return self.samples.names[:1]

    def feed(self, index: int) -> Mapping[str, Array]:
        """Its values."""
        return self.samples.feed(index)


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
    def _all(self) -> Quantizing:
        return self._quantizing(self._samples)

    @cached_property
    def _one(self) -> Quantizing:
        return self._quantizing(_First(self._samples))

    def _quantizing(self, samples: Samples) -> Quantizing:
        optimize = not self._config.onnx_opt.disable_onnx_optimization
        return Quantizing(
            self._model,
            samples,
            self._target,
            optimize=optimize,
            max_memory=self._max_memory,
            progress=self._progress,
        )

    def end_to_end(self, settings: Settings) -> float | None:
        """The cosine of the worst output."""
        config = tuned_config(self._config.quant, settings)
        analysis, _ = self._measure(self._all, config, self._measured, PrecisionAnalysisMethod.EndToEnd)
        return analysis.output_cosine

    def per_layer(self, settings: Settings) -> Sequence[Layer]:
        """All layers, each by itself, on the first sample."""
        config = tuned_config(self._config.quant, settings)
        quantizing = self._one
        analysis, plan = self._measure(quantizing, config, quantizing.samples, PrecisionAnalysisMethod.PerLayer)
        return tuple(_Remedies(quantizing.frontend, plan).layers(analysis))

    def _measure(
        self, quantizing: Quantizing, config: QuantConfig, samples: Samples, method: PrecisionAnalysisMethod
    ) -> tuple[Analysis, QuantPlan]:
        resolved = quantizing.resolve(config.layer_configs)
        outcome = quantizing.quantize(config, resolved)
        if not outcome.quantized.quantizers:
            what = f"Nothing in {self._model.path} is quantized, so there is nothing to tune."
            raise BadInput(what, fix="see what 'roundoff pulsar2 build' says about it")
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

    def layers(self, analysis: Analysis) -> Iterator[Layer]:
        """The layers of an analysis."""
        for row, node in zip(analysis.rows, analysis.nodes, strict=True):
            if row.cosine is not None:
                unit = self._frontend.unit_of[node]
                name = self._frontend.names.original(unit.first.name)
                yield Layer(name, row.cosine, dict(self._remedy(unit)), self._has_weight(unit))

    def _remedy(self, unit: Unit) -> Iterator[tuple[str, str]]:
        own = self._wider(unit)
        if own is not None:
            yield own
            return
        for reader in self._readers(unit):
            wider = self._wider(reader)
            if wider is not None:
                yield wider

    def _has_weight(self, unit: Unit) -> bool:
        """Whether a unit has a quantized weight that the chip could have in float."""
        able = self._frontend.target.only.get(f"weight.{FLOAT}", frozenset())
        quantized = self._plans[unit.first.name].effective.weight not in ("", FLOAT)
        return quantized and unit.first.operation in able

    def _wider(self, unit: Unit) -> tuple[str, str] | None:
        """A unit and the wider type of its sign; None where it moves data, is in float, or has 16 bits."""
        dtypes = self._plans[self._frontend.owners(unit)[0]].effective.activation.split("/")
        narrow = [dtype for dtype in dtypes if dtype[1:].isdigit() and int(dtype[1:]) < _WIDE]
        if self._frontend.moves(unit) or not narrow:
            return None
        signed = all(dtype.startswith("s") for dtype in dtypes)
        return self._frontend.names.original(unit.first.name), f"{'S' if signed else 'U'}{_WIDE}"

    def _readers(self, unit: Unit) -> Iterator[Unit]:
        """What computes with what a unit writes, also behind what only moves it."""
        for tensor in self._frontend.view.results(unit.last):
            for reader in self._frontend.view.readers[tensor]:
                other = self._frontend.unit_of[reader.node]
                if self._frontend.moves(other):
                    yield from self._readers(other)
                else:
                    yield other
