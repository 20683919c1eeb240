"""TPU-MLIR: the quantization table, and the calibration table with the ranges."""

from roundoff.core.quantizers import representable_range
from roundoff.vendors.dialects.settings import (
    Decisions,
    Dialect,
    Written,
    named,
    names_of,
    said_of,
    unsaid_codes,
    unsaid_scales,
    unsaid_weights,
)

__all__ = ["DIALECT"]

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
    missing = []
    if decisions.wide:
        missing.append(f"16-bit integers ({_HALF} instead): {named(names_of(decisions.wide))}")
    if sliced:
        missing.append(f"one scale per slice of activations: {named(sliced)}")
    if spaced:
        missing.append(f"names with blanks: {named(spaced)}")
    missing += [*unsaid_weights(decisions), *unsaid_scales(decisions, weights_only=True), *unsaid_codes(decisions)]
    use = (
        f"{decisions.model} into model_transform, then "
        f"model_deploy --quantize INT8 --quantize_table {table} --calibration_table {ranges}; where the chip has "
        f"no {_FLOAT}, write F16 or BF16 instead"
    )
    files = {table: "\n".join(lines) + "\n", ranges: "\n".join(rows) + "\n"}
    return Written(files, f"{said_of(decisions)}, ranges of {len(rows) - 1} tensors", tuple(missing), use)


DIALECT = Dialect("tpu-mlir", "qtable and cali_table", _write)
