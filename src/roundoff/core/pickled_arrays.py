"""Arrays in pickles, read without executing anything.

``numpy.save`` of a dictionary writes a pickle: a small program that says which functions to call. Here its steps
are only followed on paper. Dictionaries, lists, tuples, texts, numbers and plain numpy arrays are understood; the
few functions that numpy names to rebuild arrays are done by hand; any other function is refused by its name.
"""

import pickletools
import struct
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from roundoff.core.mapped import MAX_AXES, check_shape, size_bytes
from roundoff.core.tensors import DType
from roundoff.core.unreadable import Unreadable

__all__ = ["read_pickled"]

_MOST_STEPS = 5_000_000
_RESAVE = "save plain arrays: numpy.savez(path, **{name: array}), or numpy.save of {name: array}"
_MARK = object()
_DAMAGE = (ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError, struct.error, AttributeError)
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_VALUES = frozenset(
    (
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    )
)
_NEW: dict[str, Callable[[], Any]] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_GETS, _PUTS = ("GET", "BINGET", "LONG_BINGET"), ("PUT", "BINPUT", "LONG_BINPUT")


def read_pickled(content: bytes) -> Any:
    """Follow a pickle to its end.

    Returns:
        What it stands for: a dictionary, list, tuple, text, number or array; an array of objects that holds one
        thing, as ``numpy.save`` makes it of a dictionary, is that thing.

    Raises:
        Unreadable: It is damaged, or needs a function that is not one of numpy's for plain arrays.
    """
    machine = _Machine()
    try:
        with warnings.catch_warnings():
            # Texts of old pickles may hold odd escapes, of which Python warns whoever reads them.
            warnings.simplefilter("ignore")
            _follow(machine, content)
        return _finished(machine.stack[-1])
    except _DAMAGE as error:
        raise Unreadable("is a damaged pickle", fix=_RESAVE) from error


def _follow(machine: "_Machine", content: bytes) -> None:
    for step, (opcode, argument, _) in enumerate(pickletools.genops(content)):
        if step > _MOST_STEPS:
            raise Unreadable("is a pickle of absurdly many steps", fix=_RESAVE)
        machine.step(opcode.name, argument)


@dataclass(frozen=True, slots=True)
class _Function:
    """A function that the pickle names."""

    name: str


@dataclass(slots=True)
class _Type:
    """A numpy type in the making: its byte order comes later."""

    code: str
    order: str = "="

    def finished(self) -> DType:
        kind, size = self.code[:1], self.code[1:]
        if self.code in ("?", "b1", "bool"):
            return np.dtype(bool)
        if kind not in "iufcV" or not size.isdigit() or len(size) > 2 or self.order not in "<>=|":
            raise Unreadable(f"holds values of type {self.code!r:.60}, not numbers", fix=_RESAVE)
        dtype: DType = np.dtype(f"{self.order}{self.code}")
        return dtype


@dataclass(slots=True)
class _Pending:
    """An array in the making: type, shape and values come later."""

    array: Any = None


class _Machine:
    """The stack and the memory of a pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self._memory: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:
        if name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _VALUES:
            self.stack.append(argument)
        elif name in _NEW:
            self.stack.append(_NEW[name]())
        elif name in _TUPLES:
            count = _TUPLES[name]
            self.stack[-count:] = [tuple(self._last(count))]
        elif name in _GETS:
            self.stack.append(self._memory[int(argument)])
        elif name in _PUTS:
            self._memory[int(argument)] = self.stack[-1]
        else:
            self._other(name, argument)

    def _other(self, name: str, argument: Any) -> None:
        match name:
            case "PROTO" | "FRAME" | "STOP":
                pass
            case "MARK":
                self.stack.append(_MARK)
            case "MEMOIZE":
                self._memory[len(self._memory)] = self.stack[-1]
            case "POP":
                self.stack.pop()
            case "GLOBAL":
                self.stack.append(_function(str(argument).replace(" ", ".", 1)))
            case "STACK_GLOBAL":
                module, function = self._last(2)
                self.stack[-2:] = [_function(f"{module}.{function}")]
            case "REDUCE":
                function, arguments = self._last(2)
                self.stack[-2:] = [_called(function, arguments)]
            case "BUILD":
                state = self.stack.pop()
                _build(self.stack[-1], state)
            case _:
                self._collect(name)

    def _collect(self, name: str) -> None:
        """What takes everything above the mark, or one or two values, into a container."""
        match name:
            case "TUPLE":
                self.stack.append(tuple(self._above()))
            case "LIST":
                self.stack.append(self._above())
            case "DICT":
                self.stack.append(_table(self._above()))
            case "APPEND":
                value = self.stack.pop()
                self._container(list).append(value)
            case "APPENDS":
                values = self._above()
                self._container(list).extend(values)
            case "SETITEM":
                pair = [self.stack.pop(), self.stack.pop()]
                self._container(dict).update(_table(pair[::-1]))
            case "SETITEMS":
                values = self._above()
                self._container(dict).update(_table(values))
            case _:
                raise Unreadable(f"is a pickle with the step {name}, which plain arrays do not need", fix=_RESAVE)

    def _last(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise IndexError(count)
        return self.stack[-count:]

    def _above(self) -> list[Any]:
        """Take everything above the last mark, and the mark, off the stack."""
        marks = (index for index in range(len(self.stack) - 1, -1, -1) if self.stack[index] is _MARK)
        place = next(marks, None)
        if place is None:
            raise IndexError("no mark")
        values = self.stack[place + 1 :]
        del self.stack[place:]
        return values

    def _container(self, kind: type) -> Any:
        if type(self.stack[-1]) is not kind:
            raise TypeError(kind)
        return self.stack[-1]


def _table(values: list[Any]) -> dict[str, Any]:
    keys = values[::2]
    if len(values) % 2 or not all(isinstance(key, str | bytes | int) for key in keys):
        raise Unreadable("is a pickle of a dictionary whose keys are no names", fix=_RESAVE)
    names = [key.decode("latin-1") if isinstance(key, bytes) else str(key) for key in keys]
    return dict(zip(names, values[1::2], strict=True))


def _function(name: str) -> _Function:
    """A function of numpy's by its one name, whatever the version calls its module."""
    plain = name.replace("numpy._core.", "numpy.core.")
    if plain not in _KNOWN:
        raise Unreadable(f"is a pickle that asks to run {name[:80]}; nothing is ever run", fix=_RESAVE)
    return _Function(plain)


def _called(function: Any, arguments: Any) -> Any:
    if not isinstance(function, _Function) or not isinstance(arguments, tuple):
        raise TypeError(function)
    call = _KNOWN[function.name]
    if call is None:
        raise Unreadable(f"is a pickle that asks to make a {function.name} in an unusual way", fix=_RESAVE)
    return call(*arguments)


def _reconstruct(kind: Any, *_: Any) -> _Pending:
    if kind != _Function("numpy.ndarray"):
        raise TypeError(kind)
    return _Pending()


def _dtype(code: Any, *_: Any) -> _Type:
    return _Type(code.decode("latin-1") if isinstance(code, bytes) else str(code))


def _scalar(kind: Any, content: Any) -> Any:
    return _array(kind, (), content, fortran=False)


def _frombuffer(content: Any, kind: Any, shape: Any, order: Any) -> _Pending:
    return _Pending(_array(kind, shape, content, fortran=order == "F"))


def _encode(text: Any, encoding: Any) -> bytes:
    """How old pickles write bytes: as a text whose letters are the bytes."""
    if str(encoding).replace("-", "") not in ("latin1", "iso88591"):
        raise ValueError(encoding)
    return str(text).encode("latin-1")


_KNOWN: dict[str, Callable[..., Any] | None] = {
    "numpy.core.multiarray._reconstruct": _reconstruct,
    "numpy.core.multiarray.scalar": _scalar,
    "numpy.core.numeric._frombuffer": _frombuffer,
    "numpy.dtype": _dtype,
    "_codecs.encode": _encode,
    "numpy.ndarray": None,
}


def _build(thing: Any, state: Any) -> None:
    if isinstance(thing, _Type):
        # Version, byte order, then what only records and dates have.
        thing.order = str(state[1])
        if any(part is not None for part in state[2:5]):
            raise Unreadable("holds records of several fields, not plain numbers", fix=_RESAVE)
    elif isinstance(thing, _Pending) and isinstance(state, tuple):
        *_, shape, kind, fortran, content = state
        thing.array = _array(kind, shape, content, fortran=bool(fortran))
    else:
        raise TypeError(thing)


def _array(kind: Any, shape: Any, content: Any, *, fortran: bool) -> Any:
    if not isinstance(kind, _Type) or not isinstance(shape, tuple) or len(shape) > MAX_AXES:
        raise TypeError(kind)
    if not all(type(axis) is int and axis >= 0 for axis in shape):
        raise ValueError(shape)
    if kind.code[:1] == "O":
        if isinstance(content, list) and shape in ((), (1,)) and len(content) == 1:
            return content[0]
        raise Unreadable("is a pickle of an array of objects, not of a dictionary of arrays", fix=_RESAVE)
    dtype = kind.finished()
    if not isinstance(content, bytes | bytearray):
        raise TypeError(content)
    check_shape(dtype, shape)
    if len(content) != size_bytes(dtype, shape):
        raise Unreadable(f"holds {len(content)} bytes for {dtype.name} {list(shape)}", fix=_RESAVE)
    return np.frombuffer(bytes(content), dtype).reshape(shape, order="F" if fortran else "C")


def _finished(value: Any, depth: int = 0) -> Any:
    """What the things in the making have become."""
    if depth > MAX_AXES:
        raise Unreadable("is a pickle that is nested too deep", fix=_RESAVE)
    if isinstance(value, _Pending):
        if value.array is None:
            raise TypeError(value)
        return _finished(value.array, depth + 1)
    if isinstance(value, dict) and depth < 2:
        return {key: _finished(each, depth + 1) for key, each in value.items()}
    return value
