"""Arrays in pickles, read by Python's unpickler with everything but plain arrays taken out of it.

``numpy.save`` of a dictionary writes a pickle: a small program that says which functions to call. Of its steps
only those are left that dictionaries, lists, tuples, texts, numbers and arrays need; of the functions it may name
only the few with which numpy rebuilds arrays, and these are functions of ours that check before they allocate.

The unpickler is the one that the standard library has in Python. That in C cannot be used on files of strangers,
allow-list or not: nine bytes (a memo slot of a large number) make it fill gigabytes, and a megabyte of nested
tuples as the key of a dictionary overflows its stack.
"""

import functools
import io
import pickletools
import struct
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pickle import UnpicklingError, _Unpickler  # noqa: TID251 - restricted: see above
from typing import Any

import numpy as np

from roundoff.core.array_files import MAX_AXES, Unreadable, check_shape, size_bytes
from roundoff.core.tensors import DType
from roundoff.messages.message import english

_MOST_STEPS, _MOST_VALUES = 5_000_000, 500_000
_RESAVE = english("save plain arrays: numpy.savez(path, **{{name: array}}), or numpy.save of {{name: array}}")
_DAMAGE = (
    *(ValueError, LookupError, TypeError, AttributeError, ArithmeticError, AssertionError, struct.error),
    *(UnpicklingError, EOFError, BufferError, MemoryError, RecursionError),
)
_STEPS = frozenset((
    "PROTO", "FRAME", "STOP", "MARK", "POP", "NONE", "NEWTRUE", "NEWFALSE",
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT",
    "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8",
    "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8",
    "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "LIST", "DICT",
    "APPEND", "APPENDS", "SETITEM", "SETITEMS",
    "GET", "BINGET", "LONG_BINGET", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE",
    "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD",
))  # fmt: skip
_NAMES = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}
_PERSISTENT = next(code for code, name in _NAMES.items() if name == "BINPERSID")


def read_pickled(content: bytes) -> Any:
    """Follow a pickle to its end.

    Returns:
        What it stands for: a dictionary, list, tuple, text, number or array; an array of objects that holds one
        thing, as ``numpy.save`` makes it of a dictionary, is that thing. Texts of Python 2 are bytes.

    Raises:
        Unreadable: It is damaged, or needs a function that is not one of numpy's for plain arrays.
    """
    try:
        with warnings.catch_warnings():
            # Texts of old pickles may hold odd escapes, of which Python warns whoever reads them.
            warnings.simplefilter("ignore")
            return _finished(_ArrayUnpickler(content).load())
    except _DAMAGE as error:
        raise Unreadable(english("is a damaged pickle"), fix=_RESAVE) from error


@dataclass(slots=True)
class _Type:
    """A numpy type in the making: its byte order comes later."""

    code: str
    order: str = "="

    def build(self, state: Any) -> None:
        # Version, byte order, then what only records and dates have.
        self.order = _word(state[1])
        if any(part is not None for part in state[2:5]):
            raise Unreadable(english("holds records of several fields, not plain numbers"), fix=_RESAVE)

    def finished(self) -> DType:
        kind, size = self.code[:1], self.code[1:]
        if self.code in ("?", "b1", "bool"):
            return np.dtype(bool)
        if kind not in "iufcV" or not size.isdigit() or len(size) > 2 or self.order not in "<>=|":
            raise Unreadable(
                english("holds values of type {code!r:.60}, not numbers", code=self.code), fix=_RESAVE
            )
        dtype: DType = np.dtype(f"{self.order}{self.code}")
        return dtype


@dataclass(slots=True)
class _Pending:
    """An array in the making: type, shape and values come later."""

    array: Any = None

    def build(self, state: Any) -> None:
        *_, shape, kind, fortran, content = state
        self.array = _array(kind, shape, content, fortran=bool(fortran))


class _Steps(dict[int, Callable[[Any], None]]):
    """The steps by their codes, counted: a list of nothing takes one byte of the file and 64 of memory."""

    count = 0

    def __getitem__(self, code: int) -> Callable[[Any], None]:
        self.count += 1
        if self.count > _MOST_STEPS:
            raise Unreadable(english("is a pickle of absurdly many steps"), fix=_RESAVE)
        return super().__getitem__(code)

    def __missing__(self, code: int) -> Callable[[Any], None]:
        what = english(
            "with the step {names}, which plain arrays do not need", names=_NAMES[code]
        )  # an unknown code is damage
        raise Unreadable(english("is a pickle {what}", what=what), fix=_RESAVE)


class _ArrayUnpickler(_Unpickler):
    """Knows the steps and the functions of plain arrays, and no others."""

    # What the standard library's class has and its type stubs leave out.
    stack: list[Any]
    append: Callable[[Any], None]
    pop_mark: Callable[[], list[Any]]
    read: Callable[[int], bytes]

    def __init__(self, content: bytes) -> None:
        # Python 2 has one type for texts and bytes; as bytes nothing is lost.
        super().__init__(io.BytesIO(content), encoding="bytes")
        self.dispatch = _Steps(_ALLOWED)  # type: ignore[misc]  # one of its own, as it counts
        self._left = len(content)

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        """A function of ours for one that numpy names, whatever its version calls the module."""
        asked = f"{module}.{name}"
        plain = asked.replace("numpy._core.", "numpy.core.")
        if plain == "_codecs.encode":
            return self._encode
        if plain not in _FUNCTIONS:
            raise Unreadable(
                english("is a pickle that asks to run {asked}; nothing is ever run", asked=asked[:80]), fix=_RESAVE
            )
        return _FUNCTIONS[plain]

    def persistent_load(self, _: Any) -> Any:
        """Things that are kept elsewhere; the step that asks for them is not among those allowed either."""
        raise Unreadable(english("is a pickle that refers to things outside it"), fix=_RESAVE)

    def _encode(self, text: Any, encoding: Any) -> bytes:
        """How old pickles write bytes: as a text whose letters are the bytes, each text once."""
        if _word(encoding).replace("-", "") not in ("latin1", "iso88591"):
            raise ValueError(encoding)
        content = str(text).encode("latin-1")
        self._left -= len(content)
        if self._left < 0:  # the same text again and again
            raise Unreadable(english("is a pickle that grows without end"), fix=_RESAVE)
        return content

    def changeable_bytes(self) -> None:
        """The step BYTEARRAY8: as bytes, of which no more are made than there are."""
        self.append(self.read(int.from_bytes(self.read(8), "little")))

    def dictionary(self) -> None:
        """The step DICT: everything above the mark."""
        values = self.pop_mark()
        self.append(_table(values))

    def set_item(self) -> None:
        """The step SETITEM: the last two values into the dictionary below them."""
        value, key = self.stack.pop(), self.stack.pop()
        self._top(dict).update(_table([key, value]))

    def set_items(self) -> None:
        """The step SETITEMS: everything above the mark into the dictionary below it."""
        values = self.pop_mark()
        self._top(dict).update(_table(values))

    def call(self) -> None:
        """The step REDUCE: one of our functions with the arguments above it."""
        arguments = self.stack.pop()
        if not isinstance(arguments, tuple):
            raise TypeError(arguments)
        self.stack[-1] = self.stack[-1](*arguments)

    def build(self) -> None:
        """The step BUILD: what is in the making gets its contents; attributes of other things are never set."""
        state = self.stack.pop()
        self._top(_Type, _Pending).build(state)

    def _top(self, *kinds: type) -> Any:
        if type(self.stack[-1]) not in kinds:
            raise TypeError(kinds)
        return self.stack[-1]


@dataclass(frozen=True, slots=True)
class StoredTorch:
    """A tensor of a torch archive: which of its storages holds it, and where in it.

    Attributes:
        dtype: Name of the type.
        key: The storage.
        offset: Where it begins, in elements.
        shape: Its shape.
        stride: Elements from one index to the next, for each axis.
    """

    dtype: str
    key: str
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


_STORAGES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Bool": "bool",
    "Byte": "uint8", "Char": "int8", "Short": "int16", "Int": "int32", "Long": "int64",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Storage:
    """Where the values of torch tensors lie."""

    dtype: str
    key: str


class _TorchUnpickler(_ArrayUnpickler):
    """Knows what plain tensors of torch need besides."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.dispatch[_PERSISTENT] = _Unpickler.dispatch[_PERSISTENT]

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        """A function of ours for one of torch, or what plain arrays need."""
        kind = _STORAGES.get(name.removesuffix("Storage"))
        if module in ("torch", "torch.storage") and name.endswith("Storage") and kind is not None:
            return functools.partial(_Storage, kind)
        asked = f"{module}.{name}"
        if asked == "torch._utils._rebuild_tensor_v2":
            return _torch_tensor
        if asked == "torch._utils._rebuild_parameter":
            return _torch_parameter
        return super().find_class(module, name)

    def persistent_load(self, given: Any) -> Any:
        """A storage; its length is checked when it is read."""
        match given:
            case ("storage", functools.partial() as made, str(key), _, int()):
                return made(key)
        raise ValueError(given)


def _torch_tensor(storage: Any, offset: Any, shape: Any, stride: Any, *_: Any) -> StoredTorch:
    axes = (shape, stride)
    if not isinstance(storage, _Storage) or type(offset) is not int or offset < 0:
        raise TypeError(storage)
    if not all(isinstance(each, tuple) and len(each) <= MAX_AXES for each in axes) or len(shape) != len(stride):
        raise TypeError(shape)
    if not all(type(axis) is int and axis >= 0 for each in axes for axis in each):
        raise ValueError(shape)
    return StoredTorch(storage.dtype, storage.key, offset, shape, stride)


def _torch_parameter(tensor: Any, *_: Any) -> StoredTorch:
    if not isinstance(tensor, StoredTorch):
        raise TypeError(tensor)
    return tensor


def read_torch(content: bytes) -> Any:
    """Follow the pickle of a torch archive: tensors become `StoredTorch`, whose values lie beside it.

    Raises:
        Unreadable: It is damaged, or holds a module or anything else than plain tensors.
    """
    try:
        return _finished(_TorchUnpickler(content).load())
    except _DAMAGE as error:
        raise Unreadable(english("is a damaged pickle"), fix=_RESAVE) from error


# Nothing is allocated for a mere claim, keys are looked at before they are hashed, only what is in the making is
# built.
_OURS: dict[str, Callable[[Any], None]] = {
    "BYTEARRAY8": _ArrayUnpickler.changeable_bytes,
    "DICT": _ArrayUnpickler.dictionary,
    "SETITEM": _ArrayUnpickler.set_item,
    "SETITEMS": _ArrayUnpickler.set_items,
    "REDUCE": _ArrayUnpickler.call,
    "BUILD": _ArrayUnpickler.build,
}
_ALLOWED: dict[int, Callable[[Any], None]] = {
    code: _OURS.get(name) or _Unpickler.dispatch[code] for code, name in _NAMES.items() if name in _STEPS
}


def _table(values: list[Any]) -> dict[str, Any]:
    keys = values[::2]
    if len(values) % 2 or not all(isinstance(key, str | bytes | int) for key in keys):
        raise Unreadable(english("is a pickle of a dictionary whose keys are no names"), fix=_RESAVE)
    return dict(zip(map(_word, keys), values[1::2], strict=True))


def _word(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _ndarray(*_: Any) -> None:
    raise Unreadable(english("is a pickle that asks to make a numpy.ndarray in an unusual way"), fix=_RESAVE)


def _reconstruct(kind: Any, *_: Any) -> _Pending:
    if kind is not _ndarray:
        raise TypeError(kind)
    return _Pending()


def _dtype(code: Any, *_: Any) -> _Type:
    if not isinstance(code, str | bytes):
        raise TypeError(code)
    return _Type(_word(code))


def _scalar(kind: Any, content: Any) -> Any:
    return _array(kind, (), content, fortran=False)


def _frombuffer(content: Any, kind: Any, shape: Any, order: Any) -> _Pending:
    return _Pending(_array(kind, shape, content, fortran=order == "F"))


def _ordered(pairs: Iterable[Any] = ()) -> dict[str, Any]:
    """An OrderedDict, which dictionaries are now; Python 2 gives it its pairs at once."""
    return _table([part for key, value in pairs for part in (key, value)])


def _no_bytes() -> bytes:
    """How old protocols write bytes of length 0."""
    return b""


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "numpy.core.multiarray._reconstruct": _reconstruct,
    "numpy.core.multiarray.scalar": _scalar,
    "numpy.core.numeric._frombuffer": _frombuffer,
    "numpy.dtype": _dtype,
    "numpy.ndarray": _ndarray,
    "__builtin__.bytes": _no_bytes,
    "collections.OrderedDict": _ordered,
}


def _array(kind: Any, shape: Any, content: Any, *, fortran: bool) -> Any:
    if not isinstance(kind, _Type) or not isinstance(shape, tuple) or len(shape) > MAX_AXES:
        raise TypeError(kind)
    if not all(type(axis) is int and axis >= 0 for axis in shape):
        raise ValueError(shape)
    if kind.code[:1] == "O":
        if isinstance(content, list) and shape in ((), (1,)) and len(content) == 1:
            return content[0]
        raise Unreadable(english("is a pickle of an array of objects, not of a dictionary of arrays"), fix=_RESAVE)
    dtype = kind.finished()
    if not isinstance(content, bytes):
        raise TypeError(content)
    check_shape(dtype, shape)
    if len(content) != size_bytes(dtype, shape):
        raise Unreadable(
            english(
                "holds {count} bytes for {name} {shape}", count=len(content), name=dtype.name, shape=list(shape)
            ),
            fix=_RESAVE,
        )
    # A window, never a copy: one piece of bytes may be named a thousand times.
    return np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")


def _finished(value: Any, depth: int = 0) -> Any:
    """What the things in the making have become."""
    if depth > MAX_AXES:
        raise Unreadable(english("is a pickle that is nested too deep"), fix=_RESAVE)
    if isinstance(value, _Pending):
        if value.array is None:
            raise TypeError(value)
        return _finished(value.array, depth + 1)
    if isinstance(value, dict) and depth < 2:
        return {key: _finished(each, depth + 1) for key, each in value.items()}
    _refuse_expanding(value)
    return value


def _refuse_expanding(value: Any) -> None:
    """Refuse lists in lists without end: one that is named twice at every level holds 2 ** levels values."""
    level, count = [value], 0
    for _ in range(MAX_AXES):
        level = [each for outer in level if isinstance(outer, dict | list | tuple) for each in _parts(outer)]
        count += len(level)
        if not level:
            return
        if count > _MOST_VALUES:
            break
    raise Unreadable(english("is a pickle that is nested too deep"), fix=_RESAVE)


def _parts(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value
