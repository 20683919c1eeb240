"""The files a model consists of: one for ONNX, two for Caffe, which are given as one."""

import contextlib
from pathlib import Path

from roundoff.errors import BadInput

__all__ = ["caffe_pair", "is_caffe", "is_model", "model_files", "model_stem", "pair_path"]

_TEXT, _NUMBERS = ".prototxt", ".caffemodel"
_BOTH = "name both files with a comma between them: net.prototxt,net.caffemodel"


def is_model(path: Path) -> bool:
    """Whether a path names a model, by its ending: .onnx, .prototxt, or a Caffe pair."""
    return path.suffix.lower() == ".onnx" or is_caffe(path)


def is_caffe(path: Path) -> bool:
    """Whether a path names a Caffe net: a .prototxt, a .caffemodel, or both with a comma between them."""
    return path.suffix.lower() in (_TEXT, _NUMBERS)


def caffe_pair(path: Path) -> tuple[Path, Path]:
    """The .prototxt and the .caffemodel of a Caffe net.

    Args:
        path: Both with a comma between them, in either order; or the .prototxt, next to which the .caffemodel
            lies: the one of the same name, ``x_weights`` for ``x_model``, or the only one there is.

    Raises:
        BadInput: One of them cannot be told.
    """
    parts = _parts(path)
    if len(parts) == 2:
        texts, numbers = ([part for part in parts if part.suffix.lower() == kind] for kind in (_TEXT, _NUMBERS))
        if len(texts) != 1 or len(numbers) != 1:
            raise BadInput(f"{path} does not name a .prototxt and a .caffemodel.", fix=_BOTH)
        return texts[0], numbers[0]
    if len(parts) > 2 or path.suffix.lower() != _TEXT:
        raise BadInput(f"{path} does not name the .prototxt of a Caffe net.", fix=_BOTH)
    return path, _beside(path)


def pair_path(prototxt: Path, caffemodel: Path | None) -> Path:
    """The path that stands for two files: the .prototxt alone where it leads to the .caffemodel, else both."""
    if caffemodel is None:
        return prototxt
    with contextlib.suppress(BadInput):
        if caffe_pair(prototxt)[1] == caffemodel:
            return prototxt
    return Path(f"{prototxt},{caffemodel}")


def model_files(path: Path) -> tuple[Path, ...]:
    """The files that a path which names a model stands for."""
    return caffe_pair(path) if is_caffe(path) else (path,)


def model_stem(path: Path) -> str:
    """What a model is called: its file's name without the ending."""
    return (caffe_pair(path)[0] if is_caffe(path) else path).stem


def _parts(path: Path) -> list[Path]:
    text = str(path)
    return [path] if "," not in text or path.exists() else [Path(part.strip()) for part in text.split(",")]


def _beside(prototxt: Path) -> Path:
    same = prototxt.with_suffix(_NUMBERS)
    if same.is_file() or not prototxt.is_file():
        return same
    weights = prototxt.with_name(f"{prototxt.stem.removesuffix('model')}weights{_NUMBERS}")
    if prototxt.stem.endswith("_model") and weights.is_file():
        return weights
    others = sorted(path for path in prototxt.parent.iterdir() if path.suffix.lower() == _NUMBERS)
    if len(others) == 1:
        return others[0]
    found = f"there are {len(others)}" if others else "there is none"
    raise BadInput(
        f"{prototxt} needs a .caffemodel; beside it {found}, and none is called {same.name}.", fix=_BOTH
    )
