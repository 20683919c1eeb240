"""Quantizing a model as a configuration asks for it, for one set of samples."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from roundoff.core.plan import Recipe, Rule, Step
from roundoff.core.progress import SILENT, Progress
from roundoff.core.quantizers import Quantizer
from roundoff.core.target import Target
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.quantize.recipes import Built, Making, RecipeBuilder
from roundoff.run.capture import Samples
from roundoff.vendors.pulsar2.config.schema import CalibrationMethod, LayerConfig, QuantConfig
from roundoff.vendors.pulsar2.layer_configs import Frontend, ResolvedLayers, resolve_layers

__all__ = [
    "METHODS",
    "ConfigQuantizer",
    "Outcome",
    "recipe_of",
    "same_scales",
]


# A configuration as a recipe: how roundoff makes what it asks for.

METHODS = {
    CalibrationMethod.MinMax: "minmax",
    CalibrationMethod.Percentile: "percentile",
    CalibrationMethod.MSE: "mse",
    CalibrationMethod.KL: "entropy",
}
"""Calibration methods and what roundoff calls them."""


def recipe_of(config: QuantConfig, rules: Sequence[Rule]) -> Recipe:
    """The recipe of a configuration.

    Args:
        config: The configuration.
        rules: What layer_configs ask for.
    """
    smooth = Step(
        "smooth",
        (("alpha", config.smooth_quant_strength), ("threshold", config.smooth_quant_threshold)),
    )
    return Recipe(
        method=METHODS[config.calibration_method],
        transforms=(smooth,) if config.enable_smooth_quant else (),
        rules=tuple(rules),
        corrections=(Step("round_weights"),) if config.enable_adaround else (),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """A quantized model.

    Attributes:
        quantized: The float model, perhaps smoothed, and its quantizers; none with highest_mix_precision.
        built: How it came about; None with highest_mix_precision.
        resolved: What became of layer_configs.
        same_as_minmax: Activations whose scales are those of MinMax, of how many; None where MinMax was asked for.
        notes: What the user should know.
    """

    quantized: QuantizedModel
    built: Built | None
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
        making = Making(max_memory=max_memory, progress=progress, fold=optimize)
        self._builder = RecipeBuilder(model, samples, target, making=making)

    @cached_property
    def frontend(self) -> Frontend:
        """The graph that is quantized."""
        return Frontend(self._model, self._builder.prepared, self._builder.target)

    def resolve(self, layers: Sequence[LayerConfig]) -> ResolvedLayers:
        """What layer_configs ask for and get; nothing is run."""
        return resolve_layers(layers, self.frontend)

    def quantize(self, config: QuantConfig, resolved: ResolvedLayers) -> Outcome:
        """Quantize as a configuration says.

        Raises:
            BadInput: Something asked for cannot be applied.
            ModelFailed: The model cannot be run.
        """
        prepared = self._builder.prepared
        if config.highest_mix_precision:
            return Outcome(QuantizedModel(prepared.model, (), prepared.notes), None, resolved)
        recipe = recipe_of(config, resolved.rules)
        built = self._builder.build(recipe)
        same = None
        if config.calibration_method is not CalibrationMethod.MinMax:
            same = self._same_as_minmax(recipe, built)
        return Outcome(built.quantized, built, resolved, same, built.notes)

    def _same_as_minmax(self, recipe: Recipe, built: Built) -> tuple[int, int]:
        plain = replace(recipe, method=METHODS[CalibrationMethod.MinMax], corrections=())
        return same_scales(built.quantized.quantizers, self._builder.build(plain).quantized.quantizers)


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
