"""TPU-MLIR: the quantization table, and the calibration table with the ranges."""

from roundoff.core.quantizers import representable_range
from roundoff.messages.message import english
from roundoff.vendors.dialects.settings import (
    Decisions,
    Dialect,
    Written,
    decision_summary,
    names_of,
    unsupported_codes,
    unsupported_of,
    unsupported_weight_scales,
    unsupported_weights,
)

_FLOAT, _HALF = "F32", "F16"


def _write(decisions: Decisions) -> Written:
    table, ranges = f"{decisions.made.stem}_qtable", f"{decisions.made.stem}_cali_table"
    graph = decisions.quantized.float_model.proto.graph
    kinds = {name: node.op_type for node in graph.node for name in node.output if name}
    spaced = [name for name in kinds if any(letter.isspace() for letter in name)]
    lines = ["# op_name   quantize_mode"]
    for node in decisions.computing:
        mode = _FLOAT if node.in_float else _HALF if node.wide else ""
        if mode:
            lines += [f"{name}_{node.op_type} {mode}" for name in node.outputs if name not in spaced]
    sliced: list[str] = []
    rows = ["# op_name    threshold    min    max"]
    for each in decisions.of_kind("activation"):
        tensor = each.tensor
        if tensor in spaced or each.after:
            continue
        if each.params.scale.ndim:
            sliced.append(tensor)
            continue
        low, high = (float(end) for end in representable_range(each.params, each.spec))
        name = f"{tensor}_{kinds[tensor]}" if tensor in kinds else tensor
        row = f"{name} {max(abs(low), abs(high)):.9g} {low:.9g} {high:.9g}"
        if row not in rows:
            rows.append(row)
    missing = (
        *unsupported_of("16-bit integers (F16 instead): {names}", names_of(decisions.wide)),
        *unsupported_of("one scale per slice of activations: {names}", sliced),
        *unsupported_of("names with blanks: {names}", spaced),
        *unsupported_weights(decisions),
        *unsupported_weight_scales(decisions),
        *unsupported_codes(decisions),
    )
    use = english(
        "{model} into model_transform, then model_deploy --quantize INT8 --quantize_table {table} "
        "--calibration_table {ranges}; where the chip has no F32, write F16 or BF16 instead",
        model=decisions.model,
        table=table,
        ranges=ranges,
    )
    files = {table: "\n".join(lines) + "\n", ranges: "\n".join(rows) + "\n"}
    said = english("{said}, ranges of {count} tensors", said=decision_summary(decisions), count=len(rows) - 1)
    return Written(files, said, missing, use)


DIALECT = Dialect("tpu-mlir", "qtable and cali_table", _write)
