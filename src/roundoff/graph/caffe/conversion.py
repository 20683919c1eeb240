"""The conversion of one layer: what it reads, what it says, and the nodes it becomes."""

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np

from roundoff.core.table import Table
from roundoff.core.tensors import Array
from roundoff.core.text_proto import TextMessage
from roundoff.errors import BadInput
from roundoff.graph.caffe.net import CaffeLayer, Net, same_shape
from roundoff.graph.caffe.wire import MessageSpec, message_spec
from roundoff.graph.draft import Assembly
from roundoff.messages.message import english

# The parameters of a layer by name, with Caffe's defaults where they are not given.

_Value = TypeVar("_Value", int, float, str, bool)


@dataclass(frozen=True, slots=True)
class Params:
    """One message of parameters.

    Attributes:
        name: What it is called in the layer.
        message: What was given.
        spec: The fields it may have.
        refuse: Makes the error for a parameter that must be given.
    """

    name: str
    message: TextMessage
    spec: MessageSpec
    refuse: Callable[[str], Exception]

    def has(self, name: str) -> bool:
        """Whether a parameter was given."""
        return name in self.message

    def flag(self, name: str) -> bool:
        """A parameter that is true or false."""
        return bool(self._get(name))

    def integer(self, name: str) -> int:
        """A parameter that is a whole number."""
        return self._checked(name, self._typed(name, int))

    def number(self, name: str) -> float:
        """A parameter that is a number; limits may be infinite, others not."""
        value = self._typed(name, float)
        limits = self.spec.name == "ClipParameter" and not math.isnan(value)
        return value if limits else self._finite(name, value)

    def choice(self, name: str) -> str:
        """A parameter that is one of some names."""
        return self._typed(name, str)

    def integers(self, name: str) -> tuple[int, ...]:
        """A parameter of several whole numbers."""
        values = tuple(int(value) for value in self.message.all(name) if isinstance(value, int))
        return tuple(self._checked(name, value) for value in values)

    def numbers(self, name: str) -> tuple[float, ...]:
        """A parameter of several numbers."""
        values = (float(value) for value in self.message.all(name) if isinstance(value, int | float))
        return tuple(self._finite(name, value) for value in values)

    def data(self, name: str) -> bytes:
        """A parameter of bytes."""
        value = self.message.get(name, b"")
        return value if isinstance(value, bytes) else b""

    def inner(self, name: str) -> "Params":
        """A message inside of this one; an empty one when it was not given."""
        spec = message_spec(self.spec.by_name[name].message)
        return Params(name, self.message.message(name) or TextMessage(), spec, self.refuse)

    def every(self, name: str) -> "list[Params]":
        """All messages of a repeated field."""
        spec = message_spec(self.spec.by_name[name].message)
        return [Params(name, message, spec, self.refuse) for message in self.message.messages(name)]

    def _typed(self, name: str, kind: type[_Value]) -> _Value:
        value = self._get(name)
        if value is None:
            raise self.refuse(english("needs {name!r} in {name2}", name=name, name2=self.name))
        return kind(value)

    def _finite(self, name: str, value: float) -> float:
        if not math.isfinite(value):
            raise self.refuse(
                english(
                    "has {name}: {value} in {name2}, which is not a finite number",
                    name=name,
                    value=value,
                    name2=self.name,
                )
            )
        return value

    def _checked(self, name: str, value: int) -> int:
        if value < 0 and self.spec.by_name[name].kind == "uint":
            raise self.refuse(
                english(
                    "has {name}: {value} in {name2}, which cannot be below zero",
                    name=name,
                    value=value,
                    name2=self.name,
                )
            )
        return value

    def _get(self, name: str) -> Any:
        return self.message.get(name, self.spec.by_name[name].default)


Shape: TypeAlias = tuple[int, ...]

_CORRECT = "correct that layer"
# A blob of more values than this is no activation of a net that runs on anything.
_MOST_VALUES = 1 << 36


@dataclass(frozen=True, slots=True)
class BlobValue:
    """A tensor of the new model.

    Attributes:
        name: Its name.
        shape: Its shape, at the batch size of the .prototxt.
        varying: Axes whose sizes depend on the values the net is fed.
        places_in: Of places that pooling found: the sizes of the planes they count in.
    """

    name: str
    shape: Shape
    varying: tuple[int, ...] = ()
    places_in: Shape = ()


class LayerJob:
    """One layer on its way to ONNX.

    The node that computes the layer's top is called like the layer; nodes before it ``<layer>/<step>``.

    Attributes:
        layer: The layer.
        net: The net it belongs to.
        bottoms: The tensors it reads.
        tops: What was made of its tops so far.
        batch_fixed: Why the model only works for the batch size of the .prototxt; empty when it does for any.
        notes: What the user should know.
        filled: Stored blobs that were drawn, because the net has none.

    Args:
        layer: The layer.
        bottoms: The tensors it reads.
        top_names: The tensors it writes.
        net: The net it belongs to.
        draft: The model under construction.
    """

    def __init__(
        self,
        layer: CaffeLayer,
        bottoms: Sequence[BlobValue],
        *,
        top_names: Sequence[str],
        net: Net,
        draft: Assembly,
    ) -> None:
        self.layer = layer
        self.bottoms = tuple(bottoms)
        self.tops: dict[int, BlobValue] = {}
        self.batch_fixed = ""
        self.notes: list[str] = []
        self.filled: dict[int, Array] = {}
        self._top_names = tuple(top_names)
        self.net = net
        self._layer_names = net.layer_names
        self._draft = draft

    # What the layer says.

    def params(self, name: str) -> Params:
        """A message of the layer's parameters, e.g. ``pooling_param``."""
        spec = message_spec(message_spec("LayerParameter").by_name[name].message)
        given = self.layer.message.message(name) or TextMessage()
        return Params(name, given, spec, self.refuse)

    def given(self, name: str) -> bool:
        """Whether the layer has such a message."""
        return name in self.layer.message

    def check_counts(self, bottoms: Sequence[int], tops: Sequence[int] = (1,)) -> None:
        """Refuse other numbers of bottoms and tops than these."""
        for counted, allowed, word in (
            (len(self.bottoms), bottoms, "bottom"),
            (len(self._top_names), tops, "top"),
        ):
            if counted not in allowed:
                wanted = " or ".join(map(str, allowed))
                raise self.refuse(
                    english("has {counted} {word}s; it takes {wanted}", counted=counted, word=word, wanted=wanted)
                )

    def top_count(self) -> int:
        """How many tops the layer has."""
        return len(self._top_names)

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front; negative ones count from the end."""
        if not -rank <= axis < rank:
            raise self.refuse(english("names axis {axis} of a blob with {rank} axes", axis=axis, rank=rank))
        return axis % rank

    def blob(self, index: int, shape: Shape) -> Array:
        """One of the layer's stored blobs, as float32 in the given shape.

        Raises:
            BadInput: It is not there, or of another shape.
        """
        if self.net.fills and index >= len(self.layer.blobs):
            self.filled[index] = _drawn(self.layer, index, shape)
            return self.filled[index]
        stored = self.raw_blob(index)
        if self.layer.shares_freely(index) and stored.size == math.prod(shape):
            stored = stored.reshape(shape)
        wanted = "x".join(map(str, shape)) or english("of a single number")
        if not same_shape(stored.shape, shape):
            found = "x".join(map(str, stored.shape)) or english("of a single number")
            source = self.net.weights_path or self.net.path
            raise BadInput(
                english(
                    "{who} needs blob {index} in the shape {wanted}, but in {source} it is {found}.",
                    who=self._who(),
                    index=index,
                    wanted=wanted,
                    source=source,
                    found=found,
                ),
                fix=english("give the .caffemodel that belongs to this .prototxt")
                if not self.net.shapes
                else english("leave out --input-shape: this layer takes one size of input only"),
            )
        return stored.reshape(shape).astype(np.float32, copy=False)

    def raw_blob(self, index: int) -> Array:
        """One of the layer's stored blobs as it is."""
        blobs = self.layer.blobs
        if index >= len(blobs):
            source = (
                english("no .caffemodel was given")
                if self.net.weights_path is None
                else (
                    english(
                        "{weights_path} has {count} for it",
                        weights_path=self.net.weights_path,
                        count=len(blobs) or english("none"),
                    )
                )
            )
            raise BadInput(
                english("{who} needs blob {index}, but {source}.", who=self._who(), index=index, source=source),
                fix=english(
                    "name both files, as in net.prototxt,net.caffemodel; or try the net without its numbers: "
                    "roundoff convert --random-weights"
                ),
            )
        return blobs[index]

    def feeds_integers(self) -> bool:
        """Whether the layers that read this one's top have integer weights; all must, or none."""
        readers = [other for other in self.net.layers if set(other.bottoms) & set(self.layer.tops)]
        whole = [_has_integers(reader) for reader in readers if reader.name != self.layer.name]
        if any(whole) and not all(whole):
            raise self.refuse(
                english("feeds layers with integer weights and others, which take different numbers")
            )
        return any(whole)

    def fed_by_integers(self) -> bool:
        """Whether the layer that wrote this one's bottom has integer weights."""
        writers = [other for other in self.net.layers if set(other.tops) & set(self.layer.bottoms)]
        return any(_has_integers(writer) for writer in writers)

    def refuse(self, text: str, fix: str = _CORRECT) -> BadInput:
        """The error for something the layer says: "Layer 'x' (Pooling, net.prototxt line 3) <text>."."""
        return BadInput(english("{who} {text}.", who=self._who(), text=text), fix=fix)

    def _who(self) -> str:
        place = english(", line {line}", line=self.layer.line) if self.layer.line else ""
        return english(
            "Layer {name!r} ({type}; {path}{place})",
            name=self.layer.name,
            type=self.layer.type,
            path=self.net.path,
            place=place,
        )

    # What becomes of it.

    def fix_batch(self, why: str) -> None:
        """The layer mixes samples, or names their number: the model works for one batch size only."""
        self.batch_fixed = self.batch_fixed or why

    def constant(self, values: Array, step: str) -> str:
        """Add a constant called ``<layer>/<step>``; gives its name."""
        return self._draft.add_constant(values, f"{self.layer.name}/{step}")

    def floats(self, values: Any, step: str) -> str:
        """Add a constant of float32 values."""
        with np.errstate(over="ignore"):  # what float32 cannot hold is infinite, as in Caffe
            return self.constant(np.asarray(values, np.float32), step)

    def integers(self, values: Any, step: str) -> str:
        """Add a constant of int64 values, such as a shape or axes."""
        try:
            return self.constant(np.asarray(values, np.int64), step)
        except OverflowError as error:
            raise self.refuse(english("has sizes beyond 64 bits")) from error

    def step(self, op_type: str, inputs: Sequence[str], step: str, **attributes: Any) -> str:
        """Add a node before the one that computes the top; gives the name of its output."""
        return self.steps(op_type, inputs, (step,), **attributes)[0]

    def steps(self, op_type: str, inputs: Sequence[str], steps: Sequence[str], **attributes: Any) -> list[str]:
        """Add such a node with several outputs; an empty step leaves one out."""
        names = [f"{self.layer.name}/{step}" if step else "" for step in steps]
        outputs = [self._draft.free_tensor(name) if name else "" for name in names]
        called = next(name for name in names if name)
        while called in self._layer_names:
            called += "_"
        self._draft.add_node(op_type, inputs, outputs, name=called, attributes=attributes)
        return outputs

    def top(self, op_type: str, inputs: Sequence[str], shape: Shape, *, index: int = 0, **attributes: Any) -> None:
        """Add the node that computes a top.

        Args:
            op_type: Its operation.
            inputs: Names of its inputs.
            shape: The shape of the top.
            index: Which top it is.
            attributes: The node's attributes.
        """
        name = self.layer.name if not self.tops else f"{self.layer.name}/{index}"
        self._draft.add_node(op_type, inputs, self._announce(index, shape), name=name, attributes=attributes)

    def tops_of(self, op_type: str, inputs: Sequence[str], shapes: Sequence[Shape], **attributes: Any) -> None:
        """Add the one node that computes all tops."""
        outputs = [self._announce(index, shape) for index, shape in enumerate(shapes)]
        self._draft.add_node(op_type, inputs, outputs, name=self.layer.name, attributes=attributes)

    def varies(self, *axes: int, index: int = 0) -> None:
        """The size of a top along these axes depends on the values that the net is fed."""
        self.tops[index] = replace(self.tops[index], varying=axes)

    def counts_in(self, sizes: Shape, *, index: int) -> None:
        """The values of a top are places in planes of these sizes."""
        self.tops[index] = replace(self.tops[index], places_in=sizes)

    def _announce(self, index: int, shape: Shape) -> str:
        if any(size < 1 for size in shape) or math.prod(shape) > _MOST_VALUES:
            shown = "x".join(map(str, shape))
            raise self.refuse(
                english("would compute a blob of the shape {shown}", shown=shown),
                fix=english("check its sizes and its input's"),
            )
        name = self._top_names[index]
        # What is computed for each of a number of parts is there for as many as there are.
        many = any(0 in bottom.varying and bottom.shape[:1] == shape[:1] for bottom in self.bottoms)
        self.tops[index] = BlobValue(name, shape, (0,) if many else ())
        return name


# What stands for the numbers of a net that has none: by layer, one value for each stored blob. Numbers along one
# axis are spread a little around it, those along several are drawn so that values neither grow nor vanish.
_AROUND = {
    "BatchNorm": (0.0, 1.0, 1.0, 1.0, 0.0), "BN": (1.0, 0.0, 0.0, 1.0), "Scale": (1.0, 0.0), "PReLU": (0.25,),
    "Normalize": (1.0,),
}  # fmt: skip
_SPREAD = 0.1


def _drawn(layer: CaffeLayer, index: int, shape: Shape) -> Array:
    """Numbers in place of stored ones, the same in every run."""
    generator = np.random.default_rng([zlib.crc32((layer.shared(index) or layer.name).encode()), index])
    if _filler(layer, index) == "bilinear":
        return _bilinear(shape)
    if len(shape) > 1 and layer.type not in _AROUND:
        fan_in = math.prod(shape[1:])
        return generator.normal(0, math.sqrt(2 / fan_in), shape).astype(np.float32)
    middles = _AROUND.get(layer.type, ())
    middle = middles[index] if index < len(middles) else 0.0
    if not shape:
        return np.array(middle, np.float32)
    drawn = middle + _SPREAD * generator.uniform(-1, 1, shape)
    return np.asarray(drawn, np.float32)


def _filler(layer: CaffeLayer, index: int) -> str:
    params = layer.message.message("convolution_param") or TextMessage()
    filler = params.message("weight_filler" if index == 0 else "bias_filler") or TextMessage()
    return str(filler.get("type", ""))


def _bilinear(shape: Shape) -> Array:
    """Caffe's filler for enlarging planes: the same pyramid for each pair of channels."""
    size = shape[-1]
    factor = math.ceil(size / 2)
    middle = (2 * factor - 1 - factor % 2) / (2.0 * factor)
    side = 1 - np.abs(np.arange(size) / factor - middle)
    return np.broadcast_to(np.outer(side, side), shape).astype(np.float32)


def _has_integers(layer: CaffeLayer) -> bool:
    return bool(layer.blobs) and layer.blobs[0].dtype == np.int8


Converter: TypeAlias = Callable[[LayerJob], None]
"""Adds the nodes of one layer through its job."""


# Which layers can be converted, and by what; users add their own.


def _declare_layers() -> None:
    import roundoff.graph.caffe.layers  # noqa: F401 - declares the converters


_CONVERTERS: Table[Converter] = Table("layer type", load=_declare_layers)
_OWN: Table[Converter] = Table("layer type")

_NOT_RUN = frozenset({"Accuracy", "DetectionEvaluate", "HDF5Output", "IFMR", "SearchN", "SegAccuracy", "Silence"})
_LOSS = "Loss"


def serves_training(layer: CaffeLayer) -> bool:
    """Whether a layer serves training, scoring or calibration: a deployed net does without it.

    Losses are known by their names, of which each fork has its own; and what writes no blob adds nothing to a net.
    """
    if converter_of(layer.type) is None:
        return layer.type in _NOT_RUN or _LOSS in layer.type or not layer.tops
    return layer.type == "Python" and _LOSS in python_class(layer) and converter_of(python_class(layer)) is None


def python_class(layer: CaffeLayer) -> str:
    """The class that a layer in Python runs."""
    return str((layer.message.message("python_param") or TextMessage()).get("layer", ""))


def converts(*types: str) -> Callable[[Converter], Converter]:
    """Declare a function that converts layers of these types."""
    return _CONVERTERS.register(*types)


def register_layer(type_name: str, convert: Converter) -> None:
    """Teach roundoff a layer type of one's own, or replace one it knows.

    Args:
        type_name: The type, as the .prototxt has it.
        convert: Adds the nodes of such a layer through its `LayerJob`; ``job.layer.message`` has all its fields.
    """
    _OWN[type_name] = convert


def converter_of(type_name: str) -> Converter | None:
    """What converts layers of a type; None when nothing does."""
    return _OWN.get(type_name) or _CONVERTERS.get(type_name)


def layer_types() -> tuple[str, ...]:
    """All layer types that can be converted."""
    return tuple(sorted({*_CONVERTERS, *_OWN}))
