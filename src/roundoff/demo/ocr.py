"""Words for a text recogniser: drawn with Pillow's built-in font, and read from what the network gives.

The network is PP-OCRv4's recogniser, from a package that has to be installed beforehand; nothing is fetched here.
"""

import importlib.util
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.load import Model

PACKAGE, _FILE = "rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx"
_INPUT, _HEIGHT, _WIDTH = "x", 48, 256
_WORD = re.compile(r"\b[a-z]{3,10}\b")

EVALUATOR = '''"""The share of words that are read exactly; a sample is named after its word."""

import numpy as np

NAME = "words read"
CHARACTERS = {characters!r}


def evaluate(run, samples):
    return [read(next(iter(run(feed).values()))[0]) == name for name, feed in zip(samples.names, samples)]


def read(scores):
    classes = scores.argmax(axis=-1)
    new = np.append(True, classes[1:] != classes[:-1])
    return "".join(CHARACTERS[each] for each in classes[new & (classes != 0)]).strip()
'''
"""A file that measures the recogniser; its gap takes what each class stands for."""


class Words:
    """Pictures of words, each named after its word.

    Attributes:
        names: The words.
    """

    label = "drawn words"
    names: tuple[str, ...]

    def __init__(self, words: Sequence[str]) -> None:
        self.names = tuple(words)

    def feed(self, index: int) -> Mapping[str, Array]:
        """The picture of a word, as the network wants it."""
        return {_INPUT: drawn(self.names[index])}

    def read_by(self, model: Model, letters: Sequence[str]) -> float:
        """The share of the words that a network reads exactly."""
        from roundoff.run.evaluators import make_run

        run = make_run(model)
        right = [
            decoded(next(iter(run(self.feed(index)).values()))[0], letters) == word
            for index, word in enumerate(self.names)
        ]
        return float(np.mean(right))


@cache
def drawn(word: str) -> Array:
    """A word in dark on light, as high as the network wants it, and grey behind its end: float32 [1, 3, H, W]."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(size=36)
    left, top, right, bottom = map(int, font.getbbox(word))
    picture = Image.new("RGB", (right - left + 16, bottom - top + 16), "white")
    ImageDraw.Draw(picture).text((8 - left, 8 - top), word, fill="black", font=font)
    width = min(_WIDTH, round(_HEIGHT * picture.width / picture.height))
    pixels = np.asarray(picture.resize((width, _HEIGHT), Image.Resampling.BILINEAR), dtype=np.float32)
    whole = np.zeros((1, 3, _HEIGHT, _WIDTH), np.float32)
    whole[0, :, :, :width] = pixels.transpose(2, 0, 1) / 127.5 - 1
    return whole


def vocabulary() -> list[str]:
    """Words of Python's help texts, in a random but fixed order."""
    from pydoc_data.topics import topics

    words = sorted({word for text in topics.values() for word in _WORD.findall(text)})
    return [words[at] for at in np.random.default_rng(0).permutation(len(words))]


def characters(model: Path) -> list[str]:
    """What each class stands for; the network brings its characters along."""
    from roundoff.graph.load import load_model

    properties = {each.key: each.value for each in load_model(model).proto.metadata_props}
    return ["", *properties["character"].splitlines(), " "]


def decoded(scores: Array, letters: Sequence[str]) -> str:
    """The text of one row of scores: the best class of each step, repetitions and blanks left out (CTC)."""
    classes = scores.argmax(axis=-1)
    new = np.append(True, classes[1:] != classes[:-1])
    return "".join(letters[each] for each in classes[new & (classes != 0)]).strip()


def find_model() -> Path | None:
    """The network of the installed package; None when it is not installed."""
    package = importlib.util.find_spec(PACKAGE)
    places: Iterable[str] = package.submodule_search_locations or () if package else ()
    return next((Path(place) / _FILE for place in places if (Path(place) / _FILE).is_file()), None)
