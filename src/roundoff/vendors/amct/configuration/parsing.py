"""From the JSON of a configuration to checked settings; what is not known is refused."""

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from roundoff.errors import BadInput, nearest
from roundoff.quantize.calibration import get_method, options_of
from roundoff.vendors.amct.configuration.documents import read_json
from roundoff.vendors.amct.configuration.fitting import fitted
from roundoff.vendors.amct.configuration.keys import (
    ACTIVATION,
    ADA,
    HALF_PRECISION,
    HFMG,
    IFMR,
    LAYER,
    ROOT,
    TENSOR,
    WEIGHT,
    check_keys,
)
from roundoff.vendors.amct.configuration.settings import (
    DEFAULT_BITS,
    ActivationSettings,
    LayerSettings,
    QuantConfig,
    TensorSettings,
    WeightSettings,
)
from roundoff.vendors.amct.layers import Layer
from roundoff.vendors.errors import WrongType, WrongValue

__all__ = ["parse_config", "read_config", "with_algorithm_keys", "with_enabled"]

_OLD = frozenset({"nuq_config", "conv_calibration_config", "fc_calibration_config"})


def read_config(path: Path, layers: Mapping[str, Layer] | None) -> QuantConfig:
    """Read a configuration file.

    Args:
        path: The file.
        layers: The layers that the model has; None to take any.

    Raises:
        WrongValue: It holds what is not known, or not allowed.
        BadInput: It cannot be read.
    """
    return parse_config(read_json(path, what="The configuration"), layers, name=str(path))


def parse_config(document: Any, layers: Mapping[str, Layer] | None, *, name: str) -> QuantConfig:
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
        raise WrongType(f"{name} is no configuration: it is not an object.", fix="write {...} with a version")
    old = sorted(_OLD & set(document))
    if old:
        what = f"{name}: {old[0]!r} is of a kind of quantization that is not offered here."
        raise WrongValue(what, fix="remove it; create_quant_config writes what is known")
    root = {key: value for key, value in document.items() if key in ROOT or not isinstance(value, dict)}
    check_keys(root, ROOT, where=name)
    missing = [key for key in ("version", "batch_num") if key not in root]
    if missing:
        raise WrongValue(f"{name} has no {missing[0]!r}.", fix="write it with create_quant_config")
    if root.get("weight_offset"):
        raise WrongValue(f"{name}: weights have no offset here.", fix='set "weight_offset" to false')
    offset = bool(root.get("activation_offset", True))
    found: dict[str, LayerSettings] = {}
    notes = ["joint_quant is not done: every layer has factors of its own"] if root.get("joint_quant") else []
    for key, value in document.items():
        if key in root:
            continue
        if layers is not None and key not in layers:
            what = f"{name}: {key!r} is neither a known key nor a layer that can be quantized."
            raise WrongValue(what, fix=nearest(key, layers))
        settings = _layer(value, where=f"{name}: {key}", offset=offset)
        if layers is not None:
            settings, said = fitted(layers[key], settings, where=f"{name}: {key}")
            notes += said
        found[key] = settings
    return QuantConfig(
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


def _layer(given: Mapping[str, Any], *, where: str, offset: bool) -> LayerSettings:
    check_keys(given, LAYER, where=where)
    return LayerSettings(
        enabled=bool(given.get("quant_enable", True)),
        activation=_activation(given.get("activation_quant_params", {}), where=where, offset=offset),
        weight=_weight(given.get("weight_quant_params", {}), where=where),
        balance=given.get("dmq_balancer_param"),
    )


def _tensor(given: Mapping[str, Any], *, where: str, offset: bool) -> TensorSettings:
    check_keys(given, TENSOR, where=where)
    for key in ("layer_name", "input_index"):
        if key not in given:
            raise WrongValue(f"{where}: {key!r} is missing.", fix="name the layer and which of its inputs")
    settings = _activation(given.get("activation_quant_params", {}), where=where, offset=offset)
    return TensorSettings(given["layer_name"], given["input_index"], replace(settings, bits=DEFAULT_BITS))


def _activation(given: Mapping[str, Any], *, where: str, offset: bool) -> ActivationSettings:
    check_keys(given, ACTIVATION, where=where)
    algorithm = given.get("act_algo", "hfmg" if "num_of_bins" in given else "ifmr")
    foreign = sorted(set(given) & set(IFMR if algorithm == "hfmg" else HFMG))
    if foreign:
        what = f"{where}: {foreign[0]!r} does not belong to {algorithm}."
        raise WrongValue(what, fix="keys of ifmr and of hfmg must not be mixed in one layer")
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
        what = f"{where}: a search_step of {step:g} does not fit between {start:g} and {end:g}."
        raise WrongValue(what, fix="give a step of at most the length of search_range")
    if "search_range" in given:
        options |= {"search_range_start": float(start), "search_range_end": float(end)}
    if "search_step" in given:
        options["search_step"] = min(float(step), float(end - start))
    if "num_of_bins" in given:
        options["num_of_bins"] = float(given["num_of_bins"])
    try:
        options_of(get_method("ifmr"), options)
    except BadInput as error:
        raise WrongValue(f"{where}: {error.what}", fix=error.fix) from error
    return options


def _weight(given: Mapping[str, Any], *, where: str) -> WeightSettings:
    check_keys(given, WEIGHT, where=where)
    algorithm = given.get("wts_algo", "arq_quantize")
    foreign = sorted(set(given) & set(ADA)) if algorithm == "arq_quantize" else []
    if foreign:
        raise WrongValue(f"{where}: {foreign[0]!r} does not belong to {algorithm}.", fix="remove it")
    return WeightSettings(algorithm, given.get("num_bits", DEFAULT_BITS), given.get("channel_wise", False))
