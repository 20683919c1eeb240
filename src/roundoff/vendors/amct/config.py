"""From the JSON of a configuration to checked settings; what is not known is refused."""

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from roundoff.core import untrusted
from roundoff.core.files import read_small, write_text
from roundoff.errors import BadInput, nearest
from roundoff.messages.message import english
from roundoff.quantize.calibration.methods import get_method, options_of
from roundoff.vendors.amct.layers import AmctLayer
from roundoff.vendors.facade import WrongType, WrongValue

# How single layers are quantized, as a configuration says, with every default filled in.

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
class AmctLayerSettings:
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
class AmctConfig:
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
    layers: Mapping[str, AmctLayerSettings]
    tensors: tuple[TensorSettings, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def enabled(self) -> dict[str, AmctLayerSettings]:
        """The layers that are quantized."""
        return {name: each for name, each in self.layers.items() if each.enabled}

    def may_fold(self, node: str) -> bool:
        """Whether a node may be folded into a layer, or have others folded into it."""
        return self.fuse and node not in self.unfused


def with_algorithm(config: AmctConfig, algorithm: str) -> AmctConfig:
    """The same with another calibration algorithm, at its defaults, for all inputs."""

    def changed(settings: ActivationSettings) -> ActivationSettings:
        return replace(settings, algorithm=algorithm, options={})

    layers = {name: replace(each, activation=changed(each.activation)) for name, each in config.layers.items()}
    return replace(config, layers=layers)


# Writing a configuration for a model: every layer with the settings it will have.

# What a layer can have of what was asked for: AMCT's rules of which types take which widths.

_WIDE_ACTIVATIONS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_WINOGRAD_BITS = (6, 7)
_NARROW_BITS = 4
_FLAT_RANK, _DEEP_RANK = 4, 5


def fitted(layer: AmctLayer, settings: AmctLayerSettings, *, where: str) -> tuple[AmctLayerSettings, list[str]]:
    """Settings that the layer can have, and what was changed for that.

    Args:
        layer: The layer.
        settings: What was asked for.
        where: What messages begin with.

    Raises:
        WrongValue: Something was asked for that the layer cannot have.
    """
    notes: list[str] = []
    activation, weight = settings.activation, settings.weight
    reason = _no_wide_activation(layer) if activation.bits > DEFAULT_BITS else ""
    if reason:
        notes.append(
            english(
                "{name}: inputs get 8 bits, not {bits}: {reason}",
                name=layer.name,
                bits=activation.bits,
                reason=reason,
            )
        )
        activation = replace(activation, bits=DEFAULT_BITS)
    reason = _no_such_weight(layer, weight.bits)
    if reason:
        notes.append(
            english(
                "{name}: weights get 8 bits, not {bits}: {reason}",
                name=layer.name,
                bits=weight.bits,
                reason=reason,
            )
        )
        weight = replace(weight, bits=DEFAULT_BITS)
    if activation.asymmetric and must_be_symmetric(layer):
        notes.append(
            english(
                "{name}: inputs are symmetric, {operation} of this kind knows no offset",
                name=layer.name,
                operation=layer.op_type,
            )
        )
        activation = replace(activation, asymmetric=False)
    if weight.channel_wise and not layer.can_be_channel_wise:
        what = english(
            "{where}: {op_type} cannot have a scale for each channel.", where=where, op_type=layer.op_type
        )
        raise WrongValue(what, fix=english('set "channel_wise" to false'))
    if settings.balance is not None and not layer.can_be_balanced:
        what = english(
            "{where}: {op_type} has no weight that its input could be balanced with.",
            where=where,
            op_type=layer.op_type,
        )
        raise WrongValue(what, fix=english("remove dmq_balancer from this layer"))
    return replace(settings, activation=activation, weight=weight), notes


def must_be_symmetric(layer: AmctLayer) -> bool:
    """Whether zero must have the code 0: three-dimensional convolutions, products of two computed inputs."""
    return len(layer.weight_shape) == _DEEP_RANK or len(layer.inputs) > 1


def _no_wide_activation(layer: AmctLayer) -> str:
    if layer.op_type not in _WIDE_ACTIVATIONS or len(layer.inputs) > 1:
        return english("only convolutions and full connections take more")
    return ""


def _no_such_weight(layer: AmctLayer, bits: int) -> str:
    if bits in _WINOGRAD_BITS and not (layer.op_type == "Conv" and len(layer.weight_shape) == _FLAT_RANK):
        return english("only convolutions of images take 6 or 7")
    if bits == _NARROW_BITS and layer.weight:
        channels = layer.weight_shape[layer.input_axis]
        if layer.group > 1 or channels % 2:
            return english("4 need an even number of input channels and no groups")
    return ""


IFMR_DEFAULTS: Mapping[str, Any] = {
    "max_percentile": 0.999999,
    "min_percentile": 0.999999,
    "search_range": [0.7, 1.3],
    "search_step": 0.01,
}


def default_document(
    layers: Mapping[str, AmctLayer], skip_layers: Sequence[str], *, batch_num: int, activation_offset: bool
) -> dict[str, Any]:
    """The configuration in which every layer has the defaults.

    Args:
        layers: The layers of the model.
        skip_layers: Those that stay in float.
        batch_num: Batches of calibration.
        activation_offset: Whether zero may have any code.

    Raises:
        WrongValue: There is no such layer.
    """
    for name in skip_layers:
        if name not in layers:
            raise WrongValue(
                "skip_layers names {name!r}, no layer that can be quantized.", fix=nearest(name, layers), name=name
            )
    return {
        "version": 1,
        "batch_num": batch_num,
        "activation_offset": activation_offset,
        "do_fusion": True,
        "skip_fusion_layers": [],
        **{
            name: layer_entry(layer, enabled=name not in skip_layers, offset=activation_offset)
            for name, layer in sorted(layers.items())
        },
    }


def layer_entry(
    layer: AmctLayer,
    *,
    enabled: bool,
    offset: bool,
    activation: Mapping[str, Any] | None = None,
    weight: Mapping[str, Any] | None = None,
    balance: float | None = None,
) -> dict[str, Any]:
    """The entry of one layer.

    Args:
        layer: The layer.
        enabled: Whether it is quantized.
        offset: Whether zero may have any code where nothing else is said.
        activation: Settings of its input; the defaults when None.
        weight: Settings of its weight; those of its type when None.
        balance: Strength of balancing, if any.
    """
    inputs = dict(IFMR_DEFAULTS if activation is None else activation)
    if must_be_symmetric(layer) and inputs.get("asymmetric", offset):
        inputs["asymmetric"] = False
    balanced = {} if balance is None else {"dmq_balancer_param": balance}
    return {
        "quant_enable": enabled,
        **balanced,
        "activation_quant_params": inputs,
        "weight_quant_params": {"channel_wise": layer.can_be_channel_wise} if weight is None else dict(weight),
    }


# The keys of a configuration: what each may hold.

HALF_PRECISION = "FORCE_FP16_QUANT"
_BINS = (1024, 2048, 4096, 8192)


@dataclass(frozen=True, slots=True)
class _ConfigKey:
    """What a key may hold: its type, and what is allowed of it."""

    kind: str
    allowed: Callable[[Any], bool] = lambda _: True
    words: str = ""


def _choice(*values: Any) -> _ConfigKey:
    kind = "a text" if isinstance(values[0], str) else "a whole number"
    return _ConfigKey(kind, lambda value: value in values, "one of " + ", ".join(map(str, values)))


_FLAG = _ConfigKey("true or false")
_NAMES = _ConfigKey("a list", lambda value: all(isinstance(each, str) for each in value), "a list of names")
_SHARE = _ConfigKey("a number", lambda value: 0.5 < value <= 1, "above 0.5 and at most 1")
_POSITIVE = _ConfigKey("a number", lambda value: value > 0, "above 0")
_IS: dict[str, Callable[[Any], bool]] = {
    "true or false": lambda value: isinstance(value, bool),
    "a whole number": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "a number": lambda value: (
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    ),
    "a text": lambda value: isinstance(value, str),
    "a list": lambda value: isinstance(value, list),
    "an object": lambda value: isinstance(value, dict),
}


def _pair(value: Any) -> bool:
    numbers = len(value) == 2 and all(_IS["a number"](each) for each in value)
    return numbers and 0 < value[0] < value[1]


ROOT = {
    "version": _choice(1),
    "batch_num": _ConfigKey("a whole number", lambda value: value > 0, "at least 1"),
    "activation_offset": _FLAG,
    "joint_quant": _FLAG,
    "weight_offset": _FLAG,
    "do_fusion": _FLAG,
    "fakequant_precision_mode": _choice("DEFAULT", HALF_PRECISION),
    "skip_fusion_layers": _NAMES,
    "tensor_quantize": _ConfigKey(
        "a list", lambda value: all(isinstance(each, dict) for each in value), "objects"
    ),
}
LAYER = {
    "quant_enable": _FLAG,
    "dmq_balancer_param": _ConfigKey("a number", lambda value: 0.2 <= value <= 0.8, "from 0.2 to 0.8"),
    "activation_quant_params": _ConfigKey("an object"),
    "weight_quant_params": _ConfigKey("an object"),
}
IFMR = {
    "max_percentile": _SHARE,
    "min_percentile": _SHARE,
    "search_range": _ConfigKey("a list", _pair, "two numbers, 0 < start < end"),
    "search_step": _POSITIVE,
}
HFMG = {"num_of_bins": _choice(*_BINS)}
ACTIVATION = {
    "num_bits": _choice(4, 8, 16), "act_algo": _choice("ifmr", "hfmg"), "asymmetric": _FLAG, **IFMR, **HFMG
}  # fmt: skip
ADA = {
    "num_iteration": _ConfigKey("a whole number", lambda value: value > 0, "at least 1"),
    "reg_param": _ConfigKey("a number", lambda value: 0 < value < 1, "between 0 and 1"),
    "beta_range": _ConfigKey(
        "a list", lambda value: len(value) == 2 and all(map(_IS["a number"], value)), "two numbers"
    ),
    "warm_start": _ConfigKey("a number", lambda value: 0 < value < 1, "between 0 and 1"),
}
WEIGHT = {
    "wts_algo": _choice("arq_quantize", "ada_quantize"), "num_bits": _choice(4, 6, 7, 8), "channel_wise": _FLAG,
    **ADA,
}  # fmt: skip
TENSOR = {
    "layer_name": _ConfigKey("a text"),
    "input_index": _ConfigKey("a whole number", lambda value: value >= 0, "at least 0"),
    "activation_quant_params": _ConfigKey("an object"),
}


def check_keys(given: Mapping[str, Any], keys: Mapping[str, _ConfigKey], *, where: str) -> None:
    """Refuse keys that are not known, and values that are not allowed.

    Raises:
        WrongValue: A key is not known, or its value not allowed.
        WrongType: A value is of another type.
    """
    for key, value in given.items():
        if key not in keys:
            raise WrongValue("{where}: there is no key {key!r}.", fix=nearest(key, keys), where=where, key=key)
        known = keys[key]
        if not _IS[known.kind](value):
            raise WrongType(
                english("{where}: {key!r} is {value!r}.", where=where, key=key, value=value),
                fix=english("give {kind}", kind=known.kind),
            )
        if not known.allowed(value):
            raise WrongValue(
                english("{where}: {key!r} is {value!r}.", where=where, key=key, value=value),
                fix=english("give {words}", words=known.words),
            )


# JSON as AMCT writes it, and read so that nothing is overlooked: no key may stand twice in one object.


def dump(document: Any) -> str:
    """JSON with four blanks for each level and none behind colons; names keep their letters."""
    return json.dumps(document, indent=4, separators=(",", ":"), ensure_ascii=False)


def write_json(path: Path, document: Any) -> None:
    """Write JSON whole or not at all."""
    write_text(path, dump(document))


def read_json(path: Path, *, what: str) -> Any:
    """The content of a JSON file.

    Raises:
        BadInput: The file cannot be read, or is not JSON.
        WrongValue: A key stands twice in one object.
    """
    return parse_json(read_small(path, what=what).decode("utf-8-sig", errors="replace"), name=str(path))


def parse_json(text: str, *, name: str) -> Any:
    """The content of a JSON text; as `read_json`."""
    return untrusted.parse_json(text, name, fix=english("correct that line"), twice=WrongValue)


_OLD = frozenset({"nuq_config", "conv_calibration_config", "fc_calibration_config"})


def read_config(path: Path, layers: Mapping[str, AmctLayer] | None) -> AmctConfig:
    """Read a configuration file.

    Args:
        path: The file.
        layers: The layers that the model has; None to take any.

    Raises:
        WrongValue: It holds what is not known, or not allowed.
        BadInput: It cannot be read.
    """
    return parse_config(read_json(path, what=english("The configuration")), layers, name=str(path))


def parse_config(document: Any, layers: Mapping[str, AmctLayer] | None, *, name: str) -> AmctConfig:
    """Check a configuration.

    Args:
        document: What its JSON says.
        layers: The layers that the model has; None to take any.
        name: What it is called in messages.

    Raises:
        WrongValue: It holds what is not known, or not allowed.
        WrongType: A value is of another type.
    """
    if not isinstance(document, dict):
        raise WrongType(
            english("{name} is no configuration: it is not an object.", name=name),
            fix=english("write {{...}} with a version"),
        )
    old = sorted(_OLD & set(document))
    if old:
        what = english(
            "{name}: {old!r} is of a kind of quantization that is not offered here.", name=name, old=old[0]
        )
        raise WrongValue(what, fix=english("remove it; create_quant_config writes what is known"))
    root = {key: value for key, value in document.items() if key in ROOT or not isinstance(value, dict)}
    check_keys(root, ROOT, where=name)
    missing = [key for key in ("version", "batch_num") if key not in root]
    if missing:
        raise WrongValue(
            english("{name} has no {missing!r}.", name=name, missing=missing[0]),
            fix=english("write it with create_quant_config"),
        )
    if root.get("weight_offset"):
        raise WrongValue(
            english("{name}: weights have no offset here.", name=name), fix=english('set "weight_offset" to false')
        )
    offset = bool(root.get("activation_offset", True))
    found: dict[str, AmctLayerSettings] = {}
    notes = ["joint_quant is not done: every layer has factors of its own"] if root.get("joint_quant") else []
    for key, value in document.items():
        if key in root:
            continue
        if layers is not None and key not in layers:
            what = english(
                "{name}: {key!r} is neither a known key nor a layer that can be quantized.", name=name, key=key
            )
            raise WrongValue(what, fix=nearest(key, layers))
        settings = _layer(value, where=f"{name}: {key}", offset=offset)
        if layers is not None:
            settings, said = fitted(layers[key], settings, where=f"{name}: {key}")
            notes += said
        found[key] = settings
    return AmctConfig(
        document=document,
        batch_num=root["batch_num"],
        fuse=bool(root.get("do_fusion", True)),
        unfused=frozenset(root.get("skip_fusion_layers", ())),
        half_precision=root.get("fakequant_precision_mode") == HALF_PRECISION,
        layers=found,
        tensors=tuple(
            _tensor(each, where=f"{name}: tensor_quantize", offset=offset)
            for each in root.get("tensor_quantize", ())
        ),
        notes=tuple(notes),
    )


def with_enabled(document: Mapping[str, Any], enabled: Mapping[str, bool]) -> dict[str, Any]:
    """A configuration with layers switched on or off; the given one stays as it is."""
    return {
        key: {**value, "quant_enable": enabled[key]} if key in enabled else value
        for key, value in document.items()
    }


def with_algorithm_keys(document: Mapping[str, Any], layers: Collection[str], algorithm: str) -> dict[str, Any]:
    """A configuration in which some layers have another calibration algorithm, at its defaults."""
    kept = ("num_bits", "asymmetric")

    def changed(entry: Mapping[str, Any]) -> dict[str, Any]:
        given = entry.get("activation_quant_params", {})
        keys = {key: given[key] for key in kept if key in given} | {"act_algo": algorithm}
        return {**entry, "activation_quant_params": keys}

    return {key: changed(value) if key in layers else value for key, value in document.items()}


def _layer(given: Mapping[str, Any], *, where: str, offset: bool) -> AmctLayerSettings:
    check_keys(given, LAYER, where=where)
    return AmctLayerSettings(
        enabled=bool(given.get("quant_enable", True)),
        activation=_activation(given.get("activation_quant_params", {}), where=where, offset=offset),
        weight=_weight(given.get("weight_quant_params", {}), where=where),
        balance=given.get("dmq_balancer_param"),
    )


def _tensor(given: Mapping[str, Any], *, where: str, offset: bool) -> TensorSettings:
    check_keys(given, TENSOR, where=where)
    for key in ("layer_name", "input_index"):
        if key not in given:
            raise WrongValue(
                english("{where}: {key!r} is missing.", where=where, key=key),
                fix=english("name the layer and which of its inputs"),
            )
    settings = _activation(given.get("activation_quant_params", {}), where=where, offset=offset)
    return TensorSettings(given["layer_name"], given["input_index"], replace(settings, bits=DEFAULT_BITS))


def _activation(given: Mapping[str, Any], *, where: str, offset: bool) -> ActivationSettings:
    check_keys(given, ACTIVATION, where=where)
    algorithm = given.get("act_algo", "hfmg" if "num_of_bins" in given else "ifmr")
    foreign = sorted(set(given) & set(IFMR if algorithm == "hfmg" else HFMG))
    if foreign:
        what = english(
            "{where}: {foreign!r} does not belong to {algorithm}.",
            where=where,
            foreign=foreign[0],
            algorithm=algorithm,
        )
        raise WrongValue(what, fix=english("keys of ifmr and of hfmg must not be mixed in one layer"))
    return ActivationSettings(
        algorithm=algorithm,
        bits=given.get("num_bits", DEFAULT_BITS),
        asymmetric=given.get("asymmetric", offset),
        options=_options(given, where),
    )


def _options(given: Mapping[str, Any], where: str) -> dict[str, float]:
    options = {name: float(given[name]) for name in ("max_percentile", "min_percentile") if name in given}
    start, end = given.get("search_range", (0.7, 1.3))
    step = given.get("search_step", 0.01)
    # Ends are decimals, their difference is not.
    if step > end - start and not math.isclose(step, end - start):
        what = english(
            "{where}: a search_step of {step:g} does not fit between {start:g} and {end:g}.",
            where=where,
            step=step,
            start=start,
            end=end,
        )
        raise WrongValue(what, fix=english("give a step of at most the length of search_range"))
    if "search_range" in given:
        options |= {"search_range_start": float(start), "search_range_end": float(end)}
    if "search_step" in given:
        options["search_step"] = min(float(step), float(end - start))
    if "num_of_bins" in given:
        options["num_of_bins"] = float(given["num_of_bins"])
    try:
        options_of(get_method("ifmr"), options)
    except BadInput as error:
        raise WrongValue(english("{where}: {what}", where=where, what=error.what), fix=error.fix) from error
    return options


def _weight(given: Mapping[str, Any], *, where: str) -> WeightSettings:
    check_keys(given, WEIGHT, where=where)
    algorithm = given.get("wts_algo", "arq_quantize")
    foreign = sorted(set(given) & set(ADA)) if algorithm == "arq_quantize" else []
    if foreign:
        raise WrongValue(
            "{where}: {foreign!r} does not belong to {algorithm}.",
            fix=english("remove it"),
            where=where,
            foreign=foreign[0],
            algorithm=algorithm,
        )
    return WeightSettings(algorithm, given.get("num_bits", DEFAULT_BITS), given.get("channel_wise", False))
