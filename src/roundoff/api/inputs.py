"""What may be given as a model, as samples, as labels and as an evaluator, and what becomes of it.

A model is a path, an ``onnx.ModelProto`` or the two files of a Caffe net. Samples are a path, a path for each
input, an array, an array for each input, or anything that gives sample after sample.
"""

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from roundoff.core.document import array_input, bytes_input, data_paths, input_file
from roundoff.core.files import pair_path, regular_file
from roundoff.errors import BadInput, nearest
from roundoff.messages.message import english

if TYPE_CHECKING:
    from roundoff.core.document import InputFile
    from roundoff.core.tensors import Array, InputSpec
    from roundoff.graph.load import Model
    from roundoff.run.capture import Samples
    from roundoff.run.evaluators import Evaluator
    from roundoff.samples.options import SampleOptions

PathLike: TypeAlias = str | os.PathLike[str]
ModelLike: TypeAlias = Any
"""A path, an ``onnx.ModelProto``, a pair of Caffe's files, or what `roundoff.load_model` gave."""
DataLike: TypeAlias = Any
"""A path, a path by input, an array, an array by input, or an iterable of samples."""
LabelsLike: TypeAlias = Any
"""A path, or class numbers."""
EvaluatorLike: TypeAlias = PathLike | Callable[..., Any]
"""A path of a Python file, or a function ``evaluate(run, samples)``."""

_MODELS = english("give a path, an onnx.ModelProto, or ('net.prototxt', 'net.caffemodel')")
_DATA = english("give a path, an array, a dictionary of either by input, or a list of samples")
_IN_MEMORY = "model.onnx"
_FROM_ZERO = english("write whole numbers from 0 on")


def is_path(given: object) -> bool:
    """Whether it names a file."""
    return isinstance(given, str | os.PathLike)


def as_path(given: Any, *, option: str) -> Path:
    """The path that was given.

    Raises:
        BadInput: It is none.
    """
    if not is_path(given) or isinstance(given, bytes):
        raise BadInput(
            english("{option} is {said_of}, not a path.", option=option, said_of=describe_value(given)),
            fix=english("give a str or a pathlib.Path"),
        )
    return Path(given)


def describe_value(given: object) -> str:
    """A value in a few words, for a message."""
    return "None" if given is None else english("of type {name}", name=type(given).__name__)


# Models.


@dataclass(frozen=True, slots=True)
class GivenModel:
    """A model that was given.

    Attributes:
        model: As it was loaded.
        path: What the user calls it.
        in_memory: Whether there is no file.
    """

    model: "Model"
    path: Path
    in_memory: bool

    def origin(self, role: str) -> "InputFile":
        """What it is known by."""
        if not self.in_memory:
            return input_file(role, self.path)
        return bytes_input(role, f"({type(self.model.proto).__name__})", self.model.proto.SerializeToString())


def open_model(given: ModelLike, *, what: str = english("The model")) -> GivenModel:
    """Load a model, whatever it was given as.

    Args:
        given: See `ModelLike`.
        what: What it is called in messages.

    Raises:
        BadInput: It is nothing of that kind, or cannot be used.
    """
    from roundoff.graph.load import Model, load_model, model_from_proto

    if isinstance(given, GivenModel):
        return given
    if isinstance(given, Model):
        return GivenModel(given, given.path, in_memory=not given.path.is_file())
    if is_path(given):
        return GivenModel(load_model(Path(given)), Path(given), in_memory=False)
    if isinstance(given, tuple | list) and len(given) == 2 and all(map(is_path, given)):
        path = pair_path(Path(given[0]), Path(given[1]))
        return GivenModel(load_model(path), path, in_memory=False)
    if type(given).__name__ == "ModelProto" and hasattr(given, "SerializeToString"):
        path = Path(_IN_MEMORY)
        return GivenModel(model_from_proto(given, path=path), path, in_memory=True)
    raise BadInput(english("{what} is {said_of}.", what=what, said_of=describe_value(given)), fix=_MODELS)


# Samples.


def open_data(given: DataLike, inputs: "Sequence[InputSpec]", options: "SampleOptions | None" = None) -> "Samples":
    """Open samples, whatever they were given as.

    Args:
        given: See `DataLike`; a sequence of words is what the command line takes: PATH, or INPUT=PATH for each.
        inputs: What the model expects.
        options: How files are read.

    Raises:
        BadInput: It is nothing of that kind, does not fit the inputs, or options were given that have no effect.
    """
    from roundoff.samples.options import SampleOptions
    from roundoff.samples.sample_set import open_samples

    options = SampleOptions() if options is None else options
    names = [spec.name for spec in inputs]
    source = _source(given, names)
    if isinstance(source, Path | dict):
        return open_samples(source, inputs, options)
    if not inputs:
        raise BadInput(
            english("The model has no inputs, so it takes no samples."), fix=english("leave --data out")
        )
    return _in_memory(given, inputs, options)


def _source(given: DataLike, names: Sequence[str]) -> Path | dict[str, Path] | None:
    """Where the samples are; None when they are in memory."""
    if given is None or (isinstance(given, list | tuple) and not given):
        raise BadInput(english("The model needs samples and none were given."), fix=english("add --data PATH"))
    if is_path(given):
        return _at_home(os.fspath(given))
    if isinstance(given, Mapping):
        if not given:
            listed = ", ".join(map(repr, names))
            raise BadInput(
                english("The data is an empty dictionary."),
                fix=english("give something for each input: {listed}", listed=listed),
            )
        paths = [is_path(each) for each in given.values()]
        if all(paths):
            return {str(name): _at_home(os.fspath(each)) for name, each in given.items()}
        if any(paths):
            raise BadInput(
                english("The data mixes paths and arrays."),
                fix=english("give paths for all inputs, or arrays for all"),
            )
        return None
    if isinstance(given, list | tuple) and all(map(is_path, given)):
        return _from_words([os.fspath(each) for each in given], names)
    return None


def _in_memory(given: DataLike, inputs: "Sequence[InputSpec]", options: "SampleOptions") -> "Samples":
    from roundoff.samples.arrays import GivenSamples, array_samples, listed_samples

    said = _file_options(options)
    if said:
        what = english("{said} says how files are read, but the samples are in memory.", said=said[0])
        raise BadInput(what, fix=english("leave {said} out", said=said[0]))
    if hasattr(given, "feed") and hasattr(given, "names"):
        count = len(given.names)
        if options.limit is None or options.limit >= count:
            return given  # type: ignore[no-any-return]
        return GivenSamples(given.label, given.names[: options.limit], lambda index: dict(given.feed(index)))
    if isinstance(given, Mapping) or hasattr(given, "__array__"):
        return array_samples(given, inputs, limit=options.limit)
    if isinstance(given, Iterable) or (hasattr(given, "__getitem__") and hasattr(given, "__len__")):
        if isinstance(given, bytes | bytearray):
            raise BadInput(english("The data is of type bytes."), fix=_DATA)
        return listed_samples(given, inputs, limit=options.limit)
    raise BadInput(english("The data is {said_of}.", said_of=describe_value(given)), fix=_DATA)


def _file_options(options: "SampleOptions") -> list[str]:
    """The options for files that were given."""
    from roundoff.samples.options import IMAGE_FLAGS

    said = ["--data-format"] if options.format != "auto" else []
    said += ["--raw-dtype"] if options.raw_dtype is not None else []
    said += ["--raw-shape"] if options.raw_shape is not None else []
    return said + ([] if options.image is None else [IMAGE_FLAGS[name] for name in options.image.given()])


def _from_words(given: Sequence[str], names: Sequence[str]) -> Path | dict[str, Path]:
    """A single path, or a path for each input that was named."""
    parts = [_split(text, names) for text in given]
    if len(parts) == 1 and parts[0][0] is None:
        return parts[0][1]
    source: dict[str, Path] = {}
    for (name, path), text in zip(parts, given, strict=True):
        if name is None:
            raise BadInput(
                "--data {text} does not say which input it is for, but there are {count} of them.",
                fix=english("write --data INPUT={text}; inputs: {names}", text=text, names=", ".join(names)),
                text=text,
                count=len(given),
            )
        if name in source:
            raise BadInput(
                "The input {name!r} was given twice: {source} and {path}.",
                fix=english("keep one --data per input; put several files into a folder or a list file"),
                name=name,
                source=source[name],
                path=path,
            )
        source[name] = path
    return source


def _split(text: str, names: Sequence[str]) -> tuple[str | None, Path]:
    # Names of inputs may contain "=", so known names come first, the longest before its own beginnings.
    for name in sorted(names, key=len, reverse=True):
        if text.startswith(f"{name}="):
            return name, _at_home(text[len(name) + 1 :])
    path = _at_home(text)
    name, separator, _ = text.partition("=")
    if separator and not path.exists():
        raise BadInput(
            "The model has no input {name!r} (--data {text}).", fix=nearest(name, names), name=name, text=text
        )
    return None, path


def _at_home(text: str) -> Path:
    """The path with ``~`` resolved, which no shell does behind ``INPUT=``; as it is when there is no such user."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def data_inputs(role: str, given: DataLike, samples: "Samples | None") -> "tuple[InputFile, ...]":
    """What samples are known by: the hashes of their files, or of the arrays themselves.

    Args:
        role: What they were used as.
        given: As the caller gave them.
        samples: What became of it; None where it was never opened.
    """
    if given is None or (isinstance(given, list | tuple) and not given):
        return ()
    if is_path(given):
        return (input_file(role, Path(given)),)
    if isinstance(given, list | tuple) and all(map(is_path, given)):
        return tuple(input_file(role, path) for path in data_paths([os.fspath(each) for each in given]))
    if isinstance(given, Mapping) and all(map(is_path, given.values())):
        return tuple(input_file(role, Path(each)) for each in given.values())
    if samples is None:
        return ()
    return (array_input(role, (samples.feed(index) for index in range(len(samples.names)))),)


def file_inputs(*given: tuple[str, Any]) -> "tuple[InputFile, ...]":
    """What files are known by; what is no path is left out.

    Args:
        given: Roles and what was given.
    """
    return tuple(input_file(role, Path(each)) for role, each in given if is_path(each))


def own_inputs(*given: tuple[str, Any]) -> "tuple[InputFile, ...]":
    """The same of what may be a name, too: a chip or a strategy that ships with roundoff is left out."""
    return file_inputs(*((role, each) for role, each in given if is_path(each) and Path(each).is_file()))


# Labels and evaluators.


def open_labels(given: LabelsLike, names: Sequence[str], *, cut: bool = False) -> "Array | None":
    """The right class of each sample.

    Args:
        given: A file, or the numbers; None for none.
        names: What the samples are called.
        cut: Whoever takes the first samples only means the first labels too.

    Raises:
        BadInput: It cannot be read, or holds no class numbers.
    """
    if given is None:
        return None
    import numpy as np

    from roundoff.samples.labels import load_labels

    if is_path(given):
        found = load_labels(Path(given), names)
    else:
        try:
            array = np.asarray(list(given) if not hasattr(given, "__array__") else given)
        except (TypeError, ValueError) as error:
            fix = english("give a file, or whole numbers")
            raise BadInput(english("The labels are {said_of}.", said_of=describe_value(given)), fix=fix) from error
        if array.dtype.kind not in "iu" or not array.size:
            what = english(
                "The labels are {name} of shape {shape}; labels are whole numbers.",
                name=array.dtype.name,
                shape=list(array.shape),
            )
            raise BadInput(what, fix=english("give the class numbers as int64"))
        if (array < 0).any():
            raise BadInput(
                english("The labels hold {flat}, which is not a class number.", flat=array[array < 0].flat[0]),
                fix=_FROM_ZERO,
            )
        found = array.reshape(-1).astype(np.int64)
    return found[: len(names)] if cut and found.size > len(names) else found


def check_files(*given: tuple[str, Any]) -> None:
    """Refuse files that are not there, before any work.

    Args:
        given: What each is called, and what was given.
    """
    for what, each in given:
        if is_path(each):
            regular_file(Path(each), what=what)


def known_evaluator(given: Any) -> Any:
    """One of the evaluators that ship for its name, where there is no file of that name; all else as it is."""
    from roundoff.measure.tokens import TOKEN_EVALUATORS, token_evaluators

    named = is_path(given) and str(given) in TOKEN_EVALUATORS and not Path(given).exists()
    return token_evaluators()[str(given)] if named else given


def open_evaluator(given: EvaluatorLike | None) -> "Evaluator | None":
    """The user's measure of a network.

    Raises:
        BadInput: It is neither a file with ``evaluate(run, samples)`` nor a function.
    """
    from roundoff.run.evaluators import Evaluator, load_evaluator

    if given is None or isinstance(given, Evaluator):
        return given
    if is_path(given):
        return load_evaluator(Path(given))  # type: ignore[arg-type]
    if not callable(given):
        fix = english("give a Python file or a function evaluate(run, samples)")
        raise BadInput(english("The evaluator is {said_of}.", said_of=describe_value(given)), fix=fix)
    name = str(getattr(given, "NAME", getattr(given, "__name__", "evaluate")))
    try:
        path = Path(inspect.getsourcefile(given) or name)
    except TypeError:
        path = Path(name)
    return Evaluator(name, bool(getattr(given, "HIGHER_IS_BETTER", True)), path, given)
