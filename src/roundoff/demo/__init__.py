"""The small real model and data that ship with roundoff: a network that reads handwritten digits.

Beside this file lie

- ``digits.npz`` and ``digits.onnx``: 1,797 images of 8x8 pixels, their split, and the network trained on them
  (``scripts/train_demo.py``);
- ``samples.npy`` and ``board_dump/``: a few test images and the tensors that a simulated chip with one broken
  layer wrote for them (``scripts/make_demo_dump.py``);
- ``truth.json``: what is broken there, which tensor is which, and the accuracies.
"""

from importlib import resources
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from roundoff.core.tensors import Array
from roundoff.errors import BadInput, nearest
from roundoff.messages.message import english

__all__ = ["Split", "load_split", "model_path"]

Split = Literal["train", "calibration", "test"]

# Pixels are stored as whole numbers from 0 to this; the network expects 0 to 1.
_BRIGHTEST = 16


def model_path() -> Path:
    """The float model as ONNX: input ``image``, float32 (N, 1, 8, 8) in 0..1; output ``logits``, (N, 10)."""
    return _shipped("digits.onnx")


def load_split(name: Split) -> tuple[Array, Array]:
    """Images and labels of one part of the data.

    Args:
        name: ``train``; ``calibration``, which training never saw; or ``test``, which neither saw.

    Returns:
        Images, float32 (n, 1, 8, 8) in 0..1, and labels, int64 (n,).
    """
    if name not in get_args(Split):
        raise BadInput(
            english("The demo's data have no part {name!r}.", name=name), fix=nearest(name, get_args(Split))
        )
    with np.load(_shipped("digits.npz"), allow_pickle=False) as data:
        members = data[name]
        images, labels = data["images"][members], data["labels"][members]
    return images[:, None].astype(np.float32) / np.float32(_BRIGHTEST), labels.astype(np.int64)


def _shipped(name: str) -> Path:
    return Path(str(resources.files("roundoff.demo"))) / name
