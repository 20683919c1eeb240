"""Named tensors from anywhere: a dump folder, an archive or a live run all look alike."""

import functools
import re
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from roundoff.errors import nearest
from roundoff.messages.message import english

Array: TypeAlias = npt.NDArray[Any]
DType: TypeAlias = np.dtype[Any]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """What is known of a tensor without reading its values.

    Attributes:
        name: Its name in the source; unique there.
        dtype: numpy dtype name, e.g. ``float32``; empty when unknown.
        shape: Its shape in the first sample that holds it; empty tuple for a scalar.
        problem: Why it cannot be read ("truncated: 40 of 400 bytes"); empty when it can.
        node: The node that computes it, when the source knows.
        op_type: That node's operation, when the source knows.
        origin: What it was in the model that a compiler made the source's model from, when the source records it.
        copy_of: The tensor of the same source that it is in another form (a cast), when the source says so.
    """

    name: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    problem: str = ""
    node: str = ""
    op_type: str = ""
    origin: str = ""
    copy_of: str = ""

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))


class TensorSource(Protocol):
    """Lazily readable named tensors of one or more samples.

    Read sample by sample (all tensors of one sample, then the next): a live run holds one sample at a time,
    so reading in any other order is correct but runs the model again.
    """

    @property
    def label(self) -> str:
        """Where the tensors come from, as the user would name it; for messages."""
        ...

    @property
    def samples(self) -> tuple[str, ...]:
        """Sample names, at least one; a source that is not split by sample has the one name ``""``."""
        ...

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        """All tensors, in execution order when `ordered`, else in a stable order."""
        ...

    @property
    def ordered(self) -> bool:
        """Whether `tensors` is known to be in execution order."""
        ...

    def read(self, name: str, sample: str) -> Array:
        """Values of one tensor in one sample, possibly memory-mapped; treat as read-only.

        Raises:
            BadInput: The tensor is missing from this sample, damaged, or of a type that is refused.
        """
        ...


@dataclass(frozen=True, slots=True)
class InputSpec:
    """What a model expects of one of its inputs.

    Attributes:
        name: The input's name.
        dtype: numpy dtype name.
        shape: One entry per axis: an int when fixed, a str when symbolic, None when unknown.
            ``None`` in place of the whole shape means that even the rank is unknown.
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None

    def describe(self) -> str:
        """The expectation in words, e.g. ``float32 [N, 3, 224, 224]``."""
        if self.shape is None:
            return f"{self.dtype} of any shape"
        axes = ", ".join("?" if axis is None else str(axis) for axis in self.shape)
        return f"{self.dtype} [{axes}]"


# Who computes what from what: the shape of a network without its weights.


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """One operation. Optional inputs that are absent and constants are not listed."""

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Topology:
    """Nodes in execution order, and the tensors that enter and leave the network.

    Attributes:
        nodes: In execution order.
        inputs: What it is fed.
        outputs: What it gives.
        idioms: What some nodes compute together (``LayerNorm``), with their names, where that was looked for.
    """

    nodes: tuple[NodeInfo, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    idioms: tuple[tuple[str, tuple[str, ...]], ...] = field(default=(), metadata={"rare": True})

    def producers(self) -> dict[str, NodeInfo]:
        """The node that computes each tensor; inputs of the network have none."""
        return {tensor: node for node in self.nodes for tensor in node.outputs}


_NUMERIC_KINDS = "biufc"
_PLAIN = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
# Types numpy knows only through ml_dtypes; kept by name so that the package is imported when first needed.
_EXTENDED = (
    *("bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz"),
    *("float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"),
    *("int1", "int2", "int4", "uint1", "uint2", "uint4"),
)
# "float" and "double" mean what they mean in C and ONNX, where raw dumps come from; numpy's "float" is 64 bits.
_ALIASES = {
    "float": "float32",
    "single": "float32",
    "double": "float64",
    "half": "float16",
    "bool_": "bool",
    **{f"{short}{bits}": f"float{bits}" for short in ("fp", "f") for bits in (16, 32, 64)},
    **{f"{short}{bits}": f"int{bits}" for short in ("i", "s") for bits in (16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (16, 32, 64)},
    **{f"int{bits}_t": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}_t": f"uint{bits}" for bits in (8, 16, 32, 64)},
    "s8": "int8",
    "bf16": "bfloat16",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e5m2": "float8_e5m2",
}
_WRAPPED = re.compile(r"(?:tensor\((?P<onnx>\w+)\)|(?:np|numpy|torch)\.(?P<module>\w+))")
_CODE = re.compile(r"[<>=|][biufc][0-9]{1,2}")
# i8 is 64 bits to numpy and 8 bits to a compiler.
_AMBIGUOUS = re.compile(r"[iuf][1-8]")


@functools.lru_cache(maxsize=256)
def parse_dtype(text: str) -> DType:
    """Read an element type as people write it: ``float32``, ``fp16``, ``bf16``, ``>i2``, ``tensor(float)``.

    Raises:
        ValueError: It is no type of numbers, or could mean two; the message says what to write.
    """
    word = text.strip()
    if _CODE.fullmatch(word):
        try:
            return np.dtype(word)
        except TypeError as error:
            raise ValueError(f"unknown dtype {text!r}") from error
    word = word.lower()
    if wrapped := _WRAPPED.fullmatch(word):
        word = wrapped["onnx"] or wrapped["module"]
    if _AMBIGUOUS.fullmatch(word):
        raise ValueError(f"dtype {text!r} could count bits or bytes; write it out, as in 'int8' or 'int64'")
    word = _ALIASES.get(word, word)
    if word in _EXTENDED:
        return _extended(word)
    if word in _PLAIN or word == np.dtype(np.longdouble).name:
        return np.dtype(word)
    raise ValueError(f"unknown dtype {text!r}; {nearest(word, (*_PLAIN, *_EXTENDED))}")


def is_extended(dtype: DType) -> bool:
    """Whether only ml_dtypes knows the type (bfloat16, the 8-bit floats and their kin)."""
    return dtype.isbuiltin == 2  # numpy: 2 is a registered type from outside numpy


def as_values(array: Array) -> Array:
    """View or convert to what plain numpy computes with: native byte order; bfloat16 and its kin as float32."""
    if is_extended(array.dtype):
        return array.astype(np.float32)
    if not array.dtype.isnative:
        return array.astype(array.dtype.newbyteorder("="))
    return array


def why_refused(dtype: DType) -> str:
    """Why arrays of this type are not read or written; empty when they are."""
    if dtype.hasobject:
        return english("holds Python objects (a pickle), which are never loaded")
    if dtype.names is not None or dtype.subdtype is not None:
        return english("holds records of several fields, not plain numbers")
    if dtype.kind not in _NUMERIC_KINDS and not (is_extended(dtype) and dtype.name in _EXTENDED):
        return english("holds {name}, not numbers", name=dtype.name)
    return ""


def _extended(name: str) -> DType:
    import ml_dtypes

    try:
        dtype: DType = np.dtype(getattr(ml_dtypes, name))
    except AttributeError as error:
        raise ValueError(f"dtype {name!r} needs a newer ml_dtypes (pip install -U ml_dtypes)") from error
    return dtype
