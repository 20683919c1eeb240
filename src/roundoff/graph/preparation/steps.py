"""The steps of preparing a model, in their order."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.draft import Draft, named
from roundoff.graph.interface import RANDOM_OPS, inputs
from roundoff.graph.load import Model
from roundoff.graph.nodes import (
    DEFAULT_OPSET,
    STANDARD_DOMAINS,
    attribute,
    input_at,
    opset_of,
    set_attribute,
    subgraphs,
)
from roundoff.graph.preparation.affine import fold_affine, fold_forward
from roundoff.graph.shapes import Value, values
from roundoff.messages.message import Message, english, message

_ONLY_FATAL = 4


class CannotEvaluate(Exception):
    """Some nodes cannot be computed on their own; the message says why."""


def evaluate(
    nodes: Sequence[Any], feeds: Mapping[str, Array], wanted: Sequence[str], *, model: Model
) -> list[Array]:
    """Values of tensors that nodes compute.

    Args:
        nodes: The nodes, in execution order.
        feeds: Values of all they read from elsewhere.
        wanted: The tensors asked for.
        model: Whose versions of operators count.

    Raises:
        CannotEvaluate: onnxruntime cannot compute them, or they are not tensors that numpy can hold.
    """
    from onnx import ModelProto
    from onnx.helper import make_tensor_value_info, np_dtype_to_tensor_dtype

    if not wanted:
        return []
    proto = ModelProto(ir_version=model.proto.ir_version, opset_import=model.proto.opset_import)
    proto.functions.extend(model.proto.functions)
    proto.graph.name = "constants"
    proto.graph.node.extend(nodes)
    for name, array in feeds.items():
        if array.dtype.kind not in "biufcOUS":
            raise CannotEvaluate(english("values of the type {dtype} cannot be fed", dtype=array.dtype))
        number = np_dtype_to_tensor_dtype(array.dtype)
        proto.graph.input.append(make_tensor_value_info(name, number, array.shape))
    for name in wanted:
        proto.graph.output.add(name=name)
    results = _run(proto, feeds, wanted)
    if not all(isinstance(result, np.ndarray) for result in results):
        raise CannotEvaluate(english("their results are not tensors"))
    return results


def _run(proto: Any, feeds: Mapping[str, Array], wanted: Sequence[str]) -> list[Any]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = _ONLY_FATAL
    options.intra_op_num_threads = 1
    try:
        session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return list(session.run(list(wanted), dict(feeds)))
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        raise CannotEvaluate(english("onnxruntime cannot compute them ({reason})", reason=reason)) from error


# Padding with zeros in a node of its own becomes padding of the convolution behind it.

_PADS_ARE_INPUTS = 11
_PADS, _VALUE, _AXES = 1, 2, 3


def merge_padding(draft: Draft) -> None:
    """Merge Pad into the Conv that alone reads it, where that is exactly the same."""
    merged = [node.name for node in draft.of_type("Pad") if _merge(draft, node)]
    if merged:
        draft.notes.append(message("graph.pads_merged", names=named(merged)))


def _merge(draft: Draft, pad: Any) -> bool:
    conv = draft.only_reader(pad.output[0]) if draft.read_once(pad.output[0]) else None
    if conv is None or conv.op_type != "Conv" or conv.domain or conv.input[0] != pad.output[0]:
        return False
    amounts = _zero_padding(draft, pad)
    weight = draft.constants.shape(conv.input[1]) if conv.input[1] in draft.constants else ()
    rank = len(weight)
    if amounts is None or not rank or attribute(conv, "auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return False
    axes, values = amounts
    total = [0] * (2 * rank)
    for index, axis in enumerate(axes or range(rank)):
        total[axis % rank] += values[index]
        total[axis % rank + rank] += values[index + len(values) // 2]
    spatial = total[2:rank] + total[rank + 2 :]
    if len(values) != 2 * len(axes or range(rank)) or min(total) < 0 or sum(spatial) != sum(total):
        return False
    own = attribute(conv, "pads", [0] * len(spatial))
    if attribute(conv, "auto_pad", "NOTSET") == "VALID":
        own = [0] * len(spatial)
    set_attribute(conv, "auto_pad", None)
    set_attribute(conv, "pads", [first + second for first, second in zip(own, spatial, strict=True)])
    draft.set_input(conv, 0, pad.input[0])
    draft.remove(pad, into=conv.name)
    return True


def _zero_padding(draft: Draft, pad: Any) -> tuple[list[int], list[int]] | None:
    """Axes (none for all) and amounts of a Pad with zeros; None when it is of another kind, or not constant."""
    if attribute(pad, "mode", "constant") != "constant":
        return None
    if draft.opset < _PADS_ARE_INPUTS:
        amounts = attribute(pad, "pads", [])
        return ([], list(amounts)) if attribute(pad, "value", 0.0) == 0 else None
    given = {at: pad.input[at] for at in (_PADS, _VALUE, _AXES) if len(pad.input) > at and pad.input[at]}
    if not all(name in draft.constants for name in given.values()):
        return None
    held = {at: draft.constants.value(name) for at, name in given.items()}
    if _VALUE in held and held[_VALUE].any():
        return None
    axes = held[_AXES].astype(int).ravel().tolist() if _AXES in held else []
    return axes, held[_PADS].astype(int).ravel().tolist()


# Nodes that hand on what they get are taken out.

_TRAINING_MODE = 2
"""Which input of Dropout says that it is to drop."""


def remove_passthroughs(draft: Draft) -> None:
    """Take out Identity, and Dropout outside of training; names of outputs stay."""
    removed, stays = [], []
    for node in draft.of_type("Identity", "Dropout"):
        reason = _training(draft, node) if node.op_type == "Dropout" else ""
        if reason:
            stays.append(message("graph.node_stays", op=node.op_type, node=node.name, why=reason))
        elif _bypass(draft, node):
            removed.append(node.name)
    if removed:
        draft.notes.append(message("graph.passthroughs_removed", names=named(removed)))
    draft.notes += stays


def _training(draft: Draft, node: Any) -> str:
    """Why a Dropout may do something; empty when it does not."""
    if (
        len(node.output) > 1
        and node.output[1]
        and (draft.readers(node.output[1]) or node.output[1] in draft.outputs)
    ):
        return english("its mask is used")
    mode = input_at(node, _TRAINING_MODE)
    if not mode:
        return ""
    if mode not in draft.constants:
        return english("{mode!r} decides at run time whether it drops", mode=mode)
    return english("it is in training mode") if draft.constants.value(mode).any() else ""


def _bypass(draft: Draft, node: Any) -> bool:
    source, result = node.input[0], node.output[0]
    producer = draft.producer(source)
    if result not in draft.outputs:
        draft.replace_uses(result, source)
        draft.remove(node, into=producer.name if producer is not None else "")
        return True
    # The output's name must stay: its producer takes it over, if nothing else depends on the old one.
    if producer is None or source in draft.outputs or list(producer.output).count(source) != 1:
        return False
    position = list(producer.output).index(source)
    draft.remove(node, into=producer.name)
    draft.replace_uses(source, result)
    draft.rename_output(producer, position, result)
    return True


# What cannot be prepared is said before anything is tried.

_OLDEST_OPSET = 7
"""Before this, operators did not broadcast and carried their test mode as attributes."""

_QUANTIZED = frozenset(
    {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger"}
)
_QUANTIZED_PREFIX = "QLinear"


def check_supported(model: Model) -> None:
    """Refuse models that are quantized already, or in a version of ONNX that is too old or too new.

    Raises:
        BadInput: Saying which, and what to do.
    """
    from onnx.defs import onnx_opset_version

    opset, newest = opset_of(model.proto), onnx_opset_version()
    if opset < _OLDEST_OPSET:
        raise BadInput(
            english(
                "{path} is of opset {opset}; models are prepared from opset {oldest_opset} on.",
                path=model.path,
                opset=opset,
                oldest_opset=_OLDEST_OPSET,
            ),
            fix=english(
                "onnx.save(onnx.version_converter.convert_version(onnx.load(path), {default_opset}), "
                "new_path), or export the model again",
                default_opset=DEFAULT_OPSET,
            ),
        )
    if opset > newest:
        raise BadInput(
            english(
                "{path} is of opset {opset}; the installed onnx knows opsets up to {newest}.",
                path=model.path,
                opset=opset,
                newest=newest,
            ),
            fix=english("pip install -U onnx onnxruntime, or export the model with an older opset"),
        )
    check_float(model)
    _check_standard(model, opset)


def check_float(model: Model) -> None:
    """Refuse models that are quantized already.

    Raises:
        BadInput: Saying what in it is quantized.
    """
    quantized = Counter(node.op_type for node in model.proto.graph.node if _is_quantized(node.op_type))
    if quantized:
        found = ", ".join(f"{count} {op_type}" for op_type, count in quantized.most_common())
        raise BadInput(
            english("{path} is quantized already: it has {found}.", path=model.path, found=found),
            fix=english("give the float model; 'roundoff audit' and 'roundoff layers --quantized' read this one"),
        )


def _is_quantized(op_type: str) -> bool:
    return op_type in _QUANTIZED or op_type.startswith(_QUANTIZED_PREFIX)


def _check_standard(model: Model, opset: int) -> None:
    own = {(function.domain, function.name) for function in model.proto.functions}
    for node in model.proto.graph.node:
        if node.domain in STANDARD_DOMAINS and (node.domain, node.op_type) not in own and not _known(node, opset):
            raise BadInput(
                english(
                    "Node {name!r} of {path} is a {op_type!r}, which opset {opset} does not have.",
                    name=node.name,
                    path=model.path,
                    op_type=node.op_type,
                    opset=opset,
                ),
                fix=english("export the model with standard operators; check it with onnx.checker.check_model"),
            )


def unknown_operations(model: Model) -> dict[str, list[str]]:
    """Operations that onnx does not know, with the nodes that have them; functions of the model are known."""
    own = {(function.domain, function.name) for function in model.proto.functions}
    found: dict[str, list[str]] = {}
    for node in model.proto.graph.node:
        if node.domain not in STANDARD_DOMAINS and (node.domain, node.op_type) not in own:
            found.setdefault(f"{node.domain}::{node.op_type}", []).append(node.name)
    return found


def _known(node: Any, opset: int) -> bool:
    from onnx.defs import SchemaError, get_schema

    try:
        return not get_schema(node.op_type, opset, "").deprecated
    except (SchemaError, TypeError):  # no such operation, or an opset beyond 32 bits
        return False


# Constants in one place: nodes that hold one, and what is computed from constants alone.

# Every call gives something else, or may.
_RANDOM = RANDOM_OPS | {"Dropout"}
# A result may be larger than what it is made of by this much; tables of positions and masks are.
_MOST_GROWTH_BYTES = 1 << 20
# What is made of so little is small enough even when its size cannot be foretold ...
_TINY_BYTES = 4096
# ... unless the operation makes any size of it.
_EXPLOSIVE = frozenset(
    {"ConstantOfShape", "Expand", "EyeLike", "GridSample", "OneHot", "Pad", "Range", "Resize", "Tile", "Upsample"}
)


def hold_constants(draft: Draft) -> None:
    """Turn Constant nodes into initializers of the same name."""
    from onnx import TensorProto

    for node in draft.of_type("Constant"):
        tensor = node.output[0]
        held = attribute(node, "value")
        if tensor in draft.outputs:
            continue
        if isinstance(held, TensorProto):
            copy = TensorProto()
            copy.CopyFrom(held)
            copy.name = tensor
            draft.constants.hold(copy)
        elif (plain := _plain_value(node)) is not None:
            draft.set_constant(tensor, plain)
        else:
            continue
        draft.remove(node, into="")


def _plain_value(node: Any) -> Array | None:
    kinds = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}
    for name, dtype in kinds.items():
        held = attribute(node, name)
        if held is not None:
            return np.asarray(held, dtype=dtype)
    return None


def fold_constants(draft: Draft) -> None:
    """Compute once what depends on constants alone, and shapes that are fixed."""
    fixed = _fixed_inputs(draft.model)
    known = {value.name: value for value in values(draft.model, fixed)}
    if fixed:
        # Without, shapes would be those that the file declares for tensors between, which may not be so.
        _fold_shapes(draft, known)
    folder = _Folder(draft, known)
    for node in list(draft.nodes.values()):
        folder.consider(node)
    folder.finish()


def _fixed_inputs(model: Model) -> dict[str, tuple[int, ...]]:
    return {
        spec.name: tuple(size for size in spec.shape if isinstance(size, int))
        for spec in inputs(model)
        if spec.shape is not None and all(isinstance(size, int) for size in spec.shape)
    }


def _fold_shapes(draft: Draft, known: dict[str, Value]) -> None:
    folded = []
    for node in draft.of_type("Shape", "Size"):
        value = known.get(node.input[0])
        if value is None or value.shape is None or node.output[0] in draft.outputs:
            continue
        if node.op_type == "Size":
            result = np.asarray(math.prod(value.shape), np.int64)
        else:
            part = slice(attribute(node, "start", 0), attribute(node, "end"))
            result = np.asarray(value.shape[part], np.int64)
        draft.set_constant(node.output[0], result)
        draft.remove(node, into="")
        folded.append(node.name)
    if folded:
        draft.notes.append(message("graph.shapes_computed", names=named(folded)))


class _Folder:
    """Nodes of constants, gathered to be computed together."""

    def __init__(self, draft: Draft, known: dict[str, Value]) -> None:
        self._draft = draft
        self._known = known
        self._nodes: dict[str, Any] = {}
        self._sizes: dict[str, int] = {}
        self._left: dict[str, list[str]] = {}

    def consider(self, node: Any) -> None:
        """Take a node if all it reads is constant, or is computed by nodes that were taken."""
        if not node.input or node.domain not in STANDARD_DOMAINS or any(subgraphs(node)):
            return
        names = [name for name in node.input if name]
        if not all(name in self._draft.constants or name in self._sizes for name in names):
            return
        if not self._draft.outputs.keys().isdisjoint(node.output) or node.op_type in _RANDOM:
            return
        reason, size = self._judge(node, names)
        if reason:
            self._left.setdefault(reason, []).append(node.name)
            return
        self._nodes[node.name] = node
        for name in node.output:
            self._sizes[name] = size

    def _judge(self, node: Any, names: list[str]) -> tuple[str, int]:
        """Why not to compute a node, or how large its results are."""
        used = sum(
            self._sizes[name] if name in self._sizes else self._draft.constants.size_bytes(name) for name in names
        )
        known = [self._known[name] for name in node.output if name in self._known]
        sizes = [value.size_bytes for value in known if value.shape is not None and value.element is not None]
        if len(sizes) < sum(map(bool, node.output)):
            if used > _TINY_BYTES or node.op_type in _EXPLOSIVE:
                return english("the size of their results is not known beforehand"), 0
            return "", _MOST_GROWTH_BYTES
        grown = sum(sizes)
        if grown > used + _MOST_GROWTH_BYTES:
            return english("their results are much larger than what they are made of"), 0
        return ("", grown) if self._draft.has_room(grown) else (english("the model would exceed one file"), 0)

    def finish(self) -> None:
        """Compute all nodes taken, and put their results in their place."""
        nodes = list(self._nodes.values())
        folded = self._compute(nodes)
        if not folded:
            # One of them fails. Alone, the others do not.
            folded = [node for each in nodes for node in self._compute([each])]
        if folded:
            counted = Counter(node.op_type for node in folded)
            listed = ", ".join(f"{count} {op_type}" for op_type, count in counted.most_common())
            self._draft.notes.append(message("graph.constants_computed", counts=listed))
        for reason, names in self._left.items():
            self._draft.notes.append(message("graph.constants_left", why=reason, names=named(names)))

    def _compute(self, nodes: list[Any]) -> list[Any]:
        """Give the nodes that were computed: all of them, or none."""
        draft = self._draft
        names = {name for node in nodes for name in node.input if name}
        computed = {name for node in nodes for name in node.output if name}
        if not all(name in draft.constants for name in names - computed):
            return []
        inside = {node.name for node in nodes}
        wanted = [
            name for name in sorted(computed) if any(each.name not in inside for each in draft.readers(name))
        ]
        feeds = {name: draft.constants.value(name) for name in names - computed}
        try:
            results = evaluate(nodes, feeds, wanted, model=draft.model)
        except CannotEvaluate as error:
            if len(nodes) == 1:
                self._left.setdefault(str(error), []).append(nodes[0].name)
            return []
        for name, result in zip(wanted, results, strict=True):
            draft.set_constant(name, result)
        for node in nodes:
            draft.remove(node, into="")
        return nodes


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model ready to be quantized.

    Attributes:
        model: Computes what the original does, up to float rounding. Nodes and tensors that remain keep names.
        notes: What was folded, what was not and why.
        origins: For every node of the original model the node that now computes its result: itself, or the layer
            it was folded into; empty when its result has become a constant or is not computed any more.
    """

    model: Model
    notes: tuple[Message, ...]
    origins: Mapping[str, str]


def prepare(model: Model, *, may_fold: Callable[[str], bool] = lambda _: True, forward: bool = False) -> Prepared:
    """Fold what need not be computed in a float model: constants, batch normalization, nodes that do nothing.

    Args:
        model: The float model; it is not changed.
        may_fold: Whether a node, by its name, may be folded into a layer or have others folded into it.
        forward: Fold batch normalization that no layer in front can take into the convolution behind it, too.

    Raises:
        BadInput: The model is quantized already, of an opset that is too old or unknown, or has operators that its
            opset does not have.
    """
    check_supported(model)
    draft = Draft(model)
    for operation, names in unknown_operations(model).items():
        draft.notes.append(message("graph.foreign_operation", op=operation, names=named(names)))
    for name, others in model.renamed.items():
        given = named(list(others))
        draft.notes.append(message("graph.renamed", count=len(others) + 1, name=name, others=given))
    _note_defaults(draft)
    hold_constants(draft)
    remove_passthroughs(draft)
    fold_constants(draft)
    merge_padding(draft)
    fold_affine(draft, may_fold=may_fold)
    if forward:
        fold_forward(draft, may_fold=may_fold)
    return Prepared(draft.finish(), tuple(draft.notes), draft.origins())


def _note_defaults(draft: Draft) -> None:
    """Say which inputs are no longer inputs. In the oldest files every weight was one, and it meant nothing."""
    if draft.model.proto.ir_version < _FIRST_WITH_CONSTANTS:
        return
    names = [value.name for value in draft.model.proto.graph.input if value.name in draft.constants]
    if names:
        draft.notes.append(message("graph.defaults_fixed", names=named(names)))


_FIRST_WITH_CONSTANTS = 4
"""IR version from which an initializer need not be an input."""
