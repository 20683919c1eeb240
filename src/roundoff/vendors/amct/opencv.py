"""Nets in OpenCV, which lacks AMCT's layers and cannot read their parameters: both are brought along."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.core.text_proto import TextEntry, TextMessage, text_proto_text
from roundoff.graph.caffe.convert import DATA_TYPES, runs_of
from roundoff.graph.caffe.net import Net, read_net
from roundoff.graph.caffe.wire import text_table
from roundoff.messages.message import english
from roundoff.vendors.amct.arguments import a_path
from roundoff.vendors.facade import CannotRun

_LOWEST, _HIGHEST = -128, 127
_INT16 = -(2.0**15), 2.0**15 - 1


def opencv_net(model_file: str, weights_file: str) -> Any:
    """Ours: a net as ``cv2.dnn.readNetFromCaffe`` gives it, also one with AMCT's layers.

    Args:
        model_file: The definition: of a float net, or of a fake-quant one.
        weights_file: The weights.

    Returns:
        A ``cv2.dnn.Net``. Runs of a modified net calibrate nothing here; `run_model` does that.

    Raises:
        CannotRun: OpenCV is not there or cannot read the net, or it is a deploy net.
        BadInput: The files cannot be read.
    """
    cv2 = _opencv()
    definition, weights = a_path("model_file", model_file), a_path("weights_file", weights_file)
    net = read_net(definition, weights)
    whole = next((each for each in net.layers if _is_whole(each.blobs)), None)
    if whole is not None:
        what = english(
            "OpenCV cannot compute with the integers of a deploy net, as layer {name!r} has them.", name=whole.name
        )
        raise CannotRun(what, fix=english("give the fake-quant net, or use roundoff.vendors.amct.caffe.run_model"))
    _register(cv2)
    text = text_proto_text(_readable(net), text_table("NetParameter"))
    try:
        return cv2.dnn.readNetFromCaffe(_bytes(text.encode()), _bytes(Path(weights).read_bytes()))
    except cv2.error as error:
        reason = str(error).strip().splitlines()[0]
        fix = english("use roundoff.vendors.amct.caffe.run_model, which knows more layers")
        raise CannotRun(
            english("OpenCV cannot read {definition}: {reason}", definition=definition, reason=reason), fix=fix
        ) from error


def _opencv() -> Any:
    fix = english("pip install 'opencv-python-headless<5'")
    try:
        import cv2
    except ImportError as error:
        raise CannotRun(english("OpenCV is not installed."), fix=fix) from error
    if not hasattr(getattr(cv2, "dnn", None), "readNetFromCaffe"):
        raise CannotRun(english("OpenCV {version} reads no Caffe nets.", version=cv2.__version__), fix=fix)
    return cv2


def _is_whole(blobs: Sequence[Array]) -> bool:
    return any(blob.dtype.kind in "iu" for blob in blobs)


def _bytes(data: bytes) -> Array:
    return np.frombuffer(data, np.uint8)


def _readable(net: Net) -> TextMessage:
    """The layers that run, with parameters that OpenCV takes: plain numbers, none below zero."""
    runs = runs_of(net)
    read = {bottom for layer in runs for bottom in layer.bottoms}
    kept = [each for each in runs if each.type not in DATA_TYPES or read.intersection(each.tops)]
    return TextMessage((TextEntry("name", net.name), *(TextEntry("layer", _layer(each.message)) for each in kept)))


def _layer(layer: TextMessage) -> TextMessage:
    own = [each for each in layer.entries if each.name not in ("quant_param", "dequant_param")]
    if layer.get("type") == "Quant":
        given = layer.message("quant_param") or TextMessage()
        offset = given.get("offset", b"")
        code = np.frombuffer((offset if isinstance(offset, bytes) else b"")[:1] or b"\0", np.int8)[0]
        zero = TextEntry("zero", int(code) - _LOWEST)
        own.append(
            TextEntry("quant_param", TextMessage((TextEntry("scale", repr(given.get("scale", 1.0))), zero)))
        )
    return TextMessage(tuple(own))


@functools.cache
def _register(cv2: Any) -> None:
    cv2.dnn_registerLayer("Quant", _Quant)
    cv2.dnn_registerLayer("DeQuant", _DeQuant)


class _Quant:
    """Rounds to codes and back."""

    def __init__(self, params: dict[str, Any], _: Sequence[Array]) -> None:
        self._step = np.float32(1 / float(params["scale"]))
        self._zero = np.float32(float(params["zero"]) + _LOWEST)

    def getMemoryShapes(self, inputs: Sequence[Any]) -> list[Any]:  # noqa: N802 - OpenCV's name
        """Shapes of the results."""
        return [inputs[0]]

    def forward(self, inputs: Sequence[Array]) -> list[Array]:
        """The results."""
        codes = np.clip(np.rint(inputs[0] / self._step) + self._zero, _LOWEST, _HIGHEST)
        return [np.asarray((codes - self._zero) * self._step, np.float32)]


class _DeQuant:
    """Nothing, unless the chip shifts sums."""

    def __init__(self, _: dict[str, Any], blobs: Sequence[Array]) -> None:
        self._factor, self._shift = (np.asarray(each, np.float32).ravel() for each in blobs[:2])

    def getMemoryShapes(self, inputs: Sequence[Any]) -> list[Any]:  # noqa: N802 - OpenCV's name
        """Shapes of the results."""
        return [inputs[0]]

    def forward(self, inputs: Sequence[Array]) -> list[Array]:
        """The results."""
        sums = np.asarray(inputs[0])
        if not self._shift.any():
            return [sums]
        factor, power = (each.reshape(-1, *[1] * (sums.ndim - 2)) for each in (self._factor, np.exp2(self._shift)))
        limited = np.clip(np.rint(np.rint(sums / factor) / power), *_INT16)
        return [np.asarray(limited * (factor * power), np.float32)]
