"""Stories the demo tells: what they start from, the command that is run, and what to look at.

repair: a network on a chip with too few bits, diagnosed, repaired and counted on unseen pictures. board: a
(simulated) board that multiplies the output of one layer by a half. ocr: PP-OCRv4 in int8, on words drawn here.
"""

import importlib.util
import json
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from roundoff.core.tensors import Array
from roundoff.demo import load_split, model_path
from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.messages.catalogue import translate
from roundoff.messages.message import english
from roundoff.messages.numbers import share_text

if TYPE_CHECKING:
    from roundoff.run.capture import Samples


# Words for a text recogniser: drawn with Pillow's built-in font, and read from what the network gives.
#
# The network is PP-OCRv4's recogniser, from a package that has to be installed before; nothing is fetched here.

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


_MODEL, _CHIP, _REPAIRED = "digits.onnx", "tiny-chip.toml", "digits_fake_quant_model.onnx"
_SAMPLES, _DUMP = "samples.npy", "board_dump"
_RECOGNISER, _RECOGNISER_REPAIRED = "recogniser.onnx", "recogniser_fake_quant_model.onnx"
# What searching and repairing may look at, and what is read in the end.
_WORDS, _TEST_WORDS = 96, 300


@dataclass(frozen=True, slots=True)
class Story:
    """One story.

    Attributes:
        marker: A file among the inputs by which an earlier demo is known.
        prepare: Puts the inputs into an empty folder.
        introduction: What is wrong, for people.
        command: The words of the command behind the program's name, line by line, given the folders of the inputs
            and of the results.
        conclusion: What to look at, given both folders once the command has run.
    """

    marker: str
    prepare: Callable[[Path], None]
    introduction: str
    command: Callable[[Path, Path], list[list[str]]]
    conclusion: Callable[[Path, Path], str]


def story(name: str, *, target: str | None = None) -> Story:
    """One of `STORIES`.

    Args:
        name: Which.
        target: For which chip, in a story that can be told of several.

    Raises:
        BadInput: It needs a package that is not there, or can be told of one chip only.
    """
    if target is None:
        return STORIES[name]()
    if name != "ocr":
        raise BadInput(
            english("The story {name!r} is told of its own chip.", name=name),
            fix=english("leave --target out, or tell 'ocr'"),
        )
    return _ocr(target)


def _shipped() -> Path:
    return Path(str(resources.files("roundoff.demo")))


def _listed(files: Iterable[Path | str]) -> str:
    return "\n".join(f"  {file}" for file in files)


def _quantized(target: str, model: Path, samples: "Samples") -> "Model":
    """A network as the chip's toolchain makes it, before any repair."""
    from roundoff.graph.load import load_model
    from roundoff.graph.save import fill
    from roundoff.quantize.pipeline import QuantizeSettings, quantize_model
    from roundoff.quantize.targets.files import load_target

    settings = QuantizeSettings(load_target(target))
    return fill(quantize_model(load_model(model), samples, settings).fake_quant_model())


# repair ----------------------------------------------------------------------------------------------------------


def _repair() -> Story:
    return Story(_MODEL, _prepare_repair, translate("demo.repair"), _repair_command, _repair_conclusion)


def _prepare_repair(folder: Path) -> None:
    shutil.copyfile(model_path(), folder / _MODEL)
    shutil.copyfile(_shipped() / _CHIP, folder / _CHIP)
    images, labels = load_split("calibration")
    np.save(folder / "images.npy", images)
    np.save(folder / "labels.npy", labels)


def _repair_command(inputs: Path, results: Path) -> list[list[str]]:
    return [
        ["diagnose", str(inputs / _MODEL), "--target", str(inputs / _CHIP)],
        ["--data", str(inputs / "images.npy"), "--labels", str(inputs / "labels.npy")],
        ["--fix", "-o", str(results), "--html", str(results.with_suffix(".html"))],
    ]


def _repair_conclusion(inputs: Path, results: Path) -> str:
    from roundoff.graph.load import load_model
    from roundoff.samples.sample_set import ArraySamples

    images, labels = load_split("test")
    samples = ArraySamples({"image": np.load(inputs / "images.npy")})
    models = {
        "on_chip": _quantized(str(inputs / _CHIP), inputs / _MODEL, samples),
        "repaired": load_model(results / _REPAIRED),
        "in_float": load_model(inputs / _MODEL),
    }
    right = {name: share_text(_accuracy(each, images, labels), 1) for name, each in models.items()}
    browser = translate("demo.in_browser", file=results.with_suffix(".html"))
    files = _listed((browser, results / _REPAIRED, results / "run.json"))
    return "\n" + translate("demo.repair_end", images=len(labels), files=files, **right)


def _accuracy(model: "Model", images: Array, labels: Array) -> float:
    from roundoff.run.evaluators import make_run

    run = make_run(model)
    scores = np.concatenate([run({"image": image[np.newaxis]})["logits"] for image in images])
    return float(np.mean(scores.argmax(axis=1) == labels))


# board -----------------------------------------------------------------------------------------------------------


def _board() -> Story:
    truth = json.loads((_shipped() / "truth.json").read_text(encoding="utf-8"))
    accuracy, fault, images = truth["accuracy"], truth["fault"], len(truth["samples"]["labels"])

    def prepare(folder: Path) -> None:
        (folder / _DUMP).mkdir()
        dumps = sorted((_shipped() / _DUMP).iterdir())
        for name in (_MODEL, _SAMPLES, *(f"{_DUMP}/{path.name}" for path in dumps)):
            shutil.copyfile(_shipped() / name, folder / name)

    def command(inputs: Path, results: Path) -> list[list[str]]:
        return [
            ["compare"],
            [str(inputs / _MODEL), str(inputs / _DUMP)],
            ["--data", str(inputs / _SAMPLES), "-o", str(results)],
        ]

    def conclusion(_inputs: Path, results: Path) -> str:
        files = _listed((results / "run.json", results / "tensors.csv"))
        return "\n" + translate("demo.board_end", **fault, files=files)

    introduction = translate(
        "demo.board",
        in_float=share_text(accuracy["float"], 1),
        on_board=share_text(accuracy["broken_board"], 1),
        images=images,
    )
    return Story(_MODEL, prepare, introduction, command, conclusion)


# ocr -------------------------------------------------------------------------------------------------------------


def _ocr(target: str = "generic-int8") -> Story:
    model = find_model()
    if model is None:
        raise BadInput(
            english("The network comes with the package {package!r}, which is not installed.", package=PACKAGE),
            fix=english("pip install --no-deps rapidocr-onnxruntime==1.4.4"),
        )
    words = vocabulary()
    seen, unseen = Words(words[:_WORDS]), Words(words[_WORDS : _WORDS + _TEST_WORDS])

    def prepare(folder: Path) -> None:
        shutil.copyfile(model, folder / _RECOGNISER)
        (folder / "words").mkdir()
        for index, word in enumerate(seen.names):
            np.save(folder / "words" / f"{word}.npy", next(iter(seen.feed(index).values())))
        (folder / "evaluator.py").write_text(EVALUATOR.format(characters=characters(model)), encoding="utf-8")

    def command(inputs: Path, results: Path) -> list[list[str]]:
        return [
            ["diagnose", str(inputs / _RECOGNISER)],
            ["--target", target],
            ["--data", str(inputs / "words")],
            ["--evaluator", str(inputs / "evaluator.py")],
            ["--fix", "-o", str(results), "--html", str(results.with_suffix(".html"))],
        ]

    def conclusion(inputs: Path, results: Path) -> str:
        from roundoff.graph.load import load_model

        letters, repaired = characters(model), results / _RECOGNISER_REPAIRED
        plain = _quantized(target, inputs / _RECOGNISER, seen)
        rates = {"float": load_model(inputs / _RECOGNISER), "quantized": plain}
        files = [translate("demo.in_browser", file=results.with_suffix(".html"))]
        if repaired.is_file():
            rates["repaired"] = load_model(repaired)
            files.append(str(repaired))
        read = {name: share_text(unseen.read_by(each, letters), 1) for name, each in rates.items()}
        table = _listed(translate(f"demo.ocr_{name}", rate=rate) for name, rate in read.items())
        listed = _listed((*files, results / "run.json"))
        return "\n" + translate("demo.ocr_end", words=_TEST_WORDS, table=table, files=listed)

    return Story(_RECOGNISER, prepare, translate("demo.ocr", words=_WORDS), command, conclusion)


STORIES: dict[str, Callable[[], Story]] = {"repair": _repair, "board": _board, "ocr": _ocr}
"""By their names."""
