"""Which original operators an offline operator stands for: the JSON of ``atc --mode=1``, and that of AMCT."""

import math
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, TypeAlias

from roundoff.core.files import regular_file
from roundoff.core.untrusted import parse_json
from roundoff.errors import BadInput
from roundoff.messages.message import english
from roundoff.vendors.ascend.errors import Code, NotCompared, Refused

# Values out of the JSON in which a compiler prints a model: everything is a list of keys and typed values.

_KINDS: dict[str, tuple[type, str]] = {
    "s": (str, "a string"), "i": (int, "an integer"), "b": (bool, "a bool"), "list": (dict, "a list"),
}  # fmt: skip
_AGAIN = english("make it again: atc --mode=1 --om=MODEL.om --json=FILE")


def listed(found: dict[str, Any], key: str, path: Path, *, optional: bool = False) -> list[dict[str, Any]]:
    """A list of objects; empty when there is none and it is optional."""
    if key not in found and optional:
        return []
    value = found.get(key)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        what = english(
            '{path}: the "{key}" element is {which}.',
            path=path,
            key=key,
            which=english("missing") if key not in found else english("not an array of objects"),
        )
        raise Refused(what, code=Code.JSON, fix=_AGAIN)
    return value


def text(found: dict[str, Any], key: str, path: Path) -> str:
    """A text that must be there."""
    value = found.get(key)
    if not isinstance(value, str):
        raise Refused(
            english('{path}: the "{key}" element is missing or not a string.', path=path, key=key),
            code=Code.JSON,
            fix=_AGAIN,
        )
    return value


def items_of(attributes: list[dict[str, Any]], key: str, kind: str, path: Path) -> list[Any] | None:
    """The items of an attribute that is a list of texts (``s``) or integers (``i``); None when there is none."""
    found = attribute(attributes, key, "list", path)
    if found is None:
        return None
    items = found.get(kind) or []
    wanted, _ = _KINDS[kind]
    if not isinstance(items, list) or not all(isinstance(item, wanted) for item in items):
        raise Refused(
            "{path}: the attribute {key!r} holds other values.", code=Code.JSON, fix=_AGAIN, path=path, key=key
        )
    return items


def attribute(attributes: list[dict[str, Any]], key: str, kind: str, path: Path) -> Any:
    """The value of an attribute; None when there is none.

    Args:
        attributes: Pairs of ``key`` and ``value``.
        key: Its name.
        kind: Under which letter its value stands: ``s``, ``i``, ``b`` or ``list``.
        path: The file, for messages.
    """
    for pair in attributes:
        if pair.get("key") != key:
            continue
        value = pair.get("value")
        found = value.get(kind) if isinstance(value, dict) else None
        wanted, called = _KINDS[kind]
        if not isinstance(found, wanted) or (wanted is int and isinstance(found, bool)):
            raise Refused(
                english("{path}: the attribute {key!r} is not {called}.", path=path, key=key, called=called),
                code=Code.JSON,
                fix=_AGAIN,
            )
        return found
    return None


Warn: TypeAlias = Callable[[str], None]
"""Told of what is odd."""

_MAX_BYTES = 2**30
_INT4 = 29
"""The type of codes of four bits, as the compiler numbers types."""

_SLICE = re.compile(r"_lxslice[0-9]+")


class Relation(Enum):
    """How many operators of one side stand for how many of the other."""

    ONE_TO_ONE = "OneToOne"
    MANY_TO_ONE = "MultiToOne"
    ONE_TO_MANY = "OneToMulti"
    MANY_TO_MANY = "MultiToMulti"
    L1_FUSION = "L1Fusion"


@dataclass(frozen=True, slots=True)
class OperatorOrigin:
    """What one output of an offline operator was before fusion.

    Attributes:
        name: The original operator; empty when there is none.
        index: Which of its outputs; None when the file does not say.
        format: The layout of the golden data; empty when unknown.
        shape: Its shape.
        dtype: The offline output's own type, as in ``DT_FLOAT16``.
    """

    name: str = ""
    index: int | None = None
    format: str = ""
    shape: tuple[int, ...] = ()
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of an offline model.

    Attributes:
        index: Number of its group, from 0.
        name: Its name.
        type: Its type.
        inputs: Where its inputs come from, as ``name:output``.
        outputs: What its outputs were.
        originals: Names of the operators it stands for; one empty name when the compiler made it.
        l1_group: Its group in L1 fusion; empty for none.
        of_many: Whether it is part of a group that stands for several operators.
        sequence: Its place in execution, as the compiler numbers it.
        in_quant_pair: Whether it runs between a quantizer and its dequantizer.
        last_originals: Its originals from the last on, where `originals` has become those of another model.
        deploys: What its outputs are in the model that was compiled, whatever they are compared with.
        parts: Operators of that model that it stands for.
        scale: Step, zero and width of the codes that it writes, where the file tells them.
    """

    index: int
    name: str
    type: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[OperatorOrigin, ...] = ()
    originals: tuple[str, ...] = ()
    l1_group: str = ""
    of_many: bool = False
    sequence: int = 0
    in_quant_pair: bool = False
    last_originals: tuple[str, ...] = ()
    deploys: tuple[OperatorOrigin, ...] = ()
    parts: tuple[str, ...] = ()
    scale: tuple[float, int, int] | None = None

    @property
    def inner(self) -> bool:
        """Whether it is inside a group that stands for several operators, so that it has no counterpart."""
        return self.of_many and not any(origin.name for origin in self.outputs)

    def origin(self, output: int, *, warn: Warn) -> OperatorOrigin:
        """What one of its outputs was, with the number of the original's output.

        Raises:
            NotCompared: It was nothing.
        """
        if not self.outputs:
            message = english('The output description of the fusion operator "{name}" is empty.', name=self.name)
            warn(message)
            raise NotCompared(message, code=Code.NO_DUMP)
        found = self.outputs[output if output < len(self.outputs) else 0]
        if not found.name:
            message = english("The origin name of the {name}:{output} is empty.", name=self.name, output=output)
            warn(message)
            raise NotCompared(message, code=Code.NO_DUMP)
        index = output if found.index is None else found.index
        return replace(found, index=index)


@dataclass(slots=True)
class FusionRule:
    """All operators of a model, in the groups that stand for the same originals.

    Attributes:
        groups: Operators by the key of their group, in the order of the file.
        group_of: Key of the group of each operator.
        in_order: All operators in the order of execution.
        input_nodes: Names of the model's inputs.
    """

    groups: dict[str, list[Operator]] = field(default_factory=dict)
    group_of: dict[str, str] = field(default_factory=dict)
    in_order: list[Operator] = field(default_factory=list)
    input_nodes: list[str] = field(default_factory=list)

    def find(self, name: str, *, warn: Warn) -> Operator:
        """Find an operator.

        Raises:
            NotCompared: There is none of this name.
        """
        for operator in self.groups.get(self.group_of.get(name, ""), ()):
            if operator.name == name:
                return operator
        message = english('There is no "{name}" in the fusion rule file.', name=name)
        warn(message)
        raise NotCompared(message, code=Code.PARAMETER)


def relation_of(group: list[Operator]) -> Relation:
    """How the operators of a group stand to their originals."""
    several = len(group[0].originals) > 1
    if len(group) == 1:
        return Relation.MANY_TO_ONE if several else Relation.ONE_TO_ONE
    if group[0].l1_group:
        return Relation.L1_FUSION
    return Relation.ONE_TO_MANY if len(group[0].originals) == 1 else Relation.MANY_TO_MANY


def group_key(name: str, originals: tuple[str, ...], *, l1_group: str = "") -> str:
    """The key that operators standing for the same originals share."""
    if l1_group:
        return l1_group
    if len(originals) > 1:
        return str(uuid.uuid3(uuid.NAMESPACE_DNS, "".join(originals)))
    return (originals[0] if originals else "") or name


def read_rule(path: Path) -> FusionRule:
    """Read a JSON of an offline model, or of AMCT; operators between quantizers are not marked yet.

    Raises:
        Refused: It is no such file.
    """
    rule = FusionRule()
    content = _load(path)
    for graph in listed(content, "graph", path):
        for found in listed(graph, "op", path):
            _add(rule, found, path)
        _name_renamed(rule)
    for key, group in rule.groups.items():
        rule.groups[key] = [replace(one, deploys=one.outputs, parts=one.originals) for one in group]
    operators = [operator for group in rule.groups.values() for operator in group]
    known = {operator.name: operator for operator in operators}
    # Operators of equal sequence stay in the order of the file.
    order = [known[name] for name in rule.group_of if name in known]
    rule.in_order = sorted(order, key=lambda operator: operator.sequence)
    return rule


def _load(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise Refused(
                english("{path} is larger than 1 GiB.", path=path),
                code=Code.JSON,
                fix=english("check that it is the right file"),
            )
        regular_file(path, what=english("The file"))
        content = parse_json(path.read_bytes(), path)
    except OSError as error:
        what = english("{path} cannot be read: {strerror}.", path=path, strerror=error.strerror or error)
        raise Refused(what, code=Code.JSON, fix=english("check the path")) from error
    except Refused:
        raise
    except BadInput as error:
        fix = english("make it again: atc --mode=1 --om=MODEL.om --json=FILE")
        raise Refused(error.what, code=Code.JSON, fix=fix) from error
    if not isinstance(content, dict):
        raise Refused(
            english("{path} is no description of a model.", path=path),
            code=Code.JSON,
            fix=english("give the JSON that atc writes"),
        )
    return content


def _add(rule: FusionRule, found: dict[str, Any], path: Path) -> None:
    name = _SLICE.sub("", text(found, "name", path))
    kind = text(found, "type", path)
    if kind == "Data":
        rule.input_nodes.append(name)
    attributes = listed(found, "attr", path, optional=True)
    names = items_of(attributes, "_datadump_original_op_names", "s", path)
    # An empty list stands for an operator that the compiler made; no list, for the operator itself.
    originals = (name,) if names is None else tuple(names or ("",))
    outputs = _outputs(found, path)
    if names is None:
        outputs = _named(outputs, name)
    sequence = found.get("id", 0)
    l1_group = attribute(attributes, "_L1_fusion_sub_graph_no", "s", path) or ""
    key = group_key(name, originals, l1_group=l1_group)
    rule.group_of[name] = key
    group = rule.groups.setdefault(key, [])
    if any(operator.name == name for operator in group):
        return
    group.append(
        Operator(
            group[0].index if group else len(rule.groups) - 1,
            name,
            kind,
            _inputs(found, path),
            outputs,
            originals,
            l1_group,
            bool(attribute(attributes, "_datadump_is_multiop", "b", path)),
            sequence if isinstance(sequence, int) else 0,
            scale=_scale(attributes, kind),
        )
    )


def _scale(attributes: list[dict[str, Any]], kind: str) -> tuple[float, int, int] | None:
    """Step, zero and width of a quantizer: operators hold one over the step, unless it has a record's name."""
    if kind not in QUANTIZER_TYPES:
        return None
    found = {pair.get("key"): _float(pair.get("value")) for pair in attributes}
    factor, step = found.get("scale"), found.get("scale_d")
    if factor and found.get("sqrt_mode"):
        factor *= factor
    step = step or (1 / factor if factor else None)
    if step is None or not 0 < step < math.inf:
        return None
    bits = 4 if found.get("dst_type") == _INT4 else 8
    return step, round(found.get("offset_d") or found.get("offset") or 0), bits


def _float(value: object) -> float | None:
    """A number of any kind; the compiler prints those with a point as texts."""
    if not isinstance(value, dict):
        return None
    for kind in ("f", "i", "b", "s"):
        try:
            number = float(value[kind])
        except (KeyError, TypeError, ValueError, OverflowError):
            continue
        return number if math.isfinite(number) else None
    return None


def _inputs(found: dict[str, Any], path: Path) -> tuple[str, ...]:
    """Where values come from; edges that only order execution end in ``:-1``."""
    edges = found.get("input", [])
    if not isinstance(edges, list) or not all(isinstance(edge, str) for edge in edges):
        raise Refused(english('{path}: the "input" element is not an array of names.', path=path), code=Code.JSON)
    return tuple(_SLICE.sub("", edge) for edge in edges if edge and not edge.endswith(":-1"))


def _outputs(found: dict[str, Any], path: Path) -> tuple[OperatorOrigin, ...]:
    origins = []
    for place, output in enumerate(listed(found, "output_desc", path, optional=True)):
        if "attr" not in output:
            continue
        about = listed(output, "attr", path)
        index = attribute(about, "_datadump_origin_output_index", "i", path)
        shape = items_of(about, "origin_shape", "i", path) or ()
        origins.append(
            OperatorOrigin(
                attribute(about, "_datadump_origin_name", "s", path) or "",
                place if index is None else index,
                attribute(about, "_datadump_origin_format", "s", path)
                or attribute(about, "origin_format", "s", path)
                or "",
                tuple(shape),
                str(output.get("dtype", "")),
            )
        )
    return tuple(origins)


def _named(outputs: tuple[OperatorOrigin, ...], name: str) -> tuple[OperatorOrigin, ...]:
    """Outputs that belong to no other operator are its own; one without any has one of which no more is known."""
    if not outputs:
        return (OperatorOrigin(name),)
    return tuple(origin if origin.name else replace(origin, name=name) for origin in outputs)


def _name_renamed(rule: FusionRule) -> None:
    """Give outputs of an operator that was only renamed the name of its one original."""
    for key, group in rule.groups.items():
        if len(group) == 1 and group[0].originals == (key,):
            group[0] = replace(group[0], outputs=_named(group[0].outputs, key))


# What the names of operators tell of quantization, in Caffe, TensorFlow and ONNX.

QUANTIZER_TYPES = ("AscendQuant", "AscendQuantV2", "Quant")
"""Types of quantizers: those of the compiler, and Caffe's."""

QUANT_NAME = re.compile(r"_quant_layer|/AscendQuant|/AscendWeightQuant|\.quant|\.weight_quant")
DEQUANT_NAME = re.compile(r"_dequant_layer|_anti_quant_layer|/AscendDequant|/AntiQuant|\.dequant|\.anti_quant")
DEQUANTIZERS = ("_dequant_layer", "AscendDequant", "_dequant")
"""Endings of the names of dequantizers, in Caffe, TensorFlow and ONNX."""

_QUANTIZERS = (
    "_quant_layer", "_anti_quant_layer", "AscendQuant", "AscendWeightQuant", "AntiQuant", "_quant",
    "_weight_quant", "_anti_quant",
)  # fmt: skip


def names_quantization(op: str) -> bool:
    """Whether an operator's name tells of a quantized model."""
    return any(part in op for part in (*_QUANTIZERS, *DEQUANTIZERS))


def names_quantizer(op: str) -> bool:
    """Whether an operator's name is that of a quantizer, which makes codes of numbers."""
    return QUANT_NAME.search(op) is not None and DEQUANT_NAME.search(op) is None


def is_dequantizer(operator: Operator, *, strict: bool = False) -> bool:
    """Whether an operator turns sums of codes into numbers, so that its inputs are sums.

    Args:
        operator: The operator.
        strict: Take a layer for one, as the vendor does, that is fused with its dequantizer and reads codes.
    """
    alone = strict or len(operator.parts) < 2
    return operator.type == "AscendDequant" or (alone and operator.name.endswith(DEQUANTIZERS))
