"""The keys of a configuration: what each may hold."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from roundoff.errors import nearest
from roundoff.vendors.errors import WrongType, WrongValue

__all__ = [
    "ACTIVATION",
    "ADA",
    "HALF_PRECISION",
    "HFMG",
    "IFMR",
    "LAYER",
    "ROOT",
    "TENSOR",
    "WEIGHT",
    "check_keys",
]

HALF_PRECISION = "FORCE_FP16_QUANT"
_BINS = (1024, 2048, 4096, 8192)


@dataclass(frozen=True, slots=True)
class _Key:
    """What a key may hold: its type, and what is allowed of it."""

    kind: str
    allowed: Callable[[Any], bool] = lambda _: True
    words: str = ""


def _choice(*values: Any) -> _Key:
    kind = "a text" if isinstance(values[0], str) else "a whole number"
    return _Key(kind, lambda value: value in values, "one of " + ", ".join(map(str, values)))


_FLAG = _Key("true or false")
_NAMES = _Key("a list", lambda value: all(isinstance(each, str) for each in value), "a list of names")
_SHARE = _Key("a number", lambda value: 0.5 < value <= 1, "above 0.5 and at most 1")
_POSITIVE = _Key("a number", lambda value: value > 0, "above 0")
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
    "batch_num": _Key("a whole number", lambda value: value > 0, "at least 1"),
    "activation_offset": _FLAG,
    "joint_quant": _FLAG,
    "weight_offset": _FLAG,
    "do_fusion": _FLAG,
    "fakequant_precision_mode": _choice("DEFAULT", HALF_PRECISION),
    "skip_fusion_layers": _NAMES,
    "tensor_quantize": _Key("a list", lambda value: all(isinstance(each, dict) for each in value), "objects"),
}
LAYER = {
    "quant_enable": _FLAG,
    "dmq_balancer_param": _Key("a number", lambda value: 0.2 <= value <= 0.8, "from 0.2 to 0.8"),
    "activation_quant_params": _Key("an object"),
    "weight_quant_params": _Key("an object"),
}
IFMR = {
    "max_percentile": _SHARE,
    "min_percentile": _SHARE,
    "search_range": _Key("a list", _pair, "two numbers, 0 < start < end"),
    "search_step": _POSITIVE,
}
HFMG = {"num_of_bins": _choice(*_BINS)}
ACTIVATION = {
    "num_bits": _choice(4, 8, 16), "act_algo": _choice("ifmr", "hfmg"), "asymmetric": _FLAG, **IFMR, **HFMG
}  # fmt: skip
ADA = {
    "num_iteration": _Key("a whole number", lambda value: value > 0, "at least 1"),
    "reg_param": _Key("a number", lambda value: 0 < value < 1, "between 0 and 1"),
    "beta_range": _Key(
        "a list", lambda value: len(value) == 2 and all(map(_IS["a number"], value)), "two numbers"
    ),
    "warm_start": _Key("a number", lambda value: 0 < value < 1, "between 0 and 1"),
}
WEIGHT = {
    "wts_algo": _choice("arq_quantize", "ada_quantize"), "num_bits": _choice(4, 6, 7, 8), "channel_wise": _FLAG,
    **ADA,
}  # fmt: skip
TENSOR = {
    "layer_name": _Key("a text"),
    "input_index": _Key("a whole number", lambda value: value >= 0, "at least 0"),
    "activation_quant_params": _Key("an object"),
}


def check_keys(given: Mapping[str, Any], keys: Mapping[str, _Key], *, where: str) -> None:
    """Refuse keys that are not known, and values that are not allowed.

    Raises:
        WrongValue: A key is not known, or its value not allowed.
        WrongType: A value is of another type.
    """
    for key, value in given.items():
        if key not in keys:
            raise WrongValue(f"{where}: there is no key {key!r}.", fix=nearest(key, keys))
        known = keys[key]
        if not _IS[known.kind](value):
            raise WrongType(f"{where}: {key!r} is {value!r}.", fix=f"give {known.kind}")
        if not known.allowed(value):
            raise WrongValue(f"{where}: {key!r} is {value!r}.", fix=f"give {known.words}")
