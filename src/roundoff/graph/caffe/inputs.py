"""What a net is fed: its Input layers, and layers that would read data themselves, which become inputs."""

from collections.abc import Sequence

from roundoff.core.text_proto import TextMessage
from roundoff.errors import BadInput
from roundoff.graph.caffe.conversion import Params, Shape
from roundoff.graph.caffe.fields import message_spec
from roundoff.graph.caffe.net import CaffeLayer, Net

__all__ = ["DATA_TYPES", "input_shapes"]

DATA_TYPES = frozenset({
    "AnnotatedData", "Data", "DummyData", "HDF5Data", "ImageData", "Input", "MemoryData", "WindowData",
})  # fmt: skip

_SAY = (
    'replace it by: layer {{ name: "{name}" type: "Input" top: "{top}" '
    "input_param {{ shape {{ dim: 1 dim: 3 dim: 224 dim: 224 }} }} }}"
)
_COLOURS = 3


def input_shapes(layer: CaffeLayer, net: Net, *, needed: Sequence[int]) -> dict[int, Shape]:
    """Shapes of the tops of a layer that brings data.

    Args:
        layer: The layer.
        net: The net it belongs to.
        needed: Which of its tops are used.

    Raises:
        BadInput: The .prototxt does not say them.
    """
    if layer.type == "Input":
        shapes = _spread([_dims(shape) for shape in _params(layer, "input_param", net).every("shape")], layer)
    elif layer.type == "DummyData":
        shapes = _spread(_dummy(_params(layer, "dummy_data_param", net)), layer)
    else:
        image = _image_shape(layer, net)
        shapes = {0: image} if image else {}
    for index in needed:
        shape = shapes.get(index)
        if not shape or any(size < 1 for size in shape):
            where = f"{net.path}, line {layer.line}: layer {layer.name!r} ({layer.type})"
            fix = _SAY.format(name=layer.name, top=layer.tops[index])
            raise BadInput(f"{where} does not say how large its blob {layer.tops[index]!r} is.", fix=fix)
    return {index: shapes[index] for index in needed}


def _params(layer: CaffeLayer, name: str, net: Net) -> Params:
    spec = message_spec(message_spec("LayerParameter").by_name[name].message)

    def refuse(text: str) -> BadInput:
        return BadInput(f"{net.path}, line {layer.line}: layer {layer.name!r} {text}.", fix="correct that layer")

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
    images = _params(layer, "image_data_param", net)
    data = _params(layer, "data_param", net)
    crop = _params(layer, "transform_param", net).integer("crop_size")
    crop = crop or images.integer("crop_size") or data.integer("crop_size")
    height, width = (crop or images.integer(name) for name in ("new_height", "new_width"))
    channels = _channels(layer, net) or _COLOURS
    batch = images.integer("batch_size") if layer.type == "ImageData" else 1
    if data.has("batch_size"):
        batch = data.integer("batch_size")
    return (batch, channels, height, width) if height and width else None


def _channels(layer: CaffeLayer, net: Net) -> int | None:
    for reader in net.layers:
        if set(reader.bottoms) & set(layer.tops) and reader.type == "Convolution" and reader.blobs:
            group = _params(reader, "convolution_param", net).integer("group")
            return int(reader.blobs[0].shape[1]) * group if reader.blobs[0].ndim > 1 else None
    return None
