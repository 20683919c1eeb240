"""Trying changed documents, keeping those that failed, and the tally of many pieces."""

import contextlib
import hashlib
import json
import re
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.fuzz.parsers import Parser
from roundoff.core.array_files import Unreadable
from roundoff.errors import RoundoffError

SECONDS, WAITED = 10.0, 120.0
"""An input that takes more of the processor, or waits longer, is a failure; an honest one takes milliseconds."""
CORPUS = Path(__file__).parents[2] / "tests" / "corpus"
ROUND = 400
"""So many inputs a parser is given in a piece, or fewer as its `times` say."""


class _TooLong(BaseException):
    """An input that takes longer than any may."""


@contextlib.contextmanager
def _within(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise _TooLong

    timers = ((signal.ITIMER_PROF, signal.SIGPROF, seconds), (signal.ITIMER_REAL, signal.SIGALRM, WAITED))
    before = [signal.signal(number, stop) for _, number, _ in timers]
    for timer, _, given in timers:
        signal.setitimer(timer, given)
    try:
        yield
    finally:
        for (timer, number, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


@dataclass(frozen=True)
class Changed:
    """An input: which file of which of a parser's seeds holds what instead.

    Attributes:
        seed: Which of the seeds.
        file: Which of its files.
        data: What it holds.
    """

    seed: int
    file: str
    data: bytes


def problem(parser: Parser, given: Changed, folder: Path, *, seconds: float = SECONDS) -> str:
    """What went wrong with an input; empty when it was read or refused as it should be."""
    place = home(parser, folder, given.seed)
    path = place / given.file
    path.write_bytes(given.data)
    try:
        with _within(seconds):
            parser.read(place / parser.opens)
    except (RoundoffError, Unreadable) as error:
        return "" if str(error) and getattr(error, "fix", "") else f"no fix: {error}"
    except _TooLong:
        return f"over {seconds:g} s"
    except BaseException as error:  # noqa: BLE001 - that is what is looked for
        return f"{type(error).__name__}: {error}"[:200]
    finally:
        path.write_bytes(parser.seeds[given.seed][given.file])
    return ""


def home(parser: Parser, folder: Path, seed: int) -> Path:
    """Where the files of a seed lie; they are written when they are needed first."""
    place = folder / f"{stem(parser)}.{seed}"
    if not place.is_dir():
        for name, data in parser.seeds[seed].items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(data)
    return place


def inputs(parser: Parser, count: int, seed: tuple[int, ...]) -> Iterator[Changed]:
    """Changed documents."""
    rng = np.random.default_rng([*seed, *parser.name.encode()])
    files = [[file for file in each if file.startswith(parser.changed or "")] for each in parser.seeds]
    for _ in range(count):
        number = int(rng.integers(len(parser.seeds)))
        file = files[number][int(rng.integers(len(files[number])))]
        yield Changed(number, file, parser.mutate(file, parser.seeds[number][file], rng))


def fuzz(parser: Parser, folder: Path, *, count: int, seed: tuple[int, ...]) -> Iterator[tuple[Changed, str]]:
    """Inputs that failed, and how."""
    for given in inputs(parser, max(1, count // parser.times), seed):
        wrong = problem(parser, given, folder)
        if wrong:
            yield given, wrong


def stem(parser: Parser) -> str:
    """The name of a parser as part of a file's."""
    return re.sub(r"\W+", "_", parser.name).strip("_")


def keep(parser: Parser, given: Changed) -> None:
    """Keep an input that failed, for the tests."""
    CORPUS.mkdir(exist_ok=True)
    place = sorted(parser.seeds[given.seed]).index(given.file)
    name = f"{stem(parser)}-{given.seed}.{place}-{hashlib.sha256(given.data).hexdigest()[:12]}"
    (CORPUS / name).write_bytes(given.data)


def kept(path: Path, parsers: Mapping[str, Parser]) -> tuple[Parser, Changed]:
    """An input of the corpus, and the parser that failed on it once."""
    name, place, _ = path.name.split("-")
    seed, number = map(int, place.split("."))
    return parsers[name], Changed(seed, sorted(parsers[name].seeds[seed])[number], path.read_bytes())


@dataclass
class Row:
    """What a parser was given so far.

    Attributes:
        inputs: How many.
        failures: How many of them failed.
        pieces: In how many pieces, which is the seed of the next.
        seconds: Of the processor.
    """

    inputs: int = 0
    failures: int = 0
    pieces: int = 0
    seconds: float = 0.0


class Tally:
    """Counts of all parsers, kept in a file after each piece, so that a campaign can be broken off.

    Args:
        path: The file; None to keep them in memory.
        seed: The seed of all pieces; another one begins anew.
    """

    rows: dict[str, Row]

    def __init__(self, path: Path | None, seed: int) -> None:
        self._path, self._seed = path, seed
        self.rows = {}
        if path is not None and path.is_file():
            content = json.loads(path.read_text("utf-8"))
            if content["seed"] == seed:
                self.rows = {name: Row(**row) for name, row in content["rows"].items()}

    @property
    def total(self) -> int:
        """All inputs."""
        return sum(row.inputs for row in self.rows.values())

    def piece(self, parser: Parser, folder: Path) -> None:
        """Give a parser its next inputs."""
        row = self.rows.setdefault(parser.name, Row())
        began, seen = time.process_time(), set()
        for given, wrong in fuzz(parser, folder, count=ROUND, seed=(self._seed, row.pieces)):
            row.failures += 1
            if (kind := wrong.partition(":")[0]) not in seen:
                keep(parser, given)
                print(f"  {parser.name}: {wrong}", flush=True)
            seen.add(kind)
        row.inputs += max(1, ROUND // parser.times)
        row.pieces += 1
        row.seconds += time.process_time() - began
        if self._path is not None:
            content = {"seed": self._seed, "rows": {name: asdict(each) for name, each in self.rows.items()}}
            self._path.write_text(json.dumps(content, indent=1), encoding="utf-8")
