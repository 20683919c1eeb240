"""Offline models as the compiler prints them, small and built in code."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def attr(key: str, kind: str, value: Any) -> dict[str, Any]:
    return {"key": key, "value": {kind: value}}


def output(
    shape: Sequence[int] = (), *, origin: str = "", index: int | None = None, layout: str = "ND",
    dtype: str = "DT_FLOAT16",
) -> dict[str, Any]:  # fmt: skip
    """One output: its original tensor, layout and shape."""
    found = [attr("origin_format", "s", layout), attr("origin_shape", "list", {"i": list(shape)})]
    if origin:
        found.append(attr("_datadump_origin_name", "s", origin))
    if index is not None:
        found.append(attr("_datadump_origin_output_index", "i", index))
    return {"attr": found, "dtype": dtype}


def op(
    name: str,
    type: str = "Op",  # noqa: A002
    *,
    inputs: Sequence[str] = (),
    originals: Sequence[str] | None = None,
    outputs: Sequence[dict[str, Any]] = (),
    more: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """One operator; without `originals` it stands for itself, with none of them the compiler made it."""
    found = list(more)
    if originals is not None:
        found.append(attr("_datadump_original_op_names", "list", {"s": list(originals)} if originals else {}))
    return {"name": name, "type": type, "input": list(inputs), "attr": found, "output_desc": list(outputs)}


def write_model(path: Path, *ops: Mapping[str, Any]) -> Path:
    """Write a model; operators are numbered in the order given."""
    numbered = [{**found, **({"id": place} if place else {})} for place, found in enumerate(ops)]
    path.write_text(json.dumps({"name": "net", "graph": [{"name": "net", "op": numbered}]}))
    return path
