"""A configuration as a recipe: how roundoff makes what it asks for."""

from collections.abc import Sequence

from roundoff.core.quant_plan import Rule
from roundoff.core.recipe import Recipe, Step
from roundoff.vendors.pulsar2.config.enums import CalibrationMethod
from roundoff.vendors.pulsar2.config.schema import QuantConfig

__all__ = ["METHODS", "recipe_of"]

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
