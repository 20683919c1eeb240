"""The rule that a dump tells by itself, where no JSON of the offline model is given.

Headers name the originals of outputs; the name of a fused operator is those of its parts in a row; and an input is
the output that holds the same bytes.
"""

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from roundoff.core.array_files import Unreadable
from roundoff.core.tensors import Array
from roundoff.tensors.ascend_dump.header import DumpTensor
from roundoff.tensors.ascend_dump.names import logical_op
from roundoff.vendors.ascend.errors import NotCompared
from roundoff.vendors.ascend.folders import (
    Folder,
    Loaded,
    Tensor,
    escaped,
    load_golden,
    load_operator,
    plain_values,
)
from roundoff.vendors.ascend.rules import FusionRule, Operator, OperatorOrigin, group_key, names_quantizer

_MADE = ("TransData", "Cast")
_SAME = 1e-2
"""How far an input may be from the golden one, relative to it: half precision or bfloat16 stores it."""

_DTYPES = {
    "FLOAT": "DT_FLOAT",
    "FLOAT16": "DT_FLOAT16",
    "INT8": "DT_INT8",
    "INT32": "DT_INT32",
    "UINT8": "DT_UINT8",
}


def parts_of(name: str, known: Collection[str]) -> tuple[str, ...]:
    """The known names that a fused name is made of, one behind the other; empty when it is made of others.

    Args:
        name: The operator's name.
        known: Names of the original model, which may be spelled as files spell them.
    """
    spelled = {escaped(one): one for one in known} | {one: one for one in known}
    names = sorted(spelled, key=len, reverse=True)
    # Which names end at each place: the longest first, since one name may begin with another.
    reached: dict[int, tuple[str, ...]] = {0: ()}
    for place in range(len(name)):
        if place not in reached:
            continue
        for one in names:
            end = place + len(one)
            if one and name.startswith(one, place) and end not in reached:
                reached[end] = (*reached[place], spelled[one])
    return reached.get(len(name), ())


@dataclass(slots=True)
class _Producers:
    """Which output holds which bytes."""

    sizes: set[tuple[int, str]] = field(default_factory=set)
    by_content: dict[bytes, str] = field(default_factory=dict)

    def add(self, tensor: Tensor, edge: str) -> None:
        self.sizes.add((tensor.about.size, tensor.about.element_type))
        content = _content(tensor)
        if content is not None:
            self.by_content[content] = edge

    def find(self, tensor: Tensor) -> str:
        if (tensor.about.size, tensor.about.element_type) not in self.sizes:
            return ""
        return self.by_content.get(_content(tensor) or b"", "")


def _content(tensor: Tensor) -> bytes | None:
    try:
        values = tensor.values
    except (Unreadable, OSError):
        return None
    found = hashlib.blake2b(digest_size=16)
    found.update(str((tensor.about.element_type, tensor.about.shape)).encode())
    found.update(values.reshape(-1).view("u1").data)
    return found.digest()


def rule_of_dump(folder: Folder, known: Sequence[Operator], *, golden: Folder | None = None) -> FusionRule:
    """The rule of an offline model, as its dump tells it.

    Args:
        folder: The dump.
        known: Operators of the model that was compiled, from the quantization information.
        golden: Golden data; a tensor there that no operator writes is the model's input.
    """
    rule = FusionRule()
    names = [operator.name for operator in known]
    starts = [operator.name for operator in known if operator.type in ("Input", "Data")]
    if not starts and golden is not None:
        written = {escaped(name) for operator in known for name in (operator.name, *operator.originals)}
        starts = [name for key in golden.files if (name := key.rpartition(".")[0]) not in written]
    for name in starts:
        rule.input_nodes.append(name)
        _add(rule, Operator(0, name, "Data", outputs=(OperatorOrigin(name, 0),), originals=(name,)))
    producers = _Producers()
    fed = {name: found for name in starts if (found := _start(golden, name)) is not None}
    first: tuple[int, ...] | None = None
    seen = False
    for op, files in sorted(folder.files.items(), key=lambda entry: entry[1][-1].time):
        try:
            loaded = load_operator(files, strict=False)
        except NotCompared:
            continue
        kind = files[-1].name.op_type if files[-1].name is not None else ""
        edges = []
        for tensor in loaded.inputs:
            edge = producers.find(tensor)
            shape = tensor.about.original_shape or tensor.about.shape
            if not edge and (edge := _fed(tensor, fed)):
                seen = True
            # What is fed may be changed on the way in: the first that nobody wrote, and others of its shape.
            alone = len(starts) == 1 and not seen and tensor.about.index == 0
            if not edge and alone and first in (None, shape):
                first, edge = shape, f"{starts[0]}:0"
            edges.append(edge)
        operator = _operator(logical_op(loaded.op_name) or op, kind, loaded, names=names, edges=edges)
        _add(rule, operator)
        for tensor in loaded.outputs:
            producers.add(tensor, f"{operator.name}:{tensor.about.index}")
    return rule


def _start(golden: Folder | None, name: str) -> Array | None:
    """What the model was fed under a name, by the golden data."""
    try:
        return None if golden is None else load_golden(golden.find(name, 0)[-1]).values
    except (NotCompared, Unreadable, OSError):
        return None


def _fed(tensor: Tensor, fed: Mapping[str, Array]) -> str:
    """The input of the model that a tensor holds, as far as half precision tells; empty for none or several."""
    alike = [name for name, values in fed.items() if values.size == math.prod(tensor.about.original_shape)]
    if not alike:
        return ""
    try:
        mine = plain_values(tensor).reshape(-1).astype(np.float64)
    except (Unreadable, OSError):
        return ""
    found = []
    for name in alike:
        values = fed[name].reshape(-1).astype(np.float64)
        with np.errstate(all="ignore"):
            if mine.size == values.size and np.linalg.norm(mine - values) <= _SAME * np.linalg.norm(values):
                found.append(name)
    return f"{found[0]}:0" if len(found) == 1 else ""


def _add(rule: FusionRule, operator: Operator) -> None:
    key = group_key(operator.name, operator.originals)
    group = rule.groups.setdefault(key, [])
    found = Operator(
        group[0].index if group else len(rule.groups) - 1,
        operator.name,
        operator.type,
        operator.inputs,
        operator.outputs,
        operator.originals,
        sequence=len(rule.in_order),
        deploys=operator.outputs,
        parts=operator.originals,
    )
    group.append(found)
    rule.group_of[operator.name] = key
    rule.in_order.append(found)


def _operator(name: str, kind: str, loaded: Loaded, *, names: Sequence[str], edges: Sequence[str]) -> Operator:
    parts = parts_of(name, names)
    told = [tensor.about.origin[0] for tensor in loaded.outputs if tensor.about.origin[0]]
    originals = parts or tuple(dict.fromkeys(told))
    if not originals:
        originals = ("",) if kind in _MADE else (name,)
    outputs: list[OperatorOrigin] = []
    for tensor in loaded.outputs:
        origin = _origin(tensor.about, originals)
        # Headers without the number of the original's output have 0 there: several are those in their order.
        while origin.name and any((one.name, one.index) == (origin.name, origin.index) for one in outputs):
            origin = replace(origin, index=(origin.index or 0) + 1)
        outputs.append(origin)
    return Operator(0, name, kind, tuple(edges), tuple(outputs), originals)


def _origin(about: DumpTensor, originals: Sequence[str]) -> OperatorOrigin:
    """What an output was: as the header says, else the last part that writes codes, or numbers, as it does."""
    name, index = about.origin
    dtype = _DTYPES.get(about.element_type, "")
    if not name:
        codes = about.element_type == "INT8"
        fitting = [part for part in originals if not codes or names_quantizer(part)]
        numbers = [part for part in fitting if codes or not names_quantizer(part)]
        name = (numbers or [""])[-1]
    layout = about.format if about.format == "ND" else ""
    return OperatorOrigin(name, index, layout, about.original_shape, dtype)
