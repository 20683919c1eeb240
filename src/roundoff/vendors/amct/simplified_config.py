"""The simplified configuration: what it says for single layers, types of them, all of them, is spelled out."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from roundoff.core.files import read_small
from roundoff.core.text_proto import Field, FieldTable, TextMessage, parse_text_proto
from roundoff.errors import nearest
from roundoff.messages.message import english
from roundoff.run.evaluators import brief
from roundoff.vendors.amct.config import HALF_PRECISION, IFMR_DEFAULTS, layer_entry
from roundoff.vendors.amct.layers import AmctLayer
from roundoff.vendors.facade import WrongValue

# The fields of the simplified configuration.

_DST_TYPES = {"INT8": 1, "INT16": 2}
_ARQ = FieldTable("arq_quantize", {"channel_wise": Field("bool"), "quant_bits": Field("int")})
_ADA = FieldTable(
    "ada_quantize",
    {
        "num_iteration": Field("int"), "reg_param": Field("float"), "beta_range_start": Field("float"),
        "beta_range_end": Field("float"), "warm_start": Field("float"), "channel_wise": Field("bool"),
    },
)  # fmt: skip
_IFMR = FieldTable(
    "ifmr_quantize",
    {
        "search_range_start": Field("float"), "search_range_end": Field("float"), "search_step": Field("float"),
        "max_percentile": Field("float"), "min_percentile": Field("float"), "asymmetric": Field("bool"),
        "dst_type": Field("enum", names=_DST_TYPES),
    },
)  # fmt: skip
_HFMG = FieldTable(
    "hfmg_quantize",
    {"num_of_bins": Field("int"), "asymmetric": Field("bool"), "dst_type": Field("enum", names=_DST_TYPES)},
)
_DMQ = FieldTable("dmq_balancer", {"migration_strength": Field("float")})
_NUQ = FieldTable("nuq_quantize", {"num_steps": Field("int"), "num_of_iteration": Field("int")})
_INPUT = {"ifmr_quantize": Field("message", table=_IFMR), "hfmg_quantize": Field("message", table=_HFMG)}
_CALIBRATION = FieldTable(
    "calibration_config",
    {
        "arq_quantize": Field("message", table=_ARQ),
        "ada_quantize": Field("message", table=_ADA),
        "nuq_quantize": Field("message", table=_NUQ),
        **_INPUT,
        "dmq_balancer": Field("message", table=_DMQ),
    },
    one_of=(("arq_quantize", "ada_quantize", "nuq_quantize"), ("ifmr_quantize", "hfmg_quantize")),
)


def _override(name: str, key: str) -> Field:
    config = Field("message", table=_CALIBRATION, required=True)
    return Field(
        "message",
        repeated=True,
        table=FieldTable(name, {key: Field("string", required=True), "calibration_config": config}),
    )


SIMPLIFIED = FieldTable(
    "AMCTConfig",
    {
        "batch_num": Field("int"),
        "activation_offset": Field("bool"),
        "joint_quant": Field("bool"),
        "weight_offset": Field("bool"),
        "skip_layers": Field("string", repeated=True),
        "skip_layer_types": Field("string", repeated=True),
        "fakequant_precision_mode": Field("enum", names={"DEFAULT": 0, "FORCE_FP16_QUANT": 1}),
        "common_config": Field("message", table=_CALIBRATION),
        "conv_calibration_config": Field("message", table=_CALIBRATION),
        "fc_calibration_config": Field("message", table=_CALIBRATION),
        "override_layer_types": _override("override_layer_types", "layer_type"),
        "override_layer_configs": _override("override_layer_configs", "layer_name"),
        "do_fusion": Field("bool"),
        "skip_fusion_layers": Field("string", repeated=True),
        "tensor_quantize": Field(
            "message",
            repeated=True,
            table=FieldTable(
                "tensor_quantize",
                {
                    "layer_name": Field("string", required=True),
                    "input_index": Field("int", required=True),
                    **_INPUT,
                },
                one_of=(("ifmr_quantize", "hfmg_quantize"),),
            ),
        ),
        "nuq_config": Field(
            "message",
            table=FieldTable(
                "nuq_config", {"mapping_file": Field("string"), "nuq_quantize": Field("message", table=_NUQ)}
            ),
        ),
    },
)
"""All that a simplified configuration can say; `nuq_config` is read and then refused by name."""


_DEFAULT_STRENGTH = 0.5
# Of a longer name nobody means to find a similar one.
_MOST_COMPARED = 1000
_DEFAULT_BINS = 4096
_ADA_DEFAULTS: Mapping[str, Any] = {
    "num_iteration": 10000,
    "reg_param": 0.01,
    "beta_range": [20, 2],
    "warm_start": 0.2,
}
_BITS = {"INT8": 8, "INT16": 16}
# Fields of older files that are meant for several types.
_OLD_TYPES = {"conv_calibration_config": ("Conv", "ConvTranspose"), "fc_calibration_config": ("Gemm", "MatMul")}


def read_simplified(path: Path) -> TextMessage:
    """Read a simplified configuration.

    Raises:
        BadInput: It cannot be read, or says what is not known.
    """
    return parse_simplified(
        read_small(path, what=english("The configuration")).decode(errors="replace"), name=str(path)
    )


def parse_simplified(text: str, *, name: str) -> TextMessage:
    """The content of a simplified configuration.

    Raises:
        BadInput: It says what is not known.
    """
    return parse_text_proto(text, SIMPLIFIED, what=name)


def simplified_document(
    message: TextMessage, layers: Mapping[str, AmctLayer], *, name: str, types: Mapping[str, tuple[str, ...]]
) -> dict[str, Any]:
    """The full configuration that a simplified one stands for.

    Args:
        message: The simplified configuration.
        layers: The layers of the model.
        name: What it is called in messages.
        types: What users call types of layers, each with the ONNX operations that they become.

    Raises:
        WrongValue: It names layers that are not there, or asks for what is not offered.
    """
    if "nuq_config" in message:
        what = english(
            "{name}, line {line}: non-uniform quantization is not offered here.",
            name=name,
            line=message.line("nuq_config"),
        )
        raise WrongValue(what, fix=english("remove nuq_config"))
    requests = _LayerRequests(message, layers, name, types)
    document: dict[str, Any] = {
        "version": 1,
        "batch_num": message.get("batch_num", 1),
        "activation_offset": requests.offset,
    }
    for key in ("joint_quant", "weight_offset"):
        if key in message:
            document[key] = message.get(key)
    document["do_fusion"] = message.get("do_fusion", True)
    if message.get("fakequant_precision_mode") == HALF_PRECISION:
        document["fakequant_precision_mode"] = HALF_PRECISION
    document["skip_fusion_layers"] = message.all("skip_fusion_layers")
    tensors = [_tensor(each) for each in message.messages("tensor_quantize")]
    if tensors:
        document["tensor_quantize"] = tensors
    return document | {layer: requests.entry(layers[layer]) for layer in sorted(layers)}


class _LayerRequests:
    """What is requested for each layer: the most specific request counts, for input, weight and balancing."""

    def __init__(
        self,
        message: TextMessage,
        layers: Mapping[str, AmctLayer],
        name: str,
        types: Mapping[str, tuple[str, ...]],
    ) -> None:
        self.offset = bool(message.get("activation_offset", True))
        self._common = message.message("common_config")
        self._name = name
        self._skipped = self._known(message, "skip_layers", layers)
        skipped = self._known(message, "skip_layer_types", types)
        self._skipped_types = {operation for each in skipped for operation in types[each]}
        self._types = {
            kind: config
            for field, kinds in _OLD_TYPES.items()
            for kind in kinds
            if (config := message.message(field)) is not None
        }
        for each, config in self._overrides(message, "override_layer_types", "layer_type", types):
            self._types |= dict.fromkeys(types[each], config)
        self._layers = dict(self._overrides(message, "override_layer_configs", "layer_name", layers))

    def _known(self, message: TextMessage, field: str, known: Any) -> set[str]:
        names = {str(each) for each in message.all(field)}
        for name in sorted(names):
            self._check(name, known, field, message.line(field))
        return names

    def _check(self, name: str, known: Any, field: str, line: int) -> None:
        if name not in known:
            kind = english("type of layers") if "type" in field else english("layer of the model")
            what = english(
                "{name}, line {line}: {field} names {brief}, no {kind} that can be quantized.",
                name=self._name,
                line=line,
                field=field,
                brief=brief(name),
                kind=kind,
            )
            raise WrongValue(what, fix=nearest(name[:_MOST_COMPARED], known))

    def _overrides(
        self, message: TextMessage, field: str, key: str, known: Any
    ) -> Iterator[tuple[str, TextMessage]]:
        seen: set[str] = set()
        for each in message.messages(field):
            name, line = str(each.get(key)), each.line(key)
            self._check(name, known, field, line)
            if name in seen:
                what = english(
                    "{name}, line {line}: {field} names {brief} a second time.",
                    name=self._name,
                    line=line,
                    field=field,
                    brief=brief(name),
                )
                raise WrongValue(what, fix=english("join both"))
            seen.add(name)
            yield name, each.message("calibration_config") or TextMessage()

    def entry(self, layer: AmctLayer) -> dict[str, Any]:
        activation = self._nearest(layer, "ifmr_quantize", "hfmg_quantize")
        weight = self._nearest(layer, "arq_quantize", "ada_quantize")
        balance = self._nearest(layer, "dmq_balancer")
        return layer_entry(
            layer,
            enabled=layer.name not in self._skipped and layer.op_type not in self._skipped_types,
            offset=self.offset,
            activation=None if activation is None else _activation(*activation[:2]),
            weight=None if weight is None else self._weight(layer, *weight),
            balance=None if balance is None else self._balance(layer, *balance),
        )

    def _nearest(self, layer: AmctLayer, *names: str) -> tuple[str, TextMessage, bool] | None:
        """The most specific message of one of these names, and whether it is meant for this layer or its type."""
        for config in (self._layers.get(layer.name), self._types.get(layer.op_type), self._common):
            for name in names:
                found = None if config is None else config.message(name)
                if found is not None:
                    return name, found, config is not self._common
        return None

    def _weight(self, layer: AmctLayer, name: str, message: TextMessage, meant: bool) -> dict[str, Any]:
        possible = layer.can_be_channel_wise
        channel_wise = bool(message.get("channel_wise", possible))
        # What is said for all layers counts for those that can have it.
        if channel_wise and not possible and not meant:
            channel_wise = False
        found: dict[str, Any] = {}
        if name == "ada_quantize":
            found["wts_algo"] = name
            start, end = (message.get(f"beta_range_{side}", value) for side, value in (("start", 20), ("end", 2)))
            found |= {key: message.get(key, value) for key, value in _ADA_DEFAULTS.items() if key != "beta_range"}
            found["beta_range"] = [start, end]
        if "quant_bits" in message:
            found["num_bits"] = message.get("quant_bits")
        return found | {"channel_wise": channel_wise}

    def _balance(self, layer: AmctLayer, _: str, message: TextMessage, meant: bool) -> float | None:
        if not meant and not layer.can_be_balanced:
            return None
        return float(message.get("migration_strength", _DEFAULT_STRENGTH))  # type: ignore[arg-type]


def _activation(name: str, message: TextMessage) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "dst_type" in message:
        found["num_bits"] = _BITS[str(message.get("dst_type"))]
    if name == "hfmg_quantize":
        found |= {"act_algo": "hfmg", "num_of_bins": message.get("num_of_bins", _DEFAULT_BINS)}
    else:
        start, end = IFMR_DEFAULTS["search_range"]
        found |= {key: message.get(key, IFMR_DEFAULTS[key]) for key in ("max_percentile", "min_percentile")}
        found["search_range"] = [message.get("search_range_start", start), message.get("search_range_end", end)]
        found["search_step"] = message.get("search_step", IFMR_DEFAULTS["search_step"])
    if "asymmetric" in message:
        found["asymmetric"] = message.get("asymmetric")
    return found


def _tensor(message: TextMessage) -> dict[str, Any]:
    algorithm = next((name for name in ("ifmr_quantize", "hfmg_quantize") if name in message), "ifmr_quantize")
    return {
        "layer_name": message.get("layer_name"),
        "input_index": message.get("input_index"),
        "activation_quant_params": _activation(algorithm, message.message(algorithm) or TextMessage()),
    }
