"""What a quantization decided, node by node and tensor by tensor, and how tools are told it in their files."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from roundoff.core.plan import FLOAT, Precision, QuantPlan, Rule
from roundoff.core.quantizers import Quantizer
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.units import NodePrecisions
from roundoff.messages.message import english, listed, some

if TYPE_CHECKING:
    from roundoff.graph.load import Model

COMMON_BITS = 8
"""What every tool quantizes to unless it is told otherwise."""

# What plans say where they were read from a model, and nobody knows.
_AS_GIVEN = "as given"
# Operations that compute nothing: tools give them the type of what they read.
_MOVES = frozenset({
    "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Split", "Gather", "Expand",
    "Tile", "DepthToSpace", "SpaceToDepth", "Dropout",
})  # fmt: skip


# Operations that read a tensor and none of its values: no precision is theirs.
_SIZES = frozenset({"Shape", "Size"})


@dataclass(frozen=True, slots=True)
class NodeDecision:
    """What one node computes with.

    Attributes:
        name: Its name in the user's model.
        op_type: Its operation.
        outputs: The tensors it computes.
        precision: What it reads, its weight, and what it hands on.
        inputs: The dtype at each of its inputs that comes from outside of what it is fused with, by place.
        float_between: Whether it is meant to compute in float although all it reads is quantized.
    """

    name: str
    op_type: str
    outputs: tuple[str, ...]
    precision: Precision
    inputs: Mapping[int, str] = field(default_factory=dict)
    float_between: bool = False

    @property
    def in_float(self) -> bool:
        """Whether it computes in float: it is meant to, or reads something that is not quantized."""
        return self.float_between or self.precision.arithmetic == FLOAT

    @property
    def bits(self) -> int:
        """Width of the widest codes it reads; 0 when it reads none."""
        return _widest(self.precision.activation)

    @property
    def output_bits(self) -> int:
        """Width of the widest codes it hands on; 0 when it hands on none."""
        return _widest(self.precision.output)

    @property
    def wide(self) -> bool:
        """Whether it computes with integers of more than 8 bits."""
        return not self.in_float and self.bits > COMMON_BITS

    @property
    def moves(self) -> bool:
        """Whether it only passes elements on."""
        return self.op_type in _MOVES


@dataclass(frozen=True, slots=True)
class Made:
    """How a quantized model was made, as far as that is known.

    Attributes:
        stem: How names of files start.
        target: For which target; empty when that is not known.
        method: Calibration method of its ranges; empty when that is not known.
        samples: On how many samples they were observed; 0 when that is not known.
        rules: What the user asked for.
        float_between: Nodes meant to compute in float although all they read and hand on is quantized.
        graph: Name of the file with the float model that settings belong to; empty where it is the user's own.
    """

    stem: str = "model"
    target: str = ""
    method: str = ""
    samples: int = 0
    rules: tuple[Rule, ...] = ()
    float_between: frozenset[str] = frozenset()
    graph: str = ""

    @classmethod
    def by_plan(
        cls, plan: QuantPlan | None, *, stem: str, method: str, samples: int = 0, graph: str = ""
    ) -> "Made":
        """How a model was made for which a plan is known, or None is."""
        if plan is None:
            return cls(stem, method=method, samples=samples, graph=graph)
        return cls(
            stem,
            target="" if plan.target == _AS_GIVEN else plan.target,
            method="" if method == _AS_GIVEN else method,
            samples=samples,
            rules=tuple(each.rule for each in plan.resolutions),
            float_between=frozenset(node.node for node in plan.nodes if node.float_between_integers),
            graph=graph,
        )


@dataclass(frozen=True, eq=False)
class Decisions:
    """A quantization, as other tools can be told it.

    Attributes:
        quantized: The float model that settings are for, and its quantizers.
        nodes: Those that compute with values, in execution order.
        made: How it was made.
    """

    quantized: QuantizedModel
    nodes: tuple[NodeDecision, ...]
    made: Made = Made()

    @property
    def model(self) -> str:
        """What to give a tool: the file with the changed graph, or a word for the user's own model."""
        return self.made.graph or "MODEL.onnx"

    @cached_property
    def computing(self) -> tuple[NodeDecision, ...]:
        """The nodes that do not only pass elements on."""
        return tuple(node for node in self.nodes if not node.moves)

    @cached_property
    def floats(self) -> tuple[NodeDecision, ...]:
        """The nodes that compute in float."""
        return tuple(node for node in self.computing if node.in_float)

    @cached_property
    def wide(self) -> tuple[NodeDecision, ...]:
        """The nodes that compute with more than 8 bits."""
        return tuple(node for node in self.computing if node.wide)

    def of_kind(self, kind: Literal["activation", "weight", "bias"]) -> tuple[Quantizer, ...]:
        """The quantizers of activations, of weights or of biases."""
        return tuple(each for each in self.quantized.quantizers if each.kind == kind)

    def common_dtype(self, kind: Literal["activation", "weight"]) -> str:
        """The dtype that most activations or weights have; empty when there are none."""
        found = Counter(each.spec.dtype for each in self.of_kind(kind))
        return max(found, key=lambda dtype: (found[dtype], dtype)) if found else ""

    def mostly_symmetric(self, kind: Literal["activation", "weight"]) -> bool:
        """Whether most of them have a fixed zero point."""
        found = Counter(each.spec.symmetric for each in self.of_kind(kind))
        return found[True] > found[False]

    @property
    def mostly_per_channel(self) -> bool:
        """Whether most weights have a scale for each channel."""
        found = Counter(each.params.scale.ndim > 0 for each in self.of_kind("weight"))
        return found[True] > found[False]


def decisions_of(
    quantized: QuantizedModel, made: Made | None = None, *, origins: Mapping[str, str] | None = None
) -> Decisions:
    """Look at a quantized model.

    Args:
        quantized: The model.
        made: How it was made.
        origins: Names of nodes in the user's model, each with that of the node that took it over. Not needed where
            the tool is given another graph than the user's: names are that graph's then.
    """
    made = made or Made()
    names = _original_names({} if made.graph else origins or {})
    precisions = NodePrecisions(quantized.float_model, quantized.quantizers)
    # Between an integer node and one meant for float nothing is rounded: in the graph they look like one.
    handed = {
        node.input[at]
        for node in precisions.nodes
        if {names.get(node.name, node.name), node.name} & made.float_between
        for at in precisions.operands(node)
        if precisions.seen_at(node, at) is None
    }
    nodes = []
    for node in precisions.nodes:
        precision = precisions.effective(node)
        if precision.arithmetic == "none" or node.op_type in _SIZES:
            continue
        if handed & set(node.output):
            precision = replace(precision, output=FLOAT)
        inputs = {at: precisions.dtype(precisions.seen_at(node, at)) for at in precisions.outer_operands(node)}
        outputs = tuple(name for name in node.output if name)
        name = names.get(node.name, node.name)
        meant = bool({name, node.name} & made.float_between)
        nodes.append(NodeDecision(name, node.op_type, outputs, precision, inputs, meant))
    return Decisions(quantized, tuple(nodes), made)


def _original_names(origins: Mapping[str, str]) -> dict[str, str]:
    """Names of nodes in the user's model where they are others than in the graph that is quantized."""
    found: dict[str, str] = {}
    for original, current in origins.items():
        if current and current not in origins:
            found.setdefault(current, original)
    return found


def _widest(dtypes: str) -> int:
    return max((int(dtype[1:]) for dtype in dtypes.split("/") if dtype not in ("", FLOAT)), default=0)


_MOST_NAMED = 4
# What reads weights; constants of other operations are quantized as what they meet.
_WITH_WEIGHTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul", "LSTM", "GRU", "RNN"})


@dataclass(frozen=True, slots=True)
class Written:
    """The settings for one tool.

    Attributes:
        files: Texts by name of file.
        said: What they say, in a few words.
        missing: What the tool cannot be told, each in a few words.
        use: How the tool is given them.
    """

    files: Mapping[str, str]
    said: str
    missing: tuple[str, ...]
    use: str


@dataclass(frozen=True, slots=True)
class Dialect:
    """One tool's way of saying things.

    Attributes:
        name: As it is asked for.
        summary: What is written, in a few words.
        write: Makes the files.
    """

    name: str
    summary: str
    write: Callable[[Decisions], Written]


def names_of(nodes: Iterable[NodeDecision]) -> list[str]:
    """Names of nodes."""
    return [node.name for node in nodes]


def unsupported_of(template: str, names: Iterable[str], **gaps: str) -> list[str]:
    """What a tool cannot be told of these, if there are any.

    Args:
        template: With a gap for the first few of them.
        names: All of them.
        gaps: What goes into others.
    """
    found = list(dict.fromkeys(names))
    return [english(template, names=some(found, _MOST_NAMED, quoted=True), **gaps)] if found else []


def unsupported(decisions: Decisions, methods: Mapping[str, str], instead: str) -> list[str]:
    """What tools that calibrate by themselves cannot be told.

    Args:
        decisions: What was decided.
        methods: The calibration methods that the tool has, by our names.
        instead: What it does where it has not the one.
    """
    method = decisions.made.method
    other = english("calibration by {method}: {instead} instead", method=method, instead=instead)
    return [
        *unsupported_weights(decisions),
        *([] if not method or method in methods else [other]),
        *unsupported_scales(decisions),
        *unsupported_codes(decisions),
    ]


def unsupported_scales(decisions: Decisions) -> list[str]:
    """That scales cannot be said."""
    scaled = {each.tensor for each in (*decisions.of_kind("activation"), *decisions.of_kind("weight"))}
    if not scaled:
        return []
    return [
        english(
            "the scales and zero points of {count} {count:tensor|tensors}: it calibrates by itself",
            count=len(scaled),
        )
    ]


def unsupported_weight_scales(decisions: Decisions) -> list[str]:
    """That scales of weights cannot be said."""
    own = {each.tensor for each in _weights(decisions)}
    return (
        [english("the scales of {count} {count:weight|weights}: it finds its own", count=len(own))] if own else []
    )


def unsupported_codes(decisions: Decisions) -> list[str]:
    """That codes cannot be said which are not what rounding gives."""
    corrected = [each.tensor for each in decisions.of_kind("weight") if each.codes is not None]
    biases = [each.tensor for each in decisions.of_kind("bias") if each.codes is not None]
    return [
        *unsupported_of("weights whose rounding was corrected: {names}", corrected),
        *unsupported_of("biases that were corrected: {names}", biases),
    ]


def unsupported_weights(decisions: Decisions, allowed: Sequence[str] = ("s8",)) -> list[str]:
    """That weights of other widths cannot be said."""
    found: dict[str, list[str]] = {}
    for each in _weights(decisions):
        if each.spec.dtype not in allowed:
            found.setdefault(each.spec.dtype, []).append(each.tensor)
    return [
        text
        for dtype, tensors in found.items()
        for text in unsupported_of("{dtype} weights: {names}", tensors, dtype=dtype)
    ]


def _weights(decisions: Decisions) -> list[Quantizer]:
    """The quantizers of weights, without those of other constants."""
    kinds = {node.name: node.op_type for node in decisions.quantized.float_model.proto.graph.node}
    return [
        each
        for each in decisions.of_kind("weight")
        if any(kinds.get(consumer.node) in _WITH_WEIGHTS for consumer in each.consumers)
    ]


def decision_summary(decisions: Decisions, *, weights: bool = False) -> str:
    """How many nodes are otherwise than plain int8.

    Args:
        decisions: What was decided.
        weights: Whether the tool is told the widths of weights, too.
    """
    widths = Counter(each.spec.bits for each in _weights(decisions) if weights and each.spec.bits != COMMON_BITS)
    floats, wide = len(decisions.floats), len(decisions.wide)
    parts = [english("{count} {count:node|nodes} in float", count=floats)] if floats else []
    parts += [english("{count} {count:node|nodes} at 16 bits", count=wide)] if wide else []
    if widths and not parts:
        parts.append(english("activations at 8 bits"))
    parts += [
        english("{count} {count:weight|weights} at {bits} bits", count=count, bits=bits)
        for bits, count in sorted(widths.items())
    ]
    return listed(parts) if parts else english("all nodes at 8 bits")


def scaled(decisions: Decisions, tensors: int) -> str:
    """The same for tools that are told the scales of so many tensors."""
    said = decision_summary(decisions, weights=True)
    return english("{said}, scales of {count} tensors", said=said, count=tensors)


# By what a graph is known again by a script that runs without us.
#
# The function is written into the scripts as it stands here, so that both sides compute the same.


def graph_digest(graph: "Any", values: "Callable[[Any], Any]") -> str:
    """A hash of what a graph computes: operations and wires, and floating-point constants.

    Names of nodes and their order do not count, nor where constants are stored.

    Args:
        graph: An onnx.GraphProto.
        values: Gives the array of an onnx.TensorProto.
    """
    held = [(tensor.name, tensor) for tensor in graph.initializer]
    parts = []
    for node in graph.node:
        parts.append(repr((node.op_type, list(node.input), list(node.output))))
        held += [(node.output[0], each.t) for each in node.attribute if each.HasField("t")]
    for name, tensor in held:
        if tensor.data_type in (tensor.FLOAT, tensor.FLOAT16, tensor.DOUBLE):
            array = values(tensor)
            parts.append(repr((name, array.shape, hashlib.sha256(array.tobytes()).hexdigest())))
    return hashlib.sha256("\n".join(sorted(parts)).encode("utf-8", "surrogatepass")).hexdigest()


SETTINGS_NAME = "settings.json"
"""The file that says which files there are, and what they could not say."""


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """Settings for some tools.

    Attributes:
        written: By name of the dialect.
        graph: Name of the file with the float model they belong to; empty where it is the user's own.
    """

    written: "Mapping[str, Written]"
    graph: str = ""

    @property
    def count(self) -> str:
        """For how many tools there is something to set."""
        tools = sum(bool(each.files) for each in self.written.values())
        if not tools:
            return english("none: nothing that can be told differs from defaults")
        return english("for {tools} {tools:tool|tools}", tools=tools)

    @property
    def texts(self) -> dict[str, str]:
        """All files by name."""
        return {name: text for each in self.written.values() for name, text in each.files.items()}

    @property
    def record(self) -> dict[str, Any]:
        """The same for programs: which files there are, what they say, what they cannot say."""
        return {
            name: {
                "files": list(each.files),
                "said": each.said,
                "not_expressible": list(each.missing),
                "use": each.use,
            }
            for name, each in self.written.items()
        }

    def files(self) -> dict[str, str]:
        """All files by name, with the record of what they say."""
        from roundoff.core.document import json_text

        return {**self.texts, SETTINGS_NAME: json_text(self.record)}

    def lines(self) -> Iterator[tuple[str, str]]:
        """What to tell of them: a word, and what it is about."""
        for name, each in self.written.items():
            yield name, each.said
            if each.files:
                yield "", english("files: {files}", files=", ".join(each.files))
            yield "", english("use: {use}", use=each.use)
            for missing in each.missing:
                yield "", english("not expressible in {tools}: {missing}", tools=name, missing=missing)

    def lost(self) -> Iterator[str]:
        """What could not be said, a line for what several tools cannot be told alike."""
        tools: dict[str, list[str]] = {}
        for name, each in self.written.items():
            for missing in each.missing:
                tools.setdefault(missing, []).append(name)
        for missing, names in tools.items():
            yield english("not expressible in {tools}: {missing}", tools=", ".join(names), missing=missing)


def settings_for(
    decisions: "Decisions", dialects: "Sequence[Dialect]", *, given: "Model | None" = None
) -> ToolSettings:
    """Write decisions in some dialects.

    Args:
        decisions: What was decided.
        dialects: For which tools.
        given: The float model as the user gave it, where that is known: of names that it has not, it is said whose
            they are.
    """
    graph = decisions.made.graph
    strange = _names(decisions.quantized.float_model) - (set() if given is None else _names(given))

    def owned(text: str) -> str:
        is_strange = any(repr(name) in text for name in strange)
        return english("{text} (names in {graph})", text=text, graph=graph) if is_strange else text

    found = {each.name: each.write(decisions) for each in dialects}
    if not graph:
        return ToolSettings(found)
    told = {name: replace(each, missing=tuple(map(owned, each.missing))) for name, each in found.items()}
    return ToolSettings(told, graph)


def _names(model: "Model") -> set[str]:
    return {name for node in model.proto.graph.node for name in (node.name, *node.input, *node.output)}


def float_model_name(stem: str, given: "Model | None", quantized: "Model") -> str:
    """Name of the file for the float model that settings belong to; empty where it is the user's own.

    Args:
        stem: How names of files start.
        given: The float model as the user gave it; None where that is not known.
        quantized: The one that was quantized.
    """
    return f"{stem}_float_model.onnx" if given is None or _changed(given, quantized) else ""


def _changed(given: "Model", quantized: "Model") -> bool:
    """Whether the user's file holds another graph: something was folded, transformed, imported, or got a name."""
    import onnx

    from roundoff.core.files import is_caffe

    ours, theirs = given.proto.graph, quantized.proto.graph
    if is_caffe(given.path):
        return True
    if not given.path.is_file() or (ours is not theirs and ours.SerializeToString() != theirs.SerializeToString()):
        return True
    named = {node.name for node in onnx.load(given.path, load_external_data=False).graph.node}
    return not named.issuperset(node.name for node in theirs.node)
