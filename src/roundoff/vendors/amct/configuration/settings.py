"""How single layers are quantized, as a configuration says, with every default filled in."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

__all__ = [
    "DEFAULT_BITS",
    "ActivationSettings",
    "LayerSettings",
    "QuantConfig",
    "TensorSettings",
    "WeightSettings",
    "with_algorithm",
]

DEFAULT_BITS = 8


@dataclass(frozen=True, slots=True)
class ActivationSettings:
    """How inputs are quantized.

    Attributes:
        algorithm: ``ifmr`` or ``hfmg``.
        bits: Width of codes.
        asymmetric: Whether zero may have any code.
        options: Options of the algorithm, as `roundoff.quantize.calibration` names them.
    """

    algorithm: str = "ifmr"
    bits: int = DEFAULT_BITS
    asymmetric: bool = True
    options: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WeightSettings:
    """How weights are quantized.

    Attributes:
        algorithm: ``arq_quantize`` or ``ada_quantize``.
        bits: Width of codes.
        channel_wise: Whether each output channel has a scale of its own.
    """

    algorithm: str = "arq_quantize"
    bits: int = DEFAULT_BITS
    channel_wise: bool = False


@dataclass(frozen=True, slots=True)
class LayerSettings:
    """How a layer is quantized.

    Attributes:
        enabled: Whether it is.
        activation: Its input.
        weight: Its weight.
        balance: How much of the difficulty moves from its input to its weight, 0.2 to 0.8; None for nothing.
    """

    enabled: bool
    activation: ActivationSettings
    weight: WeightSettings
    balance: float | None = None


@dataclass(frozen=True, slots=True)
class TensorSettings:
    """One input of a node that is quantized for itself.

    Attributes:
        layer: The node.
        input: Which of its inputs.
        activation: How.
    """

    layer: str
    input: int
    activation: ActivationSettings

    @property
    def key(self) -> str:
        """Its key in a record file."""
        return f"{self.layer}:{self.input}"


@dataclass(frozen=True, slots=True)
class QuantConfig:
    """A configuration, checked.

    Attributes:
        document: The JSON it was read from.
        batch_num: Batches of calibration.
        fuse: Whether batch normalization is folded.
        unfused: Layers for which it is not.
        half_precision: Whether scales are limited to what half precision holds.
        layers: By name, in the order of the file.
        tensors: Single inputs.
        notes: Where a layer cannot have what was asked for and gets less.
    """

    document: Mapping[str, Any]
    batch_num: int
    fuse: bool
    unfused: frozenset[str]
    half_precision: bool
    layers: Mapping[str, LayerSettings]
    tensors: tuple[TensorSettings, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def enabled(self) -> dict[str, LayerSettings]:
        """The layers that are quantized."""
        return {name: each for name, each in self.layers.items() if each.enabled}

    def may_fold(self, node: str) -> bool:
        """Whether a node may be folded into a layer, or have others folded into it."""
        return self.fuse and node not in self.unfused


def with_algorithm(config: QuantConfig, algorithm: str) -> QuantConfig:
    """The same with another calibration algorithm, at its defaults, for all inputs."""

    def changed(settings: ActivationSettings) -> ActivationSettings:
        return replace(settings, algorithm=algorithm, options={})

    layers = {name: replace(each, activation=changed(each.activation)) for name, each in config.layers.items()}
    return replace(config, layers=layers)
