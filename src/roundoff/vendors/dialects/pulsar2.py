"""Pulsar2's layer_configs."""

import json

from roundoff.core.plan import FLOAT
from roundoff.messages.message import english
from roundoff.vendors.dialects.settings import (
    Decisions,
    Dialect,
    NodeDecision,
    Written,
    decision_summary,
    unsupported,
    unsupported_of,
)
from roundoff.vendors.pulsar2.config.document import to_json
from roundoff.vendors.pulsar2.config.schema import (
    BuildConfig,
    CalibrationMethod,
    DataType,
    LayerConfig,
    QuantConfig,
)

_METHODS = {
    "minmax": CalibrationMethod.MinMax.name,
    "percentile": CalibrationMethod.Percentile.name,
    "mse": CalibrationMethod.MSE.name,
    "entropy": CalibrationMethod.KL.name,
}
# The operations for which the manual says that float was verified; for others the tool accepts the wish and
# quantizes to 8 bits all the same.
_FLOAT_WORKS = ("LeakyRelu", "Sigmoid", "Relu", "Add", "Mul", "Div", "Sub", "Concat", "Softmax")
_DEFAULT = DataType.DefaultDataType
# The widest integers that every operation takes.
_NEAREST = DataType.U16


def _write(decisions: Decisions) -> Written:
    entries: dict[tuple[DataType, DataType, DataType], list[str]] = {}
    refused: list[str] = []
    mixed: list[str] = []
    for node in decisions.computing:
        wish = _wish(node, decisions)
        if node.in_float and wish[0] is not DataType.FP32:
            refused.append(node.name)
        if "/" in node.precision.activation and not node.in_float:
            mixed.append(node.name)
        if any(part is not _DEFAULT for part in wish):
            entries.setdefault(wish, []).append(node.name)
    layers = tuple(
        LayerConfig(layer_names=tuple(names), data_type=data, weight_data_type=weight, output_data_type=output)
        for (data, weight, output), names in entries.items()
    )
    method = CalibrationMethod[_METHODS.get(decisions.made.method, CalibrationMethod.MinMax.name)]
    config = BuildConfig(quant=QuantConfig(layer_configs=layers, calibration_method=method))
    name = f"{decisions.made.stem}_pulsar2.json"
    missing = (
        *unsupported_of("float for operations it has only integers for (U16 instead): {names}", refused),
        *unsupported_of("inputs of different widths at one node (the widest instead): {names}", mixed),
        *unsupported(decisions, _METHODS, "MinMax"),
    )
    text, said, model = to_json(config), decision_summary(decisions), decisions.model
    if not json.loads(text):
        said = english("{said}; no file: nothing that it can be told differs from its default", said=said)
        use = english("pulsar2 build --input {model}, as without settings", model=model)
        return Written({}, said, missing, use)
    use = english(
        "pulsar2 build --input {model} (or roundoff pulsar2 build), with the quant section of {name} in its "
        "configuration",
        model=model,
        name=name,
    )
    return Written({name: text}, said, missing, use)


def _wish(node: NodeDecision, decisions: Decisions) -> tuple[DataType, DataType, DataType]:
    """Types of data, weight and output of a node; the default where it is what the tool would do anyway."""
    weight = DataType.FP32 if node.op_type == "Conv" and node.precision.weight == FLOAT else _DEFAULT
    if node.in_float:
        if node.op_type in _FLOAT_WORKS:
            return DataType.FP32, _DEFAULT, _DEFAULT
        output = DataType.FP32 if node.op_type == "Conv" and node.precision.output == FLOAT else _DEFAULT
        return _NEAREST, weight, output
    widest = max(node.precision.activation.split("/"), key=lambda dtype: (int(dtype[1:]), dtype), default="")
    common = decisions.common_dtype("activation")
    data = (
        DataType[widest.upper()]
        if widest and node.bits in (8, 16) and (node.wide or widest != common)
        else _DEFAULT
    )
    output = _DEFAULT
    if node.op_type == "Conv" and node.precision.output == FLOAT:
        output = DataType.FP32
    return data, weight, output


DIALECT = Dialect("pulsar2", "layer_configs of a Pulsar2 configuration", _write)
