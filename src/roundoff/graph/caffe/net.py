"""A Caffe net as it runs: its layers for the test phase in order, with their numbers."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from roundoff.core.files import read_small, regular_file
from roundoff.core.mapped import map_bytes
from roundoff.core.tensors import Array
from roundoff.core.text_proto import TextMessage, parse_text_proto
from roundoff.errors import BadInput
from roundoff.graph.caffe.blobs import blob_array
from roundoff.graph.caffe.tables import text_table
from roundoff.graph.caffe.upgrade import upgraded
from roundoff.graph.caffe.wire import decode

__all__ = ["Layer", "Net", "Weights", "read_net", "read_prototxt", "read_weights"]

# The format cannot hold more.
_LARGEST_FILE_BYTES = 2**31 - 1
# A net of a thousand layers has some ten thousand.
_MOST_FIELDS = 1 << 17


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer.

    Attributes:
        name: Its name.
        type: Its type, as Caffe calls it now.
        bottoms: Names of the blobs it reads.
        tops: Names of the blobs it writes.
        message: All its fields.
        line: Where it stands in the .prototxt.
        blobs: Its numbers.
    """

    name: str
    type: str
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    message: TextMessage
    line: int = 0
    blobs: tuple[Array, ...] = ()


@dataclass(frozen=True, slots=True)
class Weights:
    """What a .caffemodel holds.

    Attributes:
        blobs: The numbers of each layer that has some, by its name.
        unknown: How many fields of the file no table knows.
    """

    blobs: Mapping[str, tuple[Array, ...]]
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class Net:
    """A net for the test phase.

    Attributes:
        name: Its name.
        layers: In the order of execution.
        excluded: Layers that belong to another phase or stage.
        path: The .prototxt.
        weights_path: The .caffemodel; None when the net has no numbers.
        unknown: How many fields of the .caffemodel no table knows.
        unused: Layers of the .caffemodel with numbers that the net does not have.
        layer_names: Names of all layers.
    """

    name: str
    layers: tuple[Layer, ...]
    path: Path
    excluded: tuple[Layer, ...] = ()
    weights_path: Path | None = None
    unknown: int = 0
    unused: tuple[str, ...] = ()
    layer_names: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "layer_names", frozenset(layer.name for layer in self.layers))


def read_net(prototxt: Path, caffemodel: Path | None) -> Net:
    """Read a net and its numbers.

    Raises:
        BadInput: A file is missing, damaged, or not of its kind.
    """
    message = read_prototxt(prototxt)
    weights = Weights({}) if caffemodel is None else read_weights(caffemodel)
    every = tuple(_layers(message, prototxt, weights))
    runs = [_runs(layer, message, prototxt) for layer in every]
    names = {layer.name for layer in every}
    return Net(
        name=str(message.get("name", "")),
        layers=tuple(itertools.compress(every, runs)),
        path=prototxt,
        excluded=tuple(layer for layer, kept in zip(every, runs, strict=True) if not kept),
        weights_path=caffemodel,
        unknown=weights.unknown,
        unused=tuple(name for name in weights.blobs if name not in names),
    )


def read_prototxt(path: Path) -> TextMessage:
    """Read the text of a net; old forms are made new.

    Raises:
        BadInput: It is no such text; with the line.
    """
    raw = read_small(path, what="The .prototxt")
    if not raw.strip():
        raise BadInput(f"{path} is empty.", fix="copy the file again")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        what = f"{path} is not text: byte {error.start} belongs to no character."
        raise BadInput(what, fix="give the .prototxt first, then the .caffemodel") from error
    table = text_table("NetParameter")
    return upgraded(parse_text_proto(text, table, what=str(path), most_fields=_MOST_FIELDS), what=str(path))


def read_weights(path: Path) -> Weights:
    """Read the numbers of a net; they stay windows on the file.

    Raises:
        BadInput: The file is damaged, or a blob has other values than its shape asks for.
    """
    size = regular_file(path, what="The .caffemodel")
    if not size:
        raise BadInput(f"{path} is empty.", fix="copy the file again")
    if size > _LARGEST_FILE_BYTES:
        what = f"{path} has {size} bytes; a .caffemodel can hold at most {_LARGEST_FILE_BYTES}."
        raise BadInput(what, fix="check that it is the right file")
    data = map_bytes(path, offset=0, length=size)
    decoded = decode(data, "NetParameter", what=str(path))
    net = upgraded(decoded.message, what=str(path))
    if not net.messages("layer"):
        raise BadInput(f"{path} holds no layers.", fix="check that it is a .caffemodel and was copied whole")
    blobs = {}
    for layer in net.messages("layer"):
        name, stored = str(layer.get("name", "")), layer.messages("blobs")
        if stored:
            owner = f"{path}: blob {{}} of layer {name!r}"
            blobs[name] = tuple(blob_array(blob, owner=owner.format(place)) for place, blob in enumerate(stored))
    return Weights(blobs, decoded.unknown)


def _layers(net: TextMessage, path: Path, weights: Weights) -> Iterator[Layer]:
    for entry in net.entries:
        message = entry.value
        if entry.name != "layer" or not isinstance(message, TextMessage):
            continue
        name, kind = str(message.get("name", "")), str(message.get("type", ""))
        if not kind:
            what = f"{path}, line {entry.line}: layer {name!r} has no type."
            raise BadInput(what, fix='give it one, as in type: "Convolution"')
        own = message.messages("blobs")
        owner = f"{path}, line {entry.line}: blob {{}} of layer {name!r}"
        stored = tuple(blob_array(blob, owner=owner.format(place)) for place, blob in enumerate(own))
        yield Layer(
            name,
            kind,
            tuple(str(bottom) for bottom in message.all("bottom")),
            tuple(str(top) for top in message.all("top")),
            message,
            entry.line,
            weights.blobs.get(name, stored),
        )


def _runs(layer: Layer, net: TextMessage, path: Path) -> bool:
    """Whether a layer belongs to the test phase."""
    include, exclude = layer.message.messages("include"), layer.message.messages("exclude")
    if include and exclude:
        what = f"{path}, line {layer.line}: layer {layer.name!r} has rules to include and to exclude it."
        raise BadInput(what, fix="keep one kind of rule")
    state = net.message("state") or TextMessage()
    if include:
        return any(_meets(rule, state) for rule in include)
    return not any(_meets(rule, state) for rule in exclude)


def _meets(rule: TextMessage, state: TextMessage) -> bool:
    level = state.get("level", 0)
    lowest, highest = rule.get("min_level", level), rule.get("max_level", level)
    stages = set(state.all("stage"))
    return (
        rule.get("phase", "TEST") == "TEST"
        and isinstance(level, int)
        and isinstance(lowest, int)
        and isinstance(highest, int)
        and lowest <= level <= highest
        and stages.issuperset(rule.all("stage"))
        and stages.isdisjoint(rule.all("not_stage"))
    )
