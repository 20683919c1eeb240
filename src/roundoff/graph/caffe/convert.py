"""A Caffe net as an ONNX model: layers become nodes of their names, blobs tensors of their names."""

import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from roundoff.core.files import caffe_pair, is_caffe, pair_path
from roundoff.core.tensors import Array
from roundoff.core.text_proto import TextMessage
from roundoff.core.untrusted import parse_json
from roundoff.errors import BadInput, nearest
from roundoff.graph.caffe.conversion import (
    BlobValue,
    LayerJob,
    Params,
    Shape,
    converter_of,
    layer_types,
    serves_training,
)
from roundoff.graph.caffe.net import CaffeLayer, Net, read_net
from roundoff.graph.caffe.wire import message_spec
from roundoff.graph.draft import Assembly
from roundoff.graph.load import DRAWN_KEY, Model, checked_model, drawn_text
from roundoff.graph.nodes import make_model
from roundoff.messages.message import as_message, english, joined
from roundoff.messages.numbers import first_of

DATA_TYPES = frozenset({
    "AnnotatedData", "Data", "DummyData", "HDF5Data", "ImageData", "Input", "MemoryData", "WindowData",
})  # fmt: skip


def brings_data(layer: CaffeLayer) -> bool:
    """Whether a layer feeds the net: one of Caffe's, or of a fork or in Python that reads nothing."""
    unknown = layer.type == "Python" or converter_of(layer.type) is None
    return layer.type in DATA_TYPES or (unknown and not layer.bottoms)


_SAY = (
    'replace it by: layer {{ name: "{name}" type: "Input" top: "{top}" '
    "input_param {{ shape {{ dim: 1 dim: 3 dim: 224 dim: 224 }} }} }}"
)
_COLOURS = 3
_VOLUME_TYPES = ("Convolution3D", "NdConvolution")


def input_shapes(layer: CaffeLayer, net: Net, *, needed: Sequence[int]) -> dict[int, Shape]:
    """Shapes of the tops of a layer that brings data.

    Args:
        layer: The layer.
        net: The net it belongs to.
        needed: Which of its tops are used.

    Raises:
        BadInput: The .prototxt does not say them.
    """
    given = {index: net.shapes[top] for index, top in enumerate(layer.tops) if top in net.shapes}
    if set(needed) <= given.keys():
        shapes = {}
    elif layer.type == "Input":
        shapes = _spread([_dims(shape) for shape in _params(layer, "input_param", net).every("shape")], layer)
    elif layer.type == "DummyData":
        shapes = _spread(_dummy(_params(layer, "dummy_data_param", net)), layer)
    else:
        image = _image_shape(layer, net)
        shapes = {0: image} if image else {}
    shapes = {**shapes, **given}
    for index in needed:
        shape = shapes.get(index)
        if not shape or any(size < 1 for size in shape):
            where = english(
                "{path}, line {line}: layer {name!r} ({type})",
                path=net.path,
                line=layer.line,
                name=layer.name,
                type=layer.type,
            )
            fix = _SAY.format(name=layer.name, top=layer.tops[index])
            raise BadInput(
                english(
                    "{where} does not say how large its blob {tops!r} is.", where=where, tops=layer.tops[index]
                ),
                fix=fix,
            )
    return {index: shapes[index] for index in needed}


def _params(layer: CaffeLayer, name: str, net: Net) -> Params:
    spec = message_spec(message_spec("LayerParameter").by_name[name].message)

    def refuse(text: str) -> BadInput:
        return BadInput(
            english(
                "{path}, line {line}: layer {name!r} {text}.",
                path=net.path,
                line=layer.line,
                name=layer.name,
                text=text,
            ),
            fix=english("correct that layer"),
        )

    return Params(name, layer.message.message(name) or TextMessage(), spec, refuse)


def _dims(shape: Params) -> Shape:
    return shape.integers("dim")


def _spread(shapes: list[Shape], layer: CaffeLayer) -> dict[int, Shape]:
    """One shape for each top, or one for all."""
    every = shapes * len(layer.tops) if len(shapes) == 1 else shapes
    return dict(enumerate(every))


def _dummy(params: Params) -> list[Shape]:
    given = [_dims(shape) for shape in params.every("shape")]
    old = [params.integers(name) for name in ("num", "channels", "height", "width")]
    return given or list(zip(*old, strict=False))


def _image_shape(layer: CaffeLayer, net: Net) -> Shape | None:
    """The shape of pictures, as far as the layer and the first layer that reads them tell."""
    if layer.type == "MemoryData":
        memory = _params(layer, "memory_data_param", net)
        return tuple(memory.integer(name) for name in ("batch_size", "channels", "height", "width"))
    video = "video_data_param" in layer.message
    images = _params(layer, "video_data_param" if video else "image_data_param", net)
    data = _params(layer, "data_param", net)
    crop = _params(layer, "transform_param", net).integer("crop_size")
    crop = crop or images.integer("crop_size") or data.integer("crop_size")
    height, width = (crop or images.integer(name) for name in ("new_height", "new_width"))
    channels = _channels(layer, net) or _COLOURS
    batch = images.integer("batch_size") if layer.type in ("ImageData", "VideoData") else 1
    if data.has("batch_size"):
        batch = data.integer("batch_size")
    if not height or not width:
        return None
    reader = _first_reader(layer, net)
    deep = reader is not None and reader.type in _VOLUME_TYPES
    return (batch, channels, *([images.integer("new_length")] if deep else []), height, width)


def _channels(layer: CaffeLayer, net: Net) -> int | None:
    reader = _first_reader(layer, net)
    if reader is None or not reader.blobs or reader.blobs[0].ndim < 2:
        return None
    deep = "convolution3d_param" in reader.message
    group = _params(reader, "convolution3d_param" if deep else "convolution_param", net).integer("group")
    return int(reader.blobs[0].shape[1]) * group


def _first_reader(layer: CaffeLayer, net: Net) -> CaffeLayer | None:
    """The first convolution that reads what a layer brings."""
    return next(
        (
            reader
            for reader in net.layers
            if set(reader.bottoms) & set(layer.tops) and reader.type in ("Convolution", *_VOLUME_TYPES)
        ),
        None,
    )


# Which tensor of a model is which top of a Caffe layer; kept with the model, also in its file.

_KEY = "roundoff.caffe.tops"


def note_tops(model: Model, tops: Mapping[str, tuple[str, int]]) -> None:
    """Write down which tensor is which top; a model fresh from its net only."""
    model.proto.metadata_props.add(key=_KEY, value=json.dumps(tops, ensure_ascii=False))


def layer_tops(model: Model) -> dict[str, tuple[str, int]]:
    """The layer and the number of the top that each tensor is; nothing for models that are not from Caffe."""
    text = next((entry.value for entry in model.proto.metadata_props if entry.key == _KEY), "{}")
    try:
        stored = parse_json(text, _KEY, surrogates=True)
        return {str(tensor): (str(layer), int(index)) for tensor, (layer, index) in stored.items()}
    except (BadInput, ValueError, TypeError, AttributeError, OverflowError):  # someone else's note under our name
        return {}


_BATCH = "N"
_FLOAT = 1


@dataclass(frozen=True, slots=True)
class Dropped:
    """A layer that is not in the model, and why."""

    name: str
    type: str
    why: str


@dataclass(frozen=True, slots=True)
class Imported:
    """A net as a model.

    Attributes:
        model: The model.
        net: The net it was made from.
        dropped: Layers that are not in it.
        notes: What the user should know.
    """

    model: Model
    net: Net
    dropped: tuple[Dropped, ...]
    notes: tuple[str, ...]


def import_caffe(
    prototxt: Path | str,
    caffemodel: Path | str | None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    fill: bool = False,
) -> Imported:
    """Read a Caffe net and convert it.

    Args:
        prototxt: The net.
        caffemodel: Its numbers; None for a net that has none.
        shapes: Other shapes of inputs than the .prototxt has, by blob, for nets that take any size; an empty name
            is the only input.
        fill: Draw the numbers that are missing, the same in every run: for trying a net before it is trained.

    Raises:
        BadInput: A file is missing or damaged, the two do not belong together, or a layer cannot be converted.
    """
    numbers = None if caffemodel is None else Path(caffemodel)
    return import_net(read_net(Path(prototxt), numbers, shapes=shapes, fill=fill))


def import_net(net: Net) -> Imported:
    """Convert a net.

    Raises:
        BadInput: A layer is unknown, contradicts itself, or lacks its numbers.
    """
    kept, dropped = _sorted_out(net)
    return _Importer(net, kept, dropped).run()


def net_of(model: Model) -> Net:
    """The net that a model was made from, read once more.

    Raises:
        BadInput: It was made from none, or its files have gone.
    """
    if not is_caffe(model.path):
        raise BadInput(
            english("{path} was not made from a Caffe net.", path=model.path),
            fix=english("load the .prototxt instead"),
        )
    return read_net(*caffe_pair(model.path))


def runs_of(net: Net) -> tuple[CaffeLayer, ...]:
    """The layers of a net that run, inputs among them."""
    return tuple(_sorted_out(net)[0])


# Conditional random fields, which filter with a lattice of their own; and what may stand behind them.
_REFINES = frozenset({"DenseCRF", "MultiStageMeanfield"})
# Operators of Ascend's chips that its users write behind a detector; Caffe has none of them.
_ON_CHIP = frozenset({
    "FSRDetectionOutput", "SSDDetectionOutput", "YoloV2DetectionOutput", "YoloV3DetectionOutput",
    "YoloV3DetectionOutputV2",
})  # fmt: skip
_ENDS = frozenset({"ArgMax", "Crop", "Interp", "Softmax", "Split"})


def _sorted_out(net: Net) -> tuple[list[CaffeLayer], list[Dropped]]:
    """Tell the layers that run from those that serve training, and what hangs on them."""
    dropped = [Dropped(layer.name, layer.type, english("belongs to another phase")) for layer in net.excluded]
    gone: set[str] = set()
    refined: set[str] = set()
    kept = []
    for layer in net.layers:
        # In order: what a dropped layer wrote is gone for all behind it. A blob that it only passes on in place
        # stays.
        without = gone.intersection(layer.bottoms)
        if serves_training(layer):
            gone.update(set(layer.tops) - set(layer.bottoms))
            dropped.append(Dropped(layer.name, layer.type, english("serves training or scoring")))
        elif layer.type in _ON_CHIP and converter_of(layer.type) is None:
            gone.update(layer.tops)
            why = english("picks boxes behind the net, on the chip alone")
            dropped.append(Dropped(layer.name, layer.type, why))
        elif layer.type in _REFINES and converter_of(layer.type) is None:
            gone.update(layer.tops)
            refined.update(layer.tops)
            dropped.append(
                Dropped(layer.name, layer.type, english("refines scores behind the net and is not run"))
            )
        elif without:
            if without & refined:
                _check_end(layer, net, blob=sorted(without & refined)[0])
                refined.update(layer.tops)
            gone.update(layer.tops)
            dropped.append(
                Dropped(
                    layer.name, layer.type, english("reads {name!r} of a dropped layer", name=sorted(without)[0])
                )
            )
        else:
            _check_known(layer, net)
            kept.append(layer)
    return kept, dropped


def _check_end(layer: CaffeLayer, net: Net, *, blob: str) -> None:
    """Refuse a net that goes on behind a layer that is left out though it computes something."""
    if layer.type not in _ENDS:
        raise BadInput(
            english(
                "{path}, line {line}: layer {name!r} ({type}) needs {blob!r} of a conditional random field, "
                "which is not run.",
                path=net.path,
                line=layer.line,
                name=layer.name,
                type=layer.type,
                blob=blob,
            ),
            fix=english("end the net in front of that field, or teach it: roundoff.register_layer(...)"),
        )


def _check_known(layer: CaffeLayer, net: Net) -> None:
    if brings_data(layer) or converter_of(layer.type) is not None:
        return
    known = [*layer_types(), *sorted(DATA_TYPES)]
    raise BadInput(
        english(
            "{path}, line {line}: layer {name!r} is of the type {type!r}, which is not known. Known are {known}.",
            path=net.path,
            line=layer.line,
            name=layer.name,
            type=layer.type,
            known=", ".join(known),
        ),
        fix=english(
            "{nearest}; or teach it with roundoff.graph.caffe.conversion.register_layer",
            nearest=nearest(layer.type, known),
        ),
    )


class _Importer:
    """One net on its way to a model."""

    def __init__(self, net: Net, kept: Sequence[CaffeLayer], dropped: list[Dropped]) -> None:
        self._net, self._kept, self._dropped = net, kept, dropped
        self._notes: list[str] = []
        self._batch_fixed = ""
        self._blobs: dict[str, BlobValue] = {}
        self._unread: dict[str, None] = {}
        self._inputs: list[BlobValue] = []
        self._tops: dict[str, tuple[str, int]] = {}
        self._drawn: dict[str, tuple[Array, ...]] = {}
        self._written = Counter(top for layer in kept for top in layer.tops)
        empty = make_model(_graph(net.name or net.path.stem))
        self._draft = Assembly(Model(empty, net.path, 0))

    def run(self) -> Imported:
        # Names that blobs and layers have go first; names of steps get out of their way.
        self._reserve()
        self._check_shapes()
        for layer in self._kept:
            if brings_data(layer):
                self._add_inputs(layer)
            else:
                self._add_layer(layer)
        self._finish()
        proto = self._draft.proto
        files = (self._net.path, self._net.weights_path)
        size = sum(path.stat().st_size for path in files if path is not None)
        path = pair_path(self._net.path, self._net.weights_path)
        model = checked_model(proto, path=path, size=size)
        note_tops(model, self._tops)
        if self._drawn:
            self._notes.append(drawn_text(len(self._drawn)))
            model.proto.metadata_props.add(key=DRAWN_KEY, value=str(len(self._drawn)))
        return Imported(model, self._with_drawn(), tuple(self._dropped), tuple(self._notes))

    def _check_shapes(self) -> None:
        """Refuse shapes for inputs that the net does not have."""
        read = {bottom for layer in self._kept for bottom in layer.bottoms}
        inputs = [top for layer in self._kept if brings_data(layer) for top in layer.tops]
        only = [top for top in inputs if top in read]
        if "" in self._net.shapes:
            if len(only) != 1:
                raise BadInput(
                    english(
                        "{path} has {count} inputs, and the shape does not say of which it is.",
                        path=self._net.path,
                        count=len(only),
                    ),
                    fix=english("name it, as in {name}:1,3,224,224", name=only[0] if only else "data"),
                )
            self._net = replace(self._net, shapes={only[0]: self._net.shapes[""]})
        for name in self._net.shapes:
            if name not in inputs:
                raise BadInput(
                    english("{path} has no input {name!r}.", path=self._net.path, name=name),
                    fix=nearest(name, inputs),
                )

    def _with_drawn(self) -> Net:
        """The net with the numbers that were drawn for it."""
        layers = [
            replace(layer, blobs=layer.blobs + self._drawn.get(layer.name, ())) for layer in self._net.layers
        ]
        return replace(self._net, layers=tuple(layers)) if self._drawn else self._net

    def _reserve(self) -> None:
        for name in self._written:
            self._draft.free_tensor(name)

    def _add_inputs(self, layer: CaffeLayer) -> None:
        if layer.bottoms:
            raise self._wrong(
                layer, english("has bottoms ({bottoms}), but brings data", bottoms=", ".join(layer.bottoms))
            )
        read = {bottom for other in self._kept for bottom in other.bottoms}
        lost = {bottom for other in self._net.layers for bottom in other.bottoms} - read
        # A top that only dropped layers read is dropped with them; data layers have labels besides.
        needed = [
            index
            for index, top in enumerate(layer.tops)
            if top in read or (layer.type == "Input" and top not in lost)
        ]
        for index, top in enumerate(layer.tops):
            if index not in needed:
                self._dropped.append(
                    Dropped(top, f"input of {layer.type}", english("is read by no layer that runs"))
                )
        for index, shape in input_shapes(layer, self._net, needed=needed).items():
            top = layer.tops[index]
            if top in self._blobs:
                raise self._wrong(
                    layer, english("writes blob {top!r}, which another layer writes already", top=top)
                )
            self._blobs[top] = BlobValue(top, shape)
            self._inputs.append(self._blobs[top])
            # A net that names its inputs without a layer has none for them; the blob's name stands for it.
            self._tops[top] = (layer.name, index) if "input" not in layer.message else (top, 0)
            self._unread[top] = None

    def _add_layer(self, layer: CaffeLayer) -> None:
        for bottom in layer.bottoms:
            if bottom not in self._blobs:
                what = english("reads blob {bottom!r}, which no layer before it writes", bottom=bottom)
                raise self._wrong(layer, what, fix=nearest(bottom, self._blobs))
        self._check_tops(layer)
        # Caffe overwrites a blob in place; a tensor of ONNX is written once. So a blob stands for the tensor that
        # its last writer made, and only that one is called like the blob (`_top_name`).
        names = [self._top_name(layer, top) for top in layer.tops]
        bottoms = [self._blobs[bottom] for bottom in layer.bottoms]
        job = LayerJob(layer, bottoms, top_names=names, net=self._net, draft=self._draft)
        convert = converter_of(layer.type)
        assert convert is not None  # noqa: S101 - checked before
        convert(job)
        for bottom in layer.bottoms:
            self._unread.pop(bottom, None)
        for index, top in enumerate(layer.tops):
            if index not in job.tops:
                raise self._wrong(
                    layer,
                    english("got no node for its top {top!r}", top=top),
                    fix=english("let its converter add one"),
                )
            self._blobs[top] = job.tops[index]
            self._tops[job.tops[index].name] = layer.name, index
            self._unread[top] = None
        if job.filled:
            self._drawn[layer.name] = tuple(np.atleast_1d(job.filled[index]) for index in sorted(job.filled))
        self._batch_fixed = self._batch_fixed or job.batch_fixed
        self._notes += job.notes
        self._note_unknown(layer)

    def _check_tops(self, layer: CaffeLayer) -> None:
        if not layer.tops:
            raise self._wrong(layer, english("has no tops"), fix=english("give it one"))
        for place, top in enumerate(layer.tops):
            in_place = place < len(layer.bottoms) and layer.bottoms[place] == top
            if layer.tops.count(top) > 1 or (top in self._blobs and not in_place):
                raise self._wrong(
                    layer, english("writes blob {top!r}, which another layer writes already", top=top)
                )

    def _top_name(self, layer: CaffeLayer, top: str) -> str:
        """The last version of a blob has its name; versions before it have that of the layer behind a ``#``.

        The other way round for a blob that is an input: what is fed keeps its name.
        """
        self._written[top] -= 1
        fed = any(value.name == top for value in self._inputs)
        if self._written[top] or fed:
            return self._draft.free_tensor(f"{top}#{layer.name}")
        return top

    def _note_unknown(self, layer: CaffeLayer) -> None:
        known = message_spec("LayerParameter").by_name
        strange = [entry for entry in layer.message.entries if entry.name not in known and entry.line]
        for entry in strange:
            self._notes.append(
                english(
                    "line {line}: layer {name!r} has {field!r}, which roundoff does not know "
                    "and leaves out of account",
                    line=entry.line,
                    name=layer.name,
                    field=entry.name,
                )
            )

    def _finish(self) -> None:
        from onnx.helper import make_tensor_value_info

        graph = self._draft.proto.graph
        ends = [self._blobs[blob] for blob in self._unread if self._blobs[blob] not in self._inputs]
        if not ends:
            raise BadInput(
                english("{path} computes nothing.", path=self._net.path),
                fix=english("check that it is the deploy .prototxt"),
            )
        symbol = self._free_batch()
        for value in self._inputs:
            shape: list[int | str] = [*value.shape]
            if symbol:
                shape[0] = symbol
            graph.input.append(make_tensor_value_info(value.name, _FLOAT, shape))
        for value in ends:
            sizes = [None if axis in value.varying else size for axis, size in enumerate(value.shape)]
            if symbol and sizes:
                # Nearly always the batch size; but boxes that a detector starts from are the same for all.
                sizes[0] = None
            graph.output.append(make_tensor_value_info(value.name, _FLOAT, sizes))
        names = Counter(layer.name for layer in self._kept)
        for name in (name for name, count in names.items() if count > 1):
            self._notes.append(
                english(
                    "{count} layers are called {name!r}; all but the first got another name",
                    count=names[name],
                    name=name,
                )
            )
        if self._net.unused:
            few = first_of(self._net.unused, 3)
            self._notes.append(
                english(
                    "the .caffemodel has numbers for {count} layers more: {few}",
                    count=len(self._net.unused),
                    few=few,
                )
            )
        if self._net.unknown:
            self._notes.append(
                english(
                    "the .caffemodel has {count} fields that Caffe does not; left out", count=self._net.unknown
                )
            )

    def _free_batch(self) -> str:
        """The name of the batch axis, if any number of samples can be fed at a time."""
        sizes = {value.shape[0] for value in self._inputs if value.shape}
        flat = any(len(value.shape) < 2 for value in self._inputs)
        if self._batch_fixed:
            self._notes.append(english("the batch size is fixed: {why}", why=self._batch_fixed))
        return "" if self._batch_fixed or len(sizes) != 1 or flat else _BATCH

    def _wrong(self, layer: CaffeLayer, text: str, fix: str = english("correct that layer")) -> BadInput:
        return BadInput(
            english(
                "{path}, line {line}: layer {name!r} {text}.",
                path=self._net.path,
                line=layer.line,
                name=layer.name,
                text=text,
            ),
            fix=fix,
        )


def _graph(name: str) -> Any:
    from onnx import GraphProto

    return GraphProto(name=name)


# What should be known of a net that was read: which layers its model does not have, and what was assumed.

_LOGGER = logging.getLogger("roundoff.graph.caffe")
_SHOWN = 3


def tell(imported: Imported) -> None:
    """Say it, as warnings of a logger; the command line prints them, each once."""
    for text in _texts(imported):
        # As it is, not as an argument, which would make plain English of it.
        _LOGGER.warning(text)


def _texts(imported: Imported) -> Iterator[str]:
    if imported.dropped:
        yield english("{path}: {note}", path=imported.net.path, note=dropped_text(imported.dropped))
    for note in imported.notes:
        yield english("{path}: {note}", path=imported.net.path, note=note)


def dropped_text(dropped: tuple[Dropped, ...]) -> str:
    """Dropped layers in one line, the first of them with the reasons."""
    few = [
        english("{name} ({type}) {why}", name=each.name, type=each.type, why=each.why) for each in dropped[:_SHOWN]
    ]
    if len(dropped) > _SHOWN:
        few.append(english("{count} more; 'roundoff convert' lists them", count=len(dropped) - _SHOWN))
    return english(
        "{count} {count:layer is|layers are} left out: {few}", count=len(dropped), few=joined(map(as_message, few))
    )
