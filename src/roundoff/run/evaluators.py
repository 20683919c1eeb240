"""How good a network is at its task: a function of the user's, or the classes it predicts.

An evaluator is a Python file with a function ``evaluate(run, samples)`` that gives a number, or one per sample.
``run(feed)`` runs the network on a dictionary of inputs and gives a dictionary of outputs; ``samples`` is a
sequence of such inputs.
"""

import contextlib
import importlib.util
import inspect
import logging
import math
import sys
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, overload

import numpy as np

from roundoff.core.files import regular_file
from roundoff.core.tensors import Array
from roundoff.errors import BadInput, RoundoffError, nearest
from roundoff.graph.interface import inputs, outputs
from roundoff.graph.load import Model
from roundoff.messages.message import english
from roundoff.run.bench import spread
from roundoff.run.block_chain import feed_digest
from roundoff.run.budget import keepable_bytes
from roundoff.run.capture import Samples, read_feed
from roundoff.run.session import open_session

# Python files of the user's: reading them, and saying what went wrong in which of their lines.

_MOST_SHOWN = 60
_LOGGER = logging.getLogger("roundoff.run")


def load_user_module(path: Path, *, what: str) -> ModuleType:
    """Run a Python file of the user's and give its module.

    Args:
        path: The file.
        what: What it is, as the start of a sentence ("The evaluator").

    Raises:
        BadInput: It cannot be read or run.
    """
    regular_file(path, what=what)
    spec = importlib.util.spec_from_file_location("roundoff_user_code", path)
    if spec is None or spec.loader is None:
        raise BadInput(
            english("{what} {path} is not a Python file.", what=what, path=path),
            fix=english("give a file that ends in .py"),
        )
    module = importlib.util.module_from_spec(spec)
    call_user_code(spec.loader.exec_module, module, path=path, what=what)
    return module


def call_user_code(function: Callable[..., Any], *values: Any, path: Path, what: str) -> Any:
    """Call a function of a file of the user's; what it prints goes to stderr, where it is in nobody's way.

    Args:
        function: The function.
        values: What it is called with.
        path: The file.
        what: What it is, as the start of a sentence ("The evaluator").

    Raises:
        BadInput: It failed, or would end the program.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr), _warnings_as_notes(path):
            return function(*values)
    except RoundoffError:
        raise
    except (Exception, SystemExit) as error:
        raise _failed(path, error, what=what) from error


@contextlib.contextmanager
def _warnings_as_notes(path: Path) -> Iterator[None]:
    """What a file of the user's warns of is a note, as our own warnings are; its filters stay as they are."""
    shown = warnings.showwarning

    def note(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        kind = category.__name__
        _LOGGER.warning("%s", english("{path} warns: {kind}: {text}", path=path, kind=kind, text=message))

    warnings.showwarning = note
    try:
        yield
    finally:
        if warnings.showwarning is note:
            warnings.showwarning = shown


def objects_with(methods: Sequence[str], module: ModuleType, path: Path, *, what: str) -> list[Any]:
    """Objects of a file of the user's that have some methods: those it made, else one of each of its classes.

    A class that another one in the file is derived from counts only by that.

    Raises:
        BadInput: A class cannot be made without arguments.
    """
    own = {name: each for name, each in vars(module).items() if not name.startswith("_")}.values()
    made = [each for each in own if not inspect.isclass(each) and not inspect.ismodule(each)]
    found = [each for each in made if _has(type(each), methods)]
    if found:
        return list({id(each): each for each in found}.values())
    classes = {each for each in own if inspect.isclass(each) and each.__module__ == module.__name__}
    last = [
        each for each in classes if not any(each is not other and issubclass(other, each) for other in classes)
    ]
    able = sorted((each for each in last if _has(each, methods)), key=lambda each: each.__name__)
    return [call_user_code(each, path=path, what=what) for each in able]


def _has(kind: type, methods: Sequence[str]) -> bool:
    return all(callable(getattr(kind, name, None)) for name in methods)


def brief(value: Any) -> str:
    """What a function of the user's gave, in a few words of one line."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # noqa: BLE001 - an object of the user's may not even have words for itself
        text = object.__repr__(value)
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 4] + " ..."


def _failed(path: Path, error: BaseException, *, what: str) -> BadInput:
    """What went wrong in a file of the user's, and in which of its lines."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == path.resolve()]
    if isinstance(error, SyntaxError):
        lines = [error.lineno]
    where = english(" in line {lines}", lines=lines[-1]) if lines else ""
    text = " ".join(str(error).split())
    reason = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return BadInput(
        english("{what} {path} failed{where}: {reason}.", what=what, path=path, where=where, reason=reason),
        fix=english("correct it and run again"),
    )


Run = Callable[[Mapping[str, Array]], dict[str, Array]]
"""Runs a network: inputs by name, outputs by name."""

_EXAMPLE = english(
    "write it like\n\ndef evaluate(run, samples):\n    right = "
    'sum(run(feed)["logits"].argmax() == label for feed, label in zip(samples, '
    "LABELS))\n    return right / len(samples)"
)


_WHAT = english("The evaluator")


class EvaluationSamples(Sequence[Mapping[str, Array]]):
    """Samples as evaluators see them: a sequence of inputs, each read when it is asked for, and theirs to change.

    Attributes:
        names: What the samples are called.
        indices: Their places among all samples; for lists that go with them, as of labels.
    """

    names: tuple[str, ...]
    indices: tuple[int, ...]

    def __init__(self, model: Model, samples: Samples, indices: Sequence[int] | None = None) -> None:
        self._model, self._samples = model, samples
        self.indices = tuple(range(len(samples.names)) if indices is None else indices)
        self.names = tuple(samples.names[index] for index in self.indices)

    def __len__(self) -> int:
        return len(self.indices)

    @overload
    def __getitem__(self, index: int) -> Mapping[str, Array]: ...
    @overload
    def __getitem__(self, index: slice) -> "EvaluationSamples": ...
    def __getitem__(self, index: int | slice) -> "Mapping[str, Array] | EvaluationSamples":
        if isinstance(index, slice):
            return EvaluationSamples(self._model, self._samples, self.indices[index])
        feed = read_feed(self._model, self._samples, self.indices[index])
        return {name: np.array(each) for name, each in feed.items()}

    def __iter__(self) -> Iterator[Mapping[str, Array]]:
        return (self[index] for index in range(len(self)))


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Measures a network with a function of the user's.

    Attributes:
        name: What the score is called: the file's ``NAME``, else its own name.
        higher_is_better: Which way it is better: the file's ``HIGHER_IS_BETTER``, else yes.
        path: The file.
        function: Its ``evaluate``.
    """

    name: str
    higher_is_better: bool
    path: Path
    function: Callable[[Run, EvaluationSamples], Any]

    def __call__(self, run: Run, samples: EvaluationSamples) -> float:
        """The score of a network; the mean where the function gives a value for each sample.

        Raises:
            BadInput: The function failed, or gave no number.
            ModelFailed: The network failed on what the function fed it.
        """
        return float(np.mean(self.measure(run, samples)))

    def measure(self, run: Run, samples: EvaluationSamples) -> Array:
        """What the function gives: a score, of shape (), or one for each sample, of shape (samples,).

        Raises:
            BadInput: The function failed, or gave neither.
            ModelFailed: The network failed on what the function fed it.
        """
        value = call_user_code(self.function, run, samples, path=self.path, what=_WHAT)
        if isinstance(value, Iterator):  # which need not end
            value = call_user_code(list, islice(value, len(samples) + 1), path=self.path, what=_WHAT)
        found = _numbers(value)
        wrong = ""
        if found is None:
            wrong = english("is no number")
        elif found.size not in (1, len(samples)):
            wrong = english(
                "has {size} {size:value|values} for {count} {count:sample|samples}",
                size=found.size,
                count=len(samples),
            )
        elif not np.isfinite(found).all():
            at = int(np.flatnonzero(~np.isfinite(found))[0])
            wrong = (
                english("is not finite")
                if found.size == 1
                else english("is not finite for sample {names!r}", names=samples.names[at])
            )
        if found is None or wrong:
            raise BadInput(
                english(
                    "evaluate() in {path} gave {brief}, which {wrong}.",
                    path=self.path,
                    brief=brief(value),
                    wrong=wrong,
                ),
                fix=english("let it return one number, e.g. the share of right answers, or one per sample"),
            )
        # A single sample has a single value either way; columns and rows of values mean the same.
        return found.reshape(() if found.size == 1 else -1)


def _numbers(value: Any) -> Array | None:
    """Numbers as float64, whatever of Python's or numpy's types they have; None when they are none."""
    try:
        found = np.asarray(value)
        return found.astype(np.float64) if found.dtype.kind in "fiub" else None
    except Exception:  # noqa: BLE001 - tensors with gradients and the like: whatever objects answer
        return None


def load_evaluator(path: Path | str) -> Evaluator:
    """Read a Python file with a function ``evaluate(run, samples)``.

    Raises:
        BadInput: The file cannot be read or run, or has no such function.
    """
    return evaluator_in(load_user_module(Path(path), what=_WHAT), Path(path))


def evaluator_in(module: ModuleType, path: Path) -> Evaluator:
    """The evaluator that a Python file defines.

    Raises:
        BadInput: It has no function ``evaluate(run, samples)``, or says nothing clear of which way is better.
    """
    function = getattr(module, "evaluate", None)
    if not callable(function):
        raise BadInput(english("{path} has no function evaluate(run, samples).", path=path), fix=_EXAMPLE)
    return Evaluator(str(getattr(module, "NAME", path.stem)), higher_is_better(module, path), path, function)


def higher_is_better(given: Any, path: Path, *, default: bool | None = True) -> bool:
    """Which way a score of the user's is better, as the file or object says in ``HIGHER_IS_BETTER``.

    Args:
        given: The module or object.
        path: Where it comes from, for messages.
        default: What it is where nothing is said; None to demand it.

    Raises:
        BadInput: It says nothing clear: a word such as "no" would count as yes.
    """
    higher = getattr(given, "HIGHER_IS_BETTER", default)
    if higher is None and default is None:
        what = english("{path} does not say which way its number is better.", path=path)
        raise BadInput(what, fix=english("add HIGHER_IS_BETTER = True, or False"))
    if not isinstance(higher, bool | np.bool_ | int) or higher not in (0, 1):
        what = english(
            "HIGHER_IS_BETTER in {path} is {higher}, which is neither True nor False.",
            path=path,
            higher=brief(higher),
        )
        raise BadInput(what, fix=english("write HIGHER_IS_BETTER = False where less is better"))
    return bool(higher)


def make_run(model: Model, *, threads: int | None = None) -> Run:
    """A network as evaluators run it.

    Raises:
        ModelFailed: onnxruntime does not accept it.
    """
    session = open_session(model, threads=threads, optimize=True)
    names, needed = outputs(model), {spec.name for spec in inputs(model)}

    def run(feed: Mapping[str, Array]) -> dict[str, Array]:
        if set(feed) != needed:
            listed = [", ".join(map(repr, sorted(map(str, each)))) for each in (feed, needed)]
            what = english(
                "run() was fed {listed}; the inputs are {listed2}.",
                listed=listed[0] or english("nothing"),
                listed2=listed[1],
            )
            raise BadInput(what, fix=english("feed it what is in samples, or a dictionary with these keys"))
        return dict(zip(names, session.run(feed), strict=True))

    return run


class CountedRun:
    """A network that knows whether it was run at all.

    Args:
        run: Runs it.

    Attributes:
        calls: How often it was.
    """

    def __init__(self, run: Run) -> None:
        self._run, self.calls = run, 0

    def __call__(self, feed: Mapping[str, Array]) -> dict[str, Array]:
        """Run it."""
        self.calls += 1
        return self._run(feed)


def remembering(run: Run, *, max_memory: int | None = None) -> Run:
    """A network that computes what it is fed once, however often and in whichever order an evaluator asks.

    Args:
        run: Runs it.
        max_memory: Bytes the process may take, of which outputs get a part; most of the free memory by default.
    """
    known: dict[str, dict[str, Array]] = {}
    room = most = keepable_bytes(max_memory)

    def again(feed: Mapping[str, Array]) -> dict[str, Array]:
        nonlocal room
        if not all(isinstance(each, np.ndarray) and each.dtype.kind in "fiub" for each in feed.values()):
            return run(feed)
        key = feed_digest(feed)
        if key not in known:
            found = run(feed)
            size = sum(getattr(each, "nbytes", most) for each in found.values())
            if size > room:
                return found
            room -= size
            known[key] = found
        # An evaluator may write into what it is given.
        return {name: np.array(each) for name, each in known[key].items()}

    return again


# A hold-out: samples on which a repair or a search is judged, and which neither sees before.


FEWEST_HELD_OUT = 4
"""Fewer tell nothing of others, and as few are too few to choose by."""

# A third is held out, of few samples half: what is claimed of them depends on how many they are.
_SHARE, _ENOUGH = 1 / 3, 16
_SEED = 1


@dataclass(frozen=True, slots=True)
class Subset:
    """Some of the samples.

    Attributes:
        samples: All of them.
        indices: Which.
        names: Their names.
    """

    samples: Samples
    indices: tuple[int, ...]
    names: tuple[str, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        every = self.samples.names
        object.__setattr__(self, "names", tuple(every[index] for index in self.indices))

    @property
    def label(self) -> str:
        """Where they come from."""
        return self.samples.label

    def feed(self, index: int) -> Mapping[str, Array]:
        """The inputs of one of them."""
        return self.samples.feed(self.indices[index])


class JoinedSamples:
    """Samples, and others behind them.

    Args:
        first: The former.
        second: The latter, numbered on.

    Attributes:
        label: Where both come from.
        names: The names of both.
    """

    label: str
    names: tuple[str, ...]

    def __init__(self, first: Samples, second: Samples) -> None:
        self._first, self._second = first, second
        self.label = f"{first.label}, {second.label}"
        self.names = (*first.names, *second.names)

    def feed(self, index: int) -> Mapping[str, Array]:
        """The inputs of one of them."""
        behind = index - len(self._first.names)
        return self._first.feed(index) if behind < 0 else self._second.feed(behind)


# So many samples of either side are looked at: the same file given twice shows in a few.
_LOOKED_AT = 64


def check_apart(model: Model, used: Samples, test: Samples) -> None:
    """Refuse samples to test on that something was fitted to.

    Raises:
        BadInput: Some of them are both.
    """
    known, again = (
        {_digest(read_feed(model, each, at)) for at in spread(len(each.names), _LOOKED_AT)} - {""}
        for each in (used, test)
    )
    if known & again:
        what = english("--test-data holds samples that were used: {label}.", label=test.label)
        raise BadInput(what, fix=english("give others, or leave it out: some of --data are held out then"))


def _digest(feed: Mapping[str, Array]) -> str:
    """What tells one feed from others; empty where it is not all numbers."""
    return feed_digest(feed) if all(np.asarray(each).dtype.kind in "fiub" for each in feed.values()) else ""


@dataclass(frozen=True, slots=True)
class SampleSplit:
    """Samples in two parts.

    Attributes:
        used: Places of those that ranges are found on and choices are made by.
        held_out: Places of those that what was chosen is judged on; empty where there are too few.
    """

    used: tuple[int, ...]
    held_out: tuple[int, ...] = ()


def split_samples(
    total: int, *, share: float | None = None, labels: Array | None = None, fewest: int = FEWEST_HELD_OUT
) -> SampleSplit:
    """Hold out some of the samples: the same ones each time, spread over all of them.

    Sorted by class where classes are known, samples are cut into as many runs as are held out, and one of each run
    is: all classes are on both sides then. Which one of a run is drawn, with a fixed seed: every third sample of a
    set in which classes take turns might be all of one class.

    Args:
        total: How many samples there are.
        share: How large a part to hold out; by default a third, of few samples up to half.
        labels: The class of each sample; None where it is not known.
        fewest: At least so many on either side, else nothing is held out.
    """
    count = max(round(total * _SHARE), min(total // 2, _ENOUGH)) if share is None else round(total * share)
    if not fewest <= count <= total - fewest:
        return SampleSplit(tuple(range(total)))
    order = np.arange(total)
    if labels is not None and len(labels) == total:
        order = np.argsort(np.asarray(labels), kind="stable")
    drawn = np.random.default_rng(_SEED)
    edges = np.linspace(0, total, count + 1).round().astype(int)
    held = {int(order[drawn.integers(low, high)]) for low, high in pairwise(edges)}
    return SampleSplit(tuple(at for at in range(total) if at not in held), tuple(sorted(held)))


def finite_number(value: Any, *, of: str, infinite: bool = False, error: type[BadInput] = BadInput) -> float:
    """A number that a function of the user's gave.

    Args:
        value: What it gave.
        of: Which function, as the start of a sentence ("compare() of 'Mine'").
        infinite: Take infinite ones, too, such as the SQNR of equal outputs.
        error: What to raise.

    Raises:
        BadInput: It is no single number, or not a finite one.
    """
    try:
        found = np.asarray(value)
    except Exception:  # noqa: BLE001 - lists of different length, tensors with gradients: whatever objects answer
        found = np.zeros(0)
    usable = found.size == 1 and found.dtype.kind in "fiub"
    if not usable or not (np.isfinite(found).all() or (infinite and not np.isnan(found).any())):
        what = english("{of} gave {brief}, which is not a finite number.", of=of, brief=brief(value))
        raise error(what, fix=english("let it return one finite number"))
    return float(found.reshape(-1)[0])


def verdict(value: Any, *, of: str, error: type[BadInput] = BadInput) -> tuple[bool, float]:
    """Whether a measure is good enough and what was lost; a loss that is no number is the worst.

    Raises:
        BadInput: It is no such pair, or a loss that is no number is called good enough.
    """
    try:
        satisfied, loss = (np.asarray(each).item() for each in value)
        lost = float(loss)
        if isinstance(satisfied, str | bytes) or satisfied is None or (satisfied and math.isnan(lost)):
            raise ValueError
        return bool(satisfied), math.inf if math.isnan(lost) else lost
    except Exception as problem:
        what = english(
            "{of} returned {answer}, not whether it is good enough and what was lost.", of=of, answer=brief(value)
        )
        raise error(what, fix=english("return a pair such as (True, 0.002)")) from problem


_ROLL_BACK_KEYS = ("roll_back_config", "stop_flag")
_ROLL_BACK_FIX = english(
    "return {{'stop_flag': False, 'roll_back_config': {{layer: stays_quantized, ...}}}}, with initialize()'s names"
)


def roll_back_answer(
    answer: Any, layers: Sequence[str], *, tried: Collection[frozenset[str]], of: str
) -> tuple[dict[str, bool], bool]:
    """Which layers stay quantized next, and whether that is the last word.

    Args:
        answer: What a strategy gave, in AMCT's form. Layers that it does not name stay quantized: it says which go
            back.
        layers: All layers there are.
        tried: Layers in float of the models that it proposed before.
        of: Which function, as the start of a sentence.

    Raises:
        BadInput: It means nothing, names layers that there are not, or was given before without being the last.
    """
    if not isinstance(answer, Mapping):
        raise BadInput(
            english("{of} gave {brief}, not a dictionary.", of=of, brief=brief(answer)), fix=_ROLL_BACK_FIX
        )
    for key in _ROLL_BACK_KEYS:
        if key not in answer:
            raise BadInput(english("{of} gave an answer without {key!r}.", of=of, key=key), fix=_ROLL_BACK_FIX)
    config = answer["roll_back_config"]
    if not isinstance(config, Mapping):
        what = english("{of} gave {brief} as roll_back_config, not a dictionary.", of=of, brief=brief(config))
        raise BadInput(what, fix=_ROLL_BACK_FIX)
    known = set(layers)
    for name, stays in config.items():
        if name not in known:
            what = english("{of} names a layer {name!r}, which is not quantized.", of=of, name=str(name))
            near = nearest(str(name), layers)
            fix = english("did you mean {near!r}?", near=near) if near else _ROLL_BACK_FIX
            raise BadInput(what, fix=fix)
        if not isinstance(stays, bool | np.bool_ | int | np.integer) or stays not in (0, 1):
            what = english("{of} gave {brief} for layer {name!r}.", of=of, brief=brief(stays), name=name)
            raise BadInput(what, fix=english("True where it stays quantized, False where it goes back to float"))
    # In the order of the answer, as the vendor writes it down; then what it says nothing of.
    named = {str(name): bool(stays) for name, stays in config.items()}
    proposed = named | {name: True for name in layers if name not in named}
    stop = bool(answer["stop_flag"])
    floats = frozenset(name for name, stays in proposed.items() if not stays)
    if floats in tried and not stop:
        raise proposed_before(of, fix=english("propose others, or set stop_flag to True"))
    return proposed, stop


def proposed_before(of: str, *, fix: str) -> BadInput:
    """A strategy that would try for ever what it has tried."""
    return BadInput(english("{of} proposes what it has proposed before: it would never end.", of=of), fix=fix)
