"""A call of a public function: its options, how long it took, and how its errors are spelled."""

import functools
import inspect
import itertools
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, TypeVar

from roundoff.api.inputs import DataLike, PathLike, describe_value, is_path
from roundoff.core.document import environment
from roundoff.core.progress import SILENT, Progress
from roundoff.errors import BadInput, RoundoffError, nearest, typed_words
from roundoff.messages.catalogue import Language
from roundoff.messages.message import Message, Translatable, english
from roundoff.messages.numbers import parse_number, parse_size, parse_sizes

if TYPE_CHECKING:
    from roundoff.core.document import InputFile, RunDocument
    from roundoff.core.tensors import Topology
    from roundoff.run.budget import RunBudget
    from roundoff.samples.options import SampleOptions

P = ParamSpec("P")
R = TypeVar("R")

_MAX_THREADS = 1024
"""More than the cores of any machine this runs on; far more exhaust the system before any work is done."""


class Limits(TypedDict, total=False):
    """What a call may take, and who is told of its progress."""

    threads: int | None
    max_memory: int | str | None
    progress: Progress


class DataOptions(Limits, total=False):
    """What a model is fed, and how files of samples are read; the words are those of the command line."""

    data: DataLike
    samples: int | None
    data_format: str
    raw_dtype: str | None
    raw_shape: Sequence[int] | str | None
    image_color: str | None
    image_layout: str | None
    image_size: Sequence[int] | str | None
    image_resize: str | None
    image_filter: str | None
    image_resizer: str | None
    image_pad: int | None
    scale: float | str | None
    mean: float | str | Sequence[float] | None
    std: float | str | Sequence[float] | None


class QuantizeOptions(DataOptions, total=False):
    """How a model is quantized, once it is known for which chip."""

    calibration: str | Sequence[str] | None
    weight_method: str | None
    calibration_option: Mapping[str, float] | Sequence[str]
    set: Mapping[str, str] | Sequence[Any]
    rules: PathLike | None


class TargetOptions(QuantizeOptions, total=False):
    """The chip, how to quantize for it, and what the model is fed."""

    target: Any


# What the public function was given, and what of it tells the caller of its work and changes no result.
_GIVEN: ContextVar[Mapping[str, Any]] = ContextVar("what a function was given", default={})  # noqa: B039
_OF_CALLER = frozenset({"progress", "tell", "on_trial", "explore", "dask"})

# What the commands that cases are made of take without an option, and which options may be repeated.
_PLACED: dict[str, tuple[str, ...]] = {
    "compare": ("reference", "candidate"),
    "distribution": ("model", "nodes"),
    "channels": ("model", "nodes"),
    **dict.fromkeys(
        ("quantize", "tune", "diagnose", "layers", "sensitivity", "accumulate", "partial", "outliers", "samples"),
        ("model",),
    ),
}
_REPEATED = frozenset({"set", "calibration_option", "only", "nodes", "group", "output_node"})

# How options are spelled in messages. They are written as the command line spells them, and respelled where a
# function was called: whoever typed `max_memory=` looks for no `--max-memory`.

_OPTION = re.compile(r"(?<![\w-])--([a-z]+(?:-[a-z]+)*)(?![\w-])")
_OUTPUT = re.compile(r"(?<![\w-])-o(?![\w-])")
_COMMAND = "roundoff "


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Let the errors of a public function name its keywords, and its run document what it was given."""

    @functools.wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        token = _GIVEN.set(_arguments(function, *args, **options))
        try:
            return function(*args, **options)
        except RoundoffError as error:
            if typed_words() is None:
                error.what, error.fix = _respelled(error.what), _respelled(error.fix)
                error.args = (error.what,)
            raise
        finally:
            _GIVEN.reset(token)

    return call


def _arguments(function: Callable[P, R], *args: P.args, **options: P.kwargs) -> dict[str, Any]:
    """What was given, by name, in the order of the signature.

    Raises:
        BadInput: The function takes nothing of that name, takes less, or misses what it needs.
    """
    signature = inspect.signature(function)
    try:
        given = dict(signature.bind(*args, **options).arguments)
    except TypeError as error:
        raise _no_such_call(function.__name__, signature, options, str(error)) from error
    more = next((name for name, each in signature.parameters.items() if each.kind == each.VAR_KEYWORD), "")
    given |= given.pop(more, {})
    return {name: value for name, value in given.items() if value is not None and name not in _OF_CALLER}


def _no_such_call(name: str, signature: inspect.Signature, options: Mapping[str, Any], told: str) -> BadInput:
    """What is wrong with how a function was called: Python's own words, where it is no unknown keyword."""
    parameters = signature.parameters.values()
    known = [each.name for each in parameters if each.name != "self" and each.kind != each.VAR_KEYWORD]
    unknown = next((each for each in options if each not in known), None)
    # What a function shares with others is checked by its `Call`.
    if unknown is not None and not any(each.kind == each.VAR_KEYWORD for each in parameters):
        return BadInput(_no_argument(name, unknown), fix=nearest(unknown, known))
    what = english("roundoff.{name}(): {told}.", name=name, told=told)
    return BadInput(what, fix=english("it takes: {known}", known=", ".join(known)))


def _no_argument(name: str, given: str) -> str:
    return english("roundoff.{name}() takes no argument {name2!r}.", name=name, name2=given)


@dataclass(frozen=True, slots=True)
class _KeywordMessage(Message):
    """A message whose options are spelled as keywords, in every language."""

    def within(self, language: Language) -> str:
        return _as_keywords(Message.within(self, language), language)


def _respelled(text: str) -> str:
    """The same text for whoever called a function, in whatever language it is read."""
    if isinstance(text, Translatable):
        return Translatable(_KeywordMessage(text.message.key, text.message.arguments))
    return _as_keywords(text)


def _as_keywords(text: str, language: Language = "en") -> str:
    """Options as keywords; commands in a text stay commands."""
    if _COMMAND in text:
        return text
    named = _OPTION.sub(lambda found: found[1].replace("-", "_") + "=", text)
    return _OUTPUT.sub("folder or file" if language == "en" else "文件夹或文件", named)


def words_in(given: str | Sequence[str] | None, *, option: str) -> tuple[str, ...]:
    """Names that were given as a sequence, or with commas between.

    Raises:
        BadInput: It is neither.
    """
    if given is None:
        return ()
    if isinstance(given, str):
        return tuple(word.strip() for word in given.split(",") if word.strip())
    if isinstance(given, Sequence) and all(isinstance(each, str) for each in given):
        return tuple(given)
    raise BadInput(
        english("{option} is {said_of}.", option=option, said_of=describe_value(given)),
        fix=english("give a name, or a list of names"),
    )


def names_in(given: str | Sequence[str]) -> tuple[str, ...]:
    """Names, of which each may contain anything.

    Raises:
        BadInput: It is no name, and no sequence of names.
    """
    if isinstance(given, str):
        return (given,)
    if not isinstance(given, Sequence) or not all(isinstance(each, str) for each in given):
        raise BadInput(
            english("The names are {said_of}.", said_of=describe_value(given)),
            fix=english("give a name, or a list of names"),
        )
    return tuple(given)


def one_of(**given: Any) -> None:
    """Refuse two arguments of which each stands for the other.

    Raises:
        BadInput: Both were given.
    """
    (one, first), (other, second) = given.items()
    if first is not None and second is not None:
        raise BadInput(
            "Both --{one} and --{other} were given.", fix=english("leave one of them out"), one=one, other=other
        )


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a public function.

    Attributes:
        name: Of the function.
        options: The options that it shares with others, by keyword.
        known: The keywords that there are.
        started: When.
        given: What the function was given, for the run document.
    """

    name: str
    options: Mapping[str, Any]
    known: type
    started: float = field(default_factory=time.monotonic)
    given: Mapping[str, Any] = field(default_factory=_GIVEN.get)

    def __post_init__(self) -> None:
        names = _keys(self.known)
        for name in self.options:
            if name not in names:
                raise BadInput(_no_argument(self.name, name), fix=nearest(name, sorted(names)))
        self._check_limits()
        data = self.options.get("data")
        if isinstance(data, Iterator):
            # What can be walked through once only is needed again, for the run document if for nothing else.
            kept = list(itertools.islice(data, self.options.get("samples")))
            object.__setattr__(self, "options", {**self.options, "data": kept})

    def get(self, name: str, default: Any = None) -> Any:
        """An option; what was left out, or given as None, has its default."""
        value = self.options.get(name)
        return default if value is None else value

    @property
    def progress(self) -> Progress:
        """Who is told how far it is."""
        found: Progress = self.get("progress", SILENT)
        return found

    @property
    def threads(self) -> int | None:
        """How many threads may be used."""
        found: int | None = self.get("threads")
        return found

    @property
    def max_memory(self) -> int | None:
        """Bytes to stay within."""
        given = self.get("max_memory")
        return parse_size(given) if isinstance(given, str) else given

    @property
    def limits(self) -> "RunBudget":
        """Threads and memory."""
        from roundoff.run.budget import RunBudget

        return RunBudget(threads=self.threads, max_memory=self.max_memory)

    @property
    def elapsed_s(self) -> float:
        """How long it has taken so far."""
        return time.monotonic() - self.started

    def sample_options(self, *, limit: int | None) -> "SampleOptions":
        """How samples are read.

        Args:
            limit: Take at most so many.

        Raises:
            BadInput: The options contradict each other, or a value cannot be used.
        """
        from roundoff.samples.options import IMAGE_FLAGS, ImageOptions, SampleOptions

        image: dict[str, Any] = {}
        for name, flag in IMAGE_FLAGS.items():
            value = self.get(flag.strip("-").replace("-", "_"))
            if value is not None:
                image[name] = _image_value(flag, value)
        shape = self.get("raw_shape")
        return SampleOptions(
            format=self.get("data_format", "auto"),
            limit=_count("--samples", limit),
            raw_dtype=self.get("raw_dtype"),
            raw_shape=None if shape is None else sizes_in("--raw-shape", shape),
            image=ImageOptions(**image) if image else None,
        )

    def document(
        self, inputs: "Sequence[InputFile]", network: "Topology | None" = None, **found: Any
    ) -> "RunDocument":
        """The run document.

        Args:
            inputs: What was read.
            network: The float network that names are of.
            found: The results, by their names in the document.
        """
        from roundoff.core.document import SCHEMA, RunDocument

        typed = typed_words()
        return RunDocument(
            schema=SCHEMA,
            command=_command(self.name, self.given) if typed is None else ("roundoff", *typed),
            inputs=tuple(inputs),
            network=network,
            environment=environment(self.elapsed_s),
            **found,
        )

    def _check_limits(self) -> None:
        threads = self.get("threads")
        if threads is not None and (not _is_whole(threads) or not 1 <= threads <= _MAX_THREADS):
            raise BadInput(
                english("--threads {threads!r} is no number of threads.", threads=threads),
                fix=english("give 1 to {max_threads}", max_threads=_MAX_THREADS),
            )
        memory = self.get("max_memory")
        if memory is not None and not isinstance(memory, str) and (not _is_whole(memory) or memory < 1):
            raise BadInput(
                english("--max-memory {memory!r} is no size.", memory=memory),
                fix=english("give bytes, or a text such as '2GiB'"),
            )


def _keys(options: type) -> frozenset[str]:
    return frozenset(options.__annotations__)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _command(name: str, given: Mapping[str, Any]) -> tuple[str, ...]:
    """The command that does the same; the call, where something is given that cannot be typed."""
    placed = _PLACED.get(name, ())
    words = {option: _typed(option, value) for option, value in given.items()}
    # The first name would be taken for the model that was left out.
    unclear = "nodes" in placed and "nodes" in words and "model" not in words
    if not placed or None in words.values() or unclear:
        said = [f"{option}={value if is_path(value) else repr(value)}" for option, value in given.items()]
        return (f"roundoff.{name}", *(each for each, typed in zip(said, words.values(), strict=True) if typed))
    plain = [word for option in placed for word in words.get(option) or ()]
    options = [
        f"--{option.replace('_', '-')}" + (f"={word}" if word else "")
        for option, several in words.items()
        if option not in placed
        for word in several or ()
    ]
    return ("roundoff", name, *plain, *options)


def _typed(option: str, value: Any) -> tuple[str, ...] | None:
    """What is typed behind an option, once for each time it is; None where the value cannot be."""
    if isinstance(value, bool):
        return ("",) if value else ()
    if is_path(value) or isinstance(value, int | float):
        return (_word(value),)
    if isinstance(value, Mapping):
        words = [_word(each) for each in value.values()]
        return tuple(f"{key}={word}" for key, word in zip(value, words, strict=True)) if all(words) else None
    # A list of samples, the two files of a Caffe net and lists of lists are no list of names or numbers.
    if (
        option in ("model", "data", "leave_out")
        or not isinstance(value, list | tuple)
        or not all(map(_word, value))
    ):
        return None
    return tuple(map(_word, value)) if option in _REPEATED else (",".join(map(_word, value)),)


def _word(value: Any) -> str:
    """A path, a name or a number as it is typed; nothing for anything else."""
    return os.fspath(value) if is_path(value) else str(value) if isinstance(value, int | float) else ""


def _count(option: str, value: object) -> int | None:
    if value is not None and not _is_whole(value):
        raise BadInput(
            english("{option} is {said_of}.", option=option, said_of=describe_value(value)),
            fix=english("give a whole number from 1 on"),
        )
    return value  # type: ignore[return-value]


def sizes_in(option: str, value: Any) -> tuple[int, ...]:
    """Sizes of axes.

    Raises:
        BadInput: They are something else.
    """
    if isinstance(value, str):
        try:
            return parse_sizes(value)
        except ValueError:
            pass
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(map(_is_whole, value)):
        raise BadInput(
            english("{option} is {value!r}, which is no list of sizes.", option=option, value=value),
            fix=english("give sizes, as in (224, 224)"),
        )
    return tuple(value)


def numbers_in(value: Any) -> Any:
    """Numbers that are written as on the command line, ``"1/255"`` or ``"0.5,0.4,0.4"``; all else as it is."""
    if isinstance(value, list | tuple):
        return type(value)(numbers_in(each) for each in value)
    if not isinstance(value, str):
        return value
    try:
        found = tuple(parse_number(part) for part in value.split(","))
    except ValueError:
        return value
    return found if len(found) > 1 else found[0]


def _image_value(flag: str, value: Any) -> Any:
    """A value of an option on pictures, in the type that is kept."""
    if flag == "--image-size":
        sizes = sizes_in(flag, value)
        if len(sizes) != 2:
            raise BadInput(
                english("{flag} is {value!r}.", flag=flag, value=value),
                fix=english("give height and width, as in (224, 224)"),
            )
        return sizes
    if flag in ("--scale", "--mean", "--std"):
        value = numbers_in(value)
        many = value if isinstance(value, list | tuple) else [value]
        if (flag == "--scale" and many is value) or not all(isinstance(each, int | float) for each in many):
            raise BadInput(
                english("{flag} is {value!r}, which is no number.", flag=flag, value=value),
                fix=english("give {flag} numbers, as in 0.5", flag=flag),
            )
        return tuple(map(float, many)) if many is value else float(value)
    return value
