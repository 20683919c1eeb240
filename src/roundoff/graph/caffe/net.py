"""A Caffe net as it runs: its layers for the test phase in order, with their numbers."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from roundoff.core.array_files import MAX_AXES, map_bytes
from roundoff.core.files import read_small, regular_file
from roundoff.core.tensors import Array, DType
from roundoff.core.text_proto import TextEntry, TextMessage, TextValue, parse_text_proto
from roundoff.errors import BadInput, nearest, reason
from roundoff.graph.caffe.wire import decode, layer_types_v1, text_table
from roundoff.messages.message import english

_COPY_AGAIN = english("copy the .caffemodel again, or save it again with its framework")
_LEGACY = ("num", "channels", "height", "width")
_VOLUME = ("num", "channels", "length", "height", "width")
_STORED = {"data": np.float32, "double_data": np.float64, "int32_data": np.int32, "uint64_data": np.uint64}
_RAW: Mapping[str, DType] = {"FLOAT": np.dtype("<f4"), "FLOAT16": np.dtype("<f2"), "DOUBLE": np.dtype("<f8")}


def blob_array(blob: TextMessage, *, owner: str) -> Array:
    """The values of a stored blob in their shape: float32, or the integers of a deployed net.

    Args:
        blob: A BlobProto.
        owner: Whose blob it is, as the start of a sentence.

    Raises:
        BadInput: It holds no values, or other ones than its shape asks for.
    """
    values, shape = _values(blob, owner=owner), _shape(blob)
    if len(shape) > MAX_AXES or any(size < 0 for size in shape) or math.prod(shape) != values.size:
        stored = (
            english("{size} values are stored", size=values.size)
            if values.size
            else english("no values are stored")
        )
        what = english(
            "{owner} has the shape {shape}, but {stored}.",
            owner=owner,
            shape="x".join(map(str, shape)) or english("of a single number"),
            stored=stored,
        )
        raise BadInput(what, fix=_COPY_AGAIN)
    return values.reshape(shape)


def _values(blob: TextMessage, *, owner: str) -> Array:
    kinds = [name for name in (*_STORED, "int8_data", "raw_data") if name in blob]
    if len(kinds) > 1:
        what = english("{owner} holds values of several types: {kinds}.", owner=owner, kinds=", ".join(kinds))
        raise BadInput(what, fix=english("save the .caffemodel again"))
    if not kinds:
        return np.empty(0, np.float32)
    kind = kinds[0]
    if kind == "int8_data":
        raw = blob.get(kind)
        return np.frombuffer(raw if isinstance(raw, bytes) else b"", np.int8)
    if kind == "raw_data":
        return _raw(blob, owner=owner)
    dtype = _STORED[kind]
    parts = [np.asarray(part).reshape(-1) for part in blob.all(kind)]
    whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
    # Caffe computes in float32 whatever the file holds.
    return whole.astype(np.float32 if kind == "double_data" else dtype, copy=False)


def _raw(blob: TextMessage, *, owner: str) -> Array:
    """Values in one piece of bytes."""
    dtype = _RAW.get(str(blob.get("raw_data_type")))
    raw = blob.get("raw_data")
    if dtype is None or not isinstance(raw, bytes) or len(raw) % dtype.itemsize:
        what = english("{owner} has raw values of a type or length that cannot be read.", owner=owner)
        raise BadInput(what, fix=english("save the .caffemodel again with float values"))
    return np.frombuffer(raw, dtype).astype(np.float32, copy=False)


def _shape(blob: TextMessage) -> tuple[int, ...]:
    """The shape as it is given now, or by four numbers as it was before; C3D has five."""
    shape = blob.message("shape")
    if shape is None and any(name in blob for name in _VOLUME):
        names = _VOLUME if "length" in blob else _LEGACY
        return tuple(_whole(blob.get(name, 0)) for name in names)
    return () if shape is None else tuple(_whole(size) for size in shape.all("dim"))


def _whole(value: "TextValue | None") -> int:
    return value if isinstance(value, int) else -1


def same_shape(stored: Sequence[int], wanted: Sequence[int]) -> bool:
    """Whether a stored blob has a shape: before shapes had any number of axes, ones stood in front."""
    return _bare(stored) == _bare(wanted)


def _bare(shape: Sequence[int]) -> tuple[int, ...]:
    ones = next((place for place, size in enumerate(shape) if size != 1), len(shape))
    return tuple(shape[ones:])


def blob_message(values: Array) -> TextMessage:
    """A blob to be stored: float32, or int8, int32 and uint64 as the vendor's deployed nets have them."""
    shape = TextEntry("shape", TextMessage(tuple(TextEntry("dim", int(size)) for size in values.shape)))
    match values.dtype.name:
        case "int8":
            return TextMessage((shape, TextEntry("int8_data", values.tobytes())))
        case "int32":
            return TextMessage((shape, TextEntry("int32_data", values.ravel())))
        case "uint64":
            return TextMessage((shape, TextEntry("uint64_data", values.ravel())))
        case _:
            return TextMessage((shape, TextEntry("data", np.ascontiguousarray(values, np.float32).ravel())))


# Old forms of a net made new: layers of the first two formats, and inputs that were fields of the net.

# Types of the oldest format, and the message that holds a type's parameters now.
_OLDEST_TYPES = {
    "accuracy": "Accuracy", "bnll": "BNLL", "concat": "Concat", "conv": "Convolution", "data": "Data",
    "dropout": "Dropout", "euclidean_loss": "EuclideanLoss", "flatten": "Flatten", "hdf5_data": "HDF5Data",
    "hdf5_output": "HDF5Output", "im2col": "Im2col", "images": "ImageData", "infogain_loss": "InfogainLoss",
    "innerproduct": "InnerProduct", "lrn": "LRN", "multinomial_logistic_loss": "MultinomialLogisticLoss",
    "pool": "Pooling", "relu": "ReLU", "sigmoid": "Sigmoid", "softmax": "Softmax",
    "softmax_loss": "SoftmaxWithLoss", "split": "Split", "tanh": "TanH", "window_data": "WindowData",
    "padding": "Padding",
}  # fmt: skip
_PARAMETERS = {
    "conv": "convolution_param", "pool": "pooling_param", "innerproduct": "inner_product_param",
    "lrn": "lrn_param", "dropout": "dropout_param", "concat": "concat_param", "data": "data_param",
    "images": "image_data_param", "hdf5_data": "hdf5_data_param",
}  # fmt: skip
_RENAMED = {"biasterm": "bias_term", "kernelsize": "kernel_size", "batchsize": "batch_size"}
# Which fields of the oldest format steer which types; the others steer reading of data, which is left to the user.
_STEERS = {
    "num_output": ("conv", "innerproduct"), "biasterm": ("conv", "innerproduct"), "pad": ("conv", "pool"),
    "kernelsize": ("conv", "pool"), "group": ("conv",), "stride": ("conv", "pool"), "pool": ("pool",),
    "dropout_ratio": ("dropout",), "local_size": ("lrn",), "alpha": ("lrn",), "beta": ("lrn",), "k": ("lrn",),
    "concat_dim": ("concat",), "batchsize": ("data", "images", "hdf5_data"), "weight_filler": (),
    "bias_filler": (),
}  # fmt: skip
_AXES = ("num", "channels", "height", "width")


def upgraded(net: TextMessage, *, what: str) -> TextMessage:
    """A net with all layers in the newest form, the inputs among them.

    Args:
        net: The net, as text or from a binary file.
        what: What it is called in messages.

    Raises:
        BadInput: Old and new forms are mixed, or an old one says what no Caffe understands.
    """
    old, new = net.messages("layers"), net.messages("layer")
    if old and new:
        mixed = english("{what} has layers in the old form ('layers') and in the new one ('layer').", what=what)
        raise BadInput(mixed, fix=english("write all of them as 'layer'"))
    kept = [entry for entry in net.entries if entry.name not in ("layers", "input", "input_dim", "input_shape")]
    layers = [entry for entry in net.entries if entry.name == "layers"]
    newer = [_from_v1(entry, what=what) for entry in _without_padding(layers, what=what)]
    inputs = _input_layer(net, what=what)
    return TextMessage((*inputs, *newer, *kept))


def _input_layer(net: TextMessage, *, what: str) -> Iterator[TextEntry]:
    names = net.all("input")
    if not names:
        return
    shapes = [list(shape.all("dim")) for shape in net.messages("input_shape")]
    flat = net.all("input_dim")
    if flat and not shapes:
        shapes = [list(flat[start : start + len(_AXES)]) for start in range(0, len(flat), len(_AXES))]
    if (shapes and len(shapes) != len(names)) or any(not shape for shape in shapes) or len(flat) % len(_AXES):
        said = (
            english("{count} shapes", count=len(shapes))
            if not flat
            else english("{count} values of input_dim", count=len(flat))
        )
        problem = english(
            "{what}, line {line}: the net has {count} inputs, but {said}.",
            what=what,
            line=net.line("input"),
            count=len(names),
            said=said,
        )
        raise BadInput(problem, fix=english("give one input_shape, or four values of input_dim, for each input"))
    dims = [TextMessage(tuple(TextEntry("dim", size) for size in shape)) for shape in shapes]
    parameters = TextMessage(tuple(TextEntry("shape", shape) for shape in dims))
    tops = tuple(TextEntry("top", name) for name in names)
    # The field `input` tells this layer from one that the file has.
    named = tuple(TextEntry("input", name) for name in names)
    fields = (
        TextEntry("name", "input"),
        TextEntry("type", "Input"),
        *tops,
        TextEntry("input_param", parameters),
        *named,
    )
    yield TextEntry("layer", TextMessage(fields), net.line("input"))


def _from_v1(entry: TextEntry, *, what: str) -> TextEntry:
    old = entry.value
    assert isinstance(old, TextMessage)  # noqa: S101 - the table says so
    inner = old.message("layer")
    if inner is not None:
        return TextEntry("layer", _from_v0(old, inner, line=entry.line, what=what), entry.line)
    kind = old.get("type", "NONE")
    types = layer_types_v1()
    # A number that a fork gave a type of its own says nothing; the .prototxt says which it is, by its name.
    now = types[str(kind)][1] if kind in types else ""
    special = ("type", "param", "blob_share_mode", "blobs_lr", "weight_decay")
    fields = [part for part in old.entries if part.name not in special]
    shared = (TextEntry("param", TextMessage((TextEntry("name", name),))) for name in old.all("param"))
    kinds = TextEntry("type", now, old.line("type"))
    return TextEntry("layer", TextMessage((*fields, kinds, *shared)), entry.line)


def _from_v0(old: TextMessage, inner: TextMessage, *, line: int, what: str) -> TextMessage:
    kind = str(inner.get("type", ""))
    if kind not in _OLDEST_TYPES:
        problem = english(
            "{what}, line {line}: {kind!r} is no layer type of the oldest format.", what=what, line=line, kind=kind
        )
        raise BadInput(problem, fix=nearest(kind, _OLDEST_TYPES))
    parameters: list[TextEntry] = []
    for part in inner.entries:
        steers = _STEERS.get(part.name)
        if steers is not None and kind in steers:
            parameters.append(TextEntry(_RENAMED.get(part.name, part.name), part.value, part.line))
        elif steers and kind != "padding":
            raise BadInput(
                english(
                    "{what}, line {line}: {name!r} means nothing in a layer of type {kind!r}.",
                    what=what,
                    line=part.line,
                    name=part.name,
                    kind=kind,
                ),
                fix=english("leave it out"),
            )
    if kind in ("data", "images") and "cropsize" in inner:
        parameters.append(TextEntry("crop_size", _given(inner, "cropsize")))
    fields = [
        TextEntry("name", inner.get("name") or ""),
        TextEntry("type", _OLDEST_TYPES[kind], inner.line("type")),
    ]
    fields += [part for part in old.entries if part.name in ("bottom", "top")]
    fields += [part for part in inner.entries if part.name == "blobs"]
    if parameters:
        fields.append(TextEntry(_PARAMETERS[kind], TextMessage(tuple(parameters)), line))
    return TextMessage(tuple(fields))


def _given(message: TextMessage, name: str) -> TextValue:
    value = message.get(name)
    assert value is not None  # noqa: S101 - asked for only where it is there
    return value


def _without_padding(layers: list[TextEntry], *, what: str) -> list[TextEntry]:
    """The oldest nets have layers that only pad; the layers behind them pad themselves instead."""
    padded: dict[str, tuple[str, TextValue]] = {}
    kept = []
    for entry in layers:
        assert isinstance(entry.value, TextMessage)  # noqa: S101 - the table says so
        inner = entry.value.message("layer")
        if inner is not None and inner.get("type") == "padding":
            tops, bottoms = entry.value.all("top"), entry.value.all("bottom")
            if len(tops) != 1 or len(bottoms) != 1:
                problem = english(
                    "{what}, line {line}: a padding layer has one bottom and one top.", what=what, line=entry.line
                )
                raise BadInput(problem, fix=english("correct that layer"))
            padded[str(tops[0])] = str(bottoms[0]), inner.get("pad") or 0
            continue
        kept.append(_padding_itself(entry, padded, what=what) if padded and inner is not None else entry)
    return kept


def _padding_itself(entry: TextEntry, padded: Mapping[str, tuple[str, TextValue]], *, what: str) -> TextEntry:
    message = entry.value
    assert isinstance(message, TextMessage)  # noqa: S101 - the table says so
    inner = message.message("layer")
    used = [bottom for bottom in message.all("bottom") if bottom in padded]
    if not used or inner is None:
        return entry
    if inner.get("type") not in ("conv", "pool") or len(message.all("bottom")) != 1:
        problem = english(
            "{what}, line {line}: only convolution and pooling can follow a padding layer.",
            what=what,
            line=entry.line,
        )
        raise BadInput(problem, fix=english("correct that layer"))
    source, pad = padded[str(used[0])]
    own = tuple(part for part in inner.entries if part.name != "pad")
    parts = [TextEntry("layer", TextMessage((*own, TextEntry("pad", pad)))), TextEntry("bottom", source)]
    parts += [part for part in message.entries if part.name not in ("layer", "bottom")]
    return TextEntry(entry.name, TextMessage(tuple(parts)), entry.line)


_BLOBS = tuple(map(str, range(16)))
_HDF5 = b"\x89HDF\r\n\x1a\n"
# The format cannot hold more.
_LARGEST_FILE_BYTES = 2**31 - 1
# A net of a thousand layers has some ten thousand.
_MOST_FIELDS = 1 << 17


@dataclass(frozen=True, slots=True)
class CaffeLayer:
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

    def shared(self, index: int) -> str:
        """The name under which layers share one of their stored blobs; empty when it is this layer's own."""
        params = self.message.messages("param")
        return str(params[index].get("name", "")) if index < len(params) else ""

    def shares_freely(self, index: int) -> bool:
        """Whether a blob of another shape, but as many values, may be shared."""
        params = self.message.messages("param")
        return index < len(params) and params[index].get("share_mode") == "PERMISSIVE"


@dataclass(frozen=True, slots=True)
class CaffeWeights:
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
        shapes: Shapes of inputs that were given instead of those in the .prototxt.
        fills: Whether numbers are drawn where there are none.
        layer_names: Names of all layers.
    """

    name: str
    layers: tuple[CaffeLayer, ...]
    path: Path
    excluded: tuple[CaffeLayer, ...] = ()
    weights_path: Path | None = None
    unknown: int = 0
    unused: tuple[str, ...] = ()
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    fills: bool = False
    layer_names: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "layer_names", frozenset(layer.name for layer in self.layers))


def read_net(
    prototxt: Path,
    caffemodel: Path | None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    fill: bool = False,
) -> Net:
    """Read a net and its numbers.

    Args:
        prototxt: The net.
        caffemodel: Its numbers; None for a net that has none.
        shapes: Other shapes of inputs than the .prototxt has, by blob.
        fill: Draw the numbers that are missing.

    Raises:
        BadInput: A file is missing, damaged, or not of its kind.
    """
    message = read_prototxt(prototxt)
    weights = CaffeWeights({}) if caffemodel is None else read_weights(caffemodel)
    every = _sharing(tuple(_layers(message, prototxt, weights)))
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
        shapes={name: tuple(shape) for name, shape in (shapes or {}).items()},
        fills=fill,
    )


def _sharing(layers: tuple[CaffeLayer, ...]) -> tuple[CaffeLayer, ...]:
    """Layers that name a blob alike have the same numbers: those that were stored last, as Caffe loads them."""
    stored = {
        name: blob
        for layer in layers
        for index, blob in enumerate(layer.blobs)
        if (name := layer.shared(index)) and blob.size
    }
    if not stored:
        return layers
    return tuple(replace(layer, blobs=_shared_blobs(layer, stored)) for layer in layers)


def _shared_blobs(layer: CaffeLayer, stored: Mapping[str, Array]) -> tuple[Array, ...]:
    count = max(len(layer.blobs), len(layer.message.messages("param")))
    every = []
    for index in range(count):
        own = layer.blobs[index] if index < len(layer.blobs) else None
        blob = stored.get(layer.shared(index), own)
        if blob is None:
            break
        every.append(blob)
    return tuple(every)


def read_prototxt(path: Path) -> TextMessage:
    """Read the text of a net; old forms are made new.

    Raises:
        BadInput: It is no such text; with the line.
    """
    raw = read_small(path, what=english("The .prototxt"))
    if not raw.strip():
        raise BadInput(english("{path} is empty.", path=path), fix=english("copy the file again"))
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        what = english("{path} is not text: byte {start} belongs to no character.", path=path, start=error.start)
        raise BadInput(what, fix=english("give the .prototxt first, then the .caffemodel")) from error
    table = text_table("NetParameter")
    return upgraded(parse_text_proto(text, table, what=str(path), most_fields=_MOST_FIELDS), what=str(path))


def read_weights(path: Path) -> CaffeWeights:
    """Read the numbers of a net; they stay windows on the file, unless it is one of HDF5.

    Raises:
        BadInput: The file is damaged, or a blob has other values than its shape asks for.
    """
    size = regular_file(path, what=english("The .caffemodel"))
    if not size:
        raise BadInput(english("{path} is empty.", path=path), fix=english("copy the file again"))
    with path.open("rb") as file:
        if file.read(len(_HDF5)) == _HDF5:
            return CaffeWeights(_read_hdf5(path))
    if size > _LARGEST_FILE_BYTES:
        what = english(
            "{path} has {size} bytes; a .caffemodel can hold at most {largest_file_bytes}.",
            path=path,
            size=size,
            largest_file_bytes=_LARGEST_FILE_BYTES,
        )
        raise BadInput(what, fix=english("check that it is the right file"))
    data = map_bytes(path, offset=0, length=size)
    decoded = decode(data, "NetParameter", what=str(path))
    net = upgraded(decoded.message, what=str(path))
    if not net.messages("layer"):
        raise BadInput(
            english("{path} holds no layers.", path=path),
            fix=english("check that it is a .caffemodel and was copied whole"),
        )
    blobs = {}
    for layer in net.messages("layer"):
        name, stored = str(layer.get("name", "")), layer.messages("blobs")
        if stored:
            owner = f"{path}: blob {{}} of layer {name!r}"
            blobs[name] = tuple(blob_array(blob, owner=owner.format(place)) for place, blob in enumerate(stored))
    return CaffeWeights(blobs, decoded.unknown)


def _read_hdf5(path: Path) -> dict[str, tuple[Array, ...]]:
    """The numbers of a .caffemodel.h5: data/<layer>/<number of the blob>."""
    try:
        import h5py
    except ImportError as error:
        what = english(
            "{purpose} needs the package {package!r}, which is not installed.",
            purpose=english("Reading {path}", path=path),
            package="h5py",
        )
        raise BadInput(what, fix="pip install h5py") from error
    try:
        with h5py.File(path, "r") as file:
            blobs = _hdf5_blobs(h5py, file)
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        what = english("{path} cannot be read: {reason}.", path=path, reason=reason(error))
        raise BadInput(what, fix=_COPY_AGAIN) from error
    if not blobs:
        what = english("{path} holds no numbers of layers (data/<layer>/0).", path=path)
        raise BadInput(what, fix=english("check that it is a .caffemodel and was copied whole"))
    return blobs


def _hdf5_blobs(h5py: Any, file: Any) -> dict[str, tuple[Array, ...]]:
    """Blobs by layer, whose name may have slashes; nothing outside of the file is followed."""
    stored: dict[str, dict[int, Array]] = {}

    def keep(name: str, member: Any) -> None:
        layer, _, number = name.rpartition("/")
        if number not in _BLOBS or not isinstance(member, h5py.Dataset) or member.dtype.kind != "f":
            return
        if member.external is None and not member.is_virtual:
            stored.setdefault(layer, {})[int(number)] = np.asarray(member[()], np.float32)

    if isinstance(file.get("data", getlink=True), h5py.HardLink) and isinstance(file["data"], h5py.Group):
        file["data"].visititems(keep)
    # A blob that another layer shares is stored there alone.
    none = np.empty(0, np.float32)
    return {
        layer: tuple(blobs.get(number, none) for number in range(max(blobs) + 1))
        for layer, blobs in stored.items()
    }


def _layers(net: TextMessage, path: Path, weights: CaffeWeights) -> Iterator[CaffeLayer]:
    for entry in net.entries:
        message = entry.value
        if entry.name != "layer" or not isinstance(message, TextMessage):
            continue
        name, kind = str(message.get("name", "")), str(message.get("type", ""))
        if not kind:
            what = english(
                "{path}, line {line}: layer {name!r} has no type.", path=path, line=entry.line, name=name
            )
            raise BadInput(what, fix=english('give it one, as in type: "Convolution"'))
        own = message.messages("blobs")
        owner = f"{path}, line {entry.line}: blob {{}} of layer {name!r}"
        stored = tuple(blob_array(blob, owner=owner.format(place)) for place, blob in enumerate(own))
        yield CaffeLayer(
            name,
            kind,
            tuple(str(bottom) for bottom in message.all("bottom")),
            tuple(str(top) for top in message.all("top")),
            message,
            entry.line,
            weights.blobs.get(name, stored),
        )


def _runs(layer: CaffeLayer, net: TextMessage, path: Path) -> bool:
    """Whether a layer belongs to the test phase."""
    include, exclude = layer.message.messages("include"), layer.message.messages("exclude")
    if include and exclude:
        what = english(
            "{path}, line {line}: layer {name!r} has rules to include and to exclude it.",
            path=path,
            line=layer.line,
            name=layer.name,
        )
        raise BadInput(what, fix=english("keep one kind of rule"))
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
