"""Old forms of a net made new: layers of the first two formats, and inputs that were fields of the net."""

from collections.abc import Iterator, Mapping

from roundoff.core.text_proto import Entry, TextMessage, TextValue
from roundoff.errors import BadInput, nearest
from roundoff.graph.caffe.table_text import LAYER_TYPES_V1

__all__ = ["upgraded"]

_NEW_TYPES: Mapping[str, str] = {old: new for old, (_, new) in LAYER_TYPES_V1.items()}
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
        mixed = f"{what} has layers in the old form ('layers') and in the new one ('layer')."
        raise BadInput(mixed, fix="write all of them as 'layer'")
    kept = [entry for entry in net.entries if entry.name not in ("layers", "input", "input_dim", "input_shape")]
    layers = [entry for entry in net.entries if entry.name == "layers"]
    newer = [_from_v1(entry, what=what) for entry in _without_padding(layers, what=what)]
    inputs = _input_layer(net, what=what)
    return TextMessage((*inputs, *newer, *kept))


def _input_layer(net: TextMessage, *, what: str) -> Iterator[Entry]:
    names = net.all("input")
    if not names:
        return
    shapes = [list(shape.all("dim")) for shape in net.messages("input_shape")]
    flat = net.all("input_dim")
    if flat and not shapes:
        shapes = [list(flat[start : start + len(_AXES)]) for start in range(0, len(flat), len(_AXES))]
    if (shapes and len(shapes) != len(names)) or any(not shape for shape in shapes) or len(flat) % len(_AXES):
        said = f"{len(shapes)} shapes" if not flat else f"{len(flat)} values of input_dim"
        problem = f"{what}, line {net.line('input')}: the net has {len(names)} inputs, but {said}."
        raise BadInput(problem, fix="give one input_shape, or four values of input_dim, for each input")
    dims = [TextMessage(tuple(Entry("dim", size) for size in shape)) for shape in shapes]
    parameters = TextMessage(tuple(Entry("shape", shape) for shape in dims))
    tops = tuple(Entry("top", name) for name in names)
    # The field `input` tells this layer from one that the file has.
    named = tuple(Entry("input", name) for name in names)
    fields = (Entry("name", "input"), Entry("type", "Input"), *tops, Entry("input_param", parameters), *named)
    yield Entry("layer", TextMessage(fields), net.line("input"))


def _from_v1(entry: Entry, *, what: str) -> Entry:
    old = entry.value
    assert isinstance(old, TextMessage)  # noqa: S101 - the table says so
    inner = old.message("layer")
    if inner is not None:
        return Entry("layer", _from_v0(old, inner, line=entry.line, what=what), entry.line)
    kind = old.get("type", "NONE")
    if kind not in _NEW_TYPES:
        raise BadInput(f"{what}: a layer has the type {kind!r}, which Caffe never had.", fix="check the file")
    special = ("type", "param", "blob_share_mode", "blobs_lr", "weight_decay")
    fields = [part for part in old.entries if part.name not in special]
    shared = (Entry("param", TextMessage((Entry("name", name),))) for name in old.all("param"))
    kinds = Entry("type", _NEW_TYPES[str(kind)], old.line("type"))
    return Entry("layer", TextMessage((*fields, kinds, *shared)), entry.line)


def _from_v0(old: TextMessage, inner: TextMessage, *, line: int, what: str) -> TextMessage:
    kind = str(inner.get("type", ""))
    if kind not in _OLDEST_TYPES:
        problem = f"{what}, line {line}: {kind!r} is no layer type of the oldest format."
        raise BadInput(problem, fix=nearest(kind, _OLDEST_TYPES))
    parameters: list[Entry] = []
    for part in inner.entries:
        steers = _STEERS.get(part.name)
        if steers is not None and kind in steers:
            parameters.append(Entry(_RENAMED.get(part.name, part.name), part.value, part.line))
        elif steers and kind != "padding":
            raise BadInput(
                f"{what}, line {part.line}: {part.name!r} means nothing in a layer of type {kind!r}.",
                fix="leave it out",
            )
    if kind in ("data", "images") and "cropsize" in inner:
        parameters.append(Entry("crop_size", _given(inner, "cropsize")))
    fields = [Entry("name", inner.get("name") or ""), Entry("type", _OLDEST_TYPES[kind], inner.line("type"))]
    fields += [part for part in old.entries if part.name in ("bottom", "top")]
    fields += [part for part in inner.entries if part.name == "blobs"]
    if parameters:
        fields.append(Entry(_PARAMETERS[kind], TextMessage(tuple(parameters)), line))
    return TextMessage(tuple(fields))


def _given(message: TextMessage, name: str) -> TextValue:
    value = message.get(name)
    assert value is not None  # noqa: S101 - asked for only where it is there
    return value


def _without_padding(layers: list[Entry], *, what: str) -> list[Entry]:
    """The oldest nets have layers that only pad; the layers behind them pad themselves instead."""
    padded: dict[str, tuple[str, TextValue]] = {}
    kept = []
    for entry in layers:
        assert isinstance(entry.value, TextMessage)  # noqa: S101 - the table says so
        inner = entry.value.message("layer")
        if inner is not None and inner.get("type") == "padding":
            tops, bottoms = entry.value.all("top"), entry.value.all("bottom")
            if len(tops) != 1 or len(bottoms) != 1:
                problem = f"{what}, line {entry.line}: a padding layer has one bottom and one top."
                raise BadInput(problem, fix="correct that layer")
            padded[str(tops[0])] = str(bottoms[0]), inner.get("pad") or 0
            continue
        kept.append(_padding_itself(entry, padded, what=what) if padded and inner is not None else entry)
    return kept


def _padding_itself(entry: Entry, padded: Mapping[str, tuple[str, TextValue]], *, what: str) -> Entry:
    message = entry.value
    assert isinstance(message, TextMessage)  # noqa: S101 - the table says so
    inner = message.message("layer")
    used = [bottom for bottom in message.all("bottom") if bottom in padded]
    if not used or inner is None:
        return entry
    if inner.get("type") not in ("conv", "pool") or len(message.all("bottom")) != 1:
        problem = f"{what}, line {entry.line}: only convolution and pooling can follow a padding layer."
        raise BadInput(problem, fix="correct that layer")
    source, pad = padded[str(used[0])]
    own = tuple(part for part in inner.entries if part.name != "pad")
    parts = [Entry("layer", TextMessage((*own, Entry("pad", pad)))), Entry("bottom", source)]
    parts += [part for part in message.entries if part.name not in ("layer", "bottom")]
    return Entry(entry.name, TextMessage(tuple(parts)), entry.line)
