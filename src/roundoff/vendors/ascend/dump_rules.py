"""The rule that a dump tells by itself, where no JSON of the offline model is given.

Headers name the originals of outputs; the name of a fused operator is those of its parts in a row; and an input is
the output that holds the same values. Where their shapes differ, an operator that only reshapes lies between and
is never dumped: that one whose golden tensor holds the same values in the shape that is read.
"""

import hashlib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from roundoff.core.array_files import Unreadable
from roundoff.core.tensors import Array
from roundoff.tensors.ascend_dump.header import DumpTensor
from roundoff.tensors.ascend_dump.names import logical_op
from roundoff.vendors.ascend.errors import NotCompared
from roundoff.vendors.ascend.folders import (
    Folder,
    FoundFile,
    Loaded,
    Tensor,
    escaped,
    load_golden,
    load_operator,
    plain_values,
    way_back,
)
from roundoff.vendors.ascend.rules import FusionRule, Operator, OperatorOrigin, group_key, names_quantizer

_MADE = ("TransData", "Cast")
_SAME = 1e-2
"""How far an input may be from the golden one, relative to it: half precision or bfloat16 stores it."""

_DTYPES = {
    "FLOAT": "DT_FLOAT",
    "FLOAT16": "DT_FLOAT16",
    "INT8": "DT_INT8",
    "INT4": "DT_INT4",
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
    """Which output holds which values: in the same bytes, else in another layout or shape."""

    by_content: dict[bytes, str] = field(default_factory=dict)
    by_values: dict[bytes, str] = field(default_factory=dict)
    sizes: set[tuple[int, str]] = field(default_factory=set)
    unread: dict[tuple[int, str], list[tuple[Sequence[FoundFile], int, str]]] = field(default_factory=dict)

    def add(self, files: Sequence[FoundFile], tensor: Tensor, edge: str) -> None:
        self.sizes.add((tensor.about.size, tensor.about.element_type))
        content = _content(tensor)
        if content is not None:
            self.by_content[content] = edge
            self.unread.setdefault(_count(tensor), []).append((files, tensor.about.index, edge))

    def find(self, tensor: Tensor) -> str:
        edge = ""
        if (tensor.about.size, tensor.about.element_type) in self.sizes:
            edge = self.by_content.get(_content(tensor) or b"", "")
        # Values are only put in order where no bytes are the same, and read again for it.
        for files, index, name in () if edge else self.unread.pop(_count(tensor), ()):
            self.by_values[_values(load_operator(files, strict=False).outputs[index]) or b""] = name
        return edge or self.by_values.get(_values(tensor) or b"", "")


def _content(tensor: Tensor) -> bytes | None:
    try:
        return _digest(tensor.values, tensor.about.element_type, tensor.about.shape)
    except (Unreadable, OSError):
        return None


def _count(tensor: Tensor) -> tuple[int, str]:
    """How many values a tensor has without what its layout fills up, and their type."""
    try:
        return math.prod(way_back(tensor).shape), tensor.about.element_type
    except Unreadable:
        return -1, ""


def _values(tensor: Tensor) -> bytes | None:
    try:
        return _digest(plain_values(tensor), tensor.about.element_type)
    except (Unreadable, OSError):
        return None


def _digest(values: Array, *about: object) -> bytes:
    found = hashlib.blake2b(digest_size=16)
    found.update(str(about).encode())
    found.update(np.ascontiguousarray(values).reshape(-1).view("u1").data)
    return found.digest()


@dataclass(slots=True)
class _Copies:
    """Golden tensors that hold the values of others."""

    golden: Folder | None
    digests: dict[str, bytes] = field(default_factory=dict)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The shape of an operator's first golden output; None when there is none."""
        try:
            return None if self.golden is None else load_golden(self.golden.find(name, 0)[-1]).shape
        except (NotCompared, Unreadable, OSError):
            return None

    def find(self, name: str, others: Iterable[str], *, shape: tuple[int, ...] | None = None) -> str:
        """The first of some operators that writes the values of another one; empty for none.

        Args:
            name: The other one.
            others: The operators.
            shape: The shape in which it does; any by default.
        """
        own = self.shape(name)
        for other in others:
            held = self.shape(other)
            if own is None or held is None or other == name:
                continue
            fits = held == shape if shape is not None else math.prod(held) == math.prod(own)
            if fits and self._digest(other) == self._digest(name):
                return other
        return ""

    def _digest(self, name: str) -> bytes:
        if name not in self.digests:
            values = _start(self.golden, name)
            self.digests[name] = b"" if values is None else _digest(values, values.dtype)
        return self.digests[name]


def rule_of_dump(folder: Folder, known: Sequence[Operator], *, golden: Folder | None = None) -> FusionRule:
    """The rule of an offline model, as its dump tells it.

    Args:
        folder: The dump.
        known: Operators of the model that was compiled, from the quantization information.
        golden: Golden data; a tensor there that no operator writes is the model's input.
    """
    copies = _Copies(golden)
    starts = [operator.name for operator in known if operator.type in ("Input", "Data")]
    if not starts and golden is not None:
        written = {escaped(name): name for operator in known for name in (operator.name, *operator.originals)}
        unknown = [name for key in golden.files if (name := key.rpartition(".")[0]) not in written]
        # What only passes on what others write may be left out of the quantized model; nobody writes an input.
        starts = [name for name in unknown if not copies.find(name, written.values())]
    fed = {name: found for name in starts if (found := _start(golden, name)) is not None}
    making = _RuleInMaking({operator.name: operator for operator in known}, starts, fed, copies)
    for name in starts:
        making.rule.input_nodes.append(name)
        making.held[f"{name}:0"] = name
        _add(making.rule, Operator(0, name, "Data", outputs=(OperatorOrigin(name, 0),), originals=(name,)))
    for op, files in sorted(folder.files.items(), key=lambda entry: entry[1][-1].time):
        try:
            making.add(op, files, load_operator(files, strict=False))
        except NotCompared:
            continue
    return making.rule


@dataclass(slots=True)
class _RuleInMaking:
    """A rule that grows operator by operator, and what is known by then: who wrote what, and what that is."""

    quantized: Mapping[str, Operator]
    starts: Sequence[str]
    fed: Mapping[str, Array]
    copies: _Copies
    rule: FusionRule = field(default_factory=FusionRule)
    producers: _Producers = field(default_factory=_Producers)
    held: dict[str, str] = field(default_factory=dict)
    ran: set[str] = field(default_factory=set)
    first: tuple[int, ...] | None = None
    seen: bool = False

    def add(self, op: str, files: Sequence[FoundFile], loaded: Loaded) -> None:
        kind = files[-1].name.op_type if files[-1].name is not None else ""
        edges = [self._viewed(self._edge(tensor), tensor) for tensor in loaded.inputs]
        name = logical_op(loaded.op_name) or op
        operator = operator_of(name, kind, loaded, names=list(self.quantized), edges=edges)
        _add(self.rule, operator)
        self.ran.update(operator.originals)
        for tensor, origin in zip(loaded.outputs, operator.outputs, strict=True):
            edge = f"{operator.name}:{tensor.about.index}"
            self.producers.add(files, tensor, edge)
            # What the compiler made holds what it read.
            read = self.held.get(edges[0], "") if edges and kind in _MADE else ""
            self.held[edge] = read or _before(self.quantized.get(origin.name), origin.index) or origin.name

    def _edge(self, tensor: Tensor) -> str:
        """Where an input comes from; empty when that is not known."""
        edge = self.producers.find(tensor)
        if edge:
            return edge
        if edge := _fed(tensor, self.fed):
            self.seen = True
            return edge
        # What is fed may be changed on the way in: the first that nobody wrote, and others of its shape.
        shape = _shape(tensor)
        if len(self.starts) == 1 and not self.seen and tensor.about.index == 0 and self.first in (None, shape):
            self.first = shape
            return f"{self.starts[0]}:0"
        return ""

    def _viewed(self, edge: str, tensor: Tensor) -> str:
        """The same through what gives it another shape and was not dumped, which joins the rule."""
        before, shape = self.held.get(edge, ""), _shape(tensor)
        if not before or self.copies.shape(before) in (None, shape):
            return edge
        view = self.copies.find(before, (name for name in self.quantized if name not in self.ran), shape=shape)
        if view and view not in self.rule.group_of:
            passed = (OperatorOrigin(view, 0, "ND", shape),)
            _add(self.rule, Operator(0, view, self.quantized[view].type, (edge,), passed, (view,)))
        return f"{view}:0" if view else edge


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return tensor.about.original_shape or tensor.about.shape


def _before(operator: Operator | None, index: int | None) -> str:
    """What an output of the quantized model is in its float original."""
    outputs = operator.outputs if operator is not None else ()
    return outputs[index or 0].name if (index or 0) < len(outputs) else ""


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


def operator_of(
    name: str, kind: str, loaded: Loaded, *, names: Sequence[str], edges: Sequence[str] = ()
) -> Operator:
    """An operator as its dump tells it: what it was made of, and which original tensors it writes.

    Args:
        name: Its name.
        kind: Its type.
        loaded: Its tensors.
        names: Names of the original model.
        edges: Where its inputs come from.
    """
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
        # Files spell the dots of names otherwise.
        spelled = [part for part in originals if part.endswith("_quant") and not part.endswith("_anti_quant")]
        quantizers = [part for part in originals if names_quantizer(part)] or spelled
        codes = about.element_type in ("INT8", "INT4")
        fitting = quantizers if codes else [part for part in originals if part not in quantizers]
        name = (fitting or spelled or [""])[-1]
    layout = about.format if about.format == "ND" else ""
    return OperatorOrigin(name, index, layout, about.original_shape, dtype)
