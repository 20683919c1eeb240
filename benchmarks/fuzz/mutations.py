"""Changes of valid documents, by tokens, by fields of bytes and by fields of messages."""

import contextlib
import functools
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx

Rng = np.random.Generator


# Texts: cut into tokens, of which some are replaced, repeated, nested, swapped or dropped.

_TOKENS = re.compile(rb"\"(?:[^\"\\]|\\.)*\"|'[^']*'|[\w.+-]+|\s+|.", re.DOTALL)
_ATOMS = (
    b"9" * 5000, b'1e999', b'-1', b'0', b"1" + b"0" * 30, b'NaN', b'Infinity', b'null', b'true', b'[]', b'{}',
    b'""', b'"\\ud800"', b'"\\u0000"', b'\x00', b'\xff\xfe', b'\xef\xbb\xbf', b'\xe2\x80\xae', b'\x1b[2J',
    b"[" * 200, b"{" * 200, b"(" * 200, b"a" * 5000, b"a." * 150, b'1979-99-99', b'0x10', b'0b1', b'1_000',
    b'&a', b'*a', b'!!x', b'|', b'%TAG', b"'", b'"', b'\\', b'#', b'\n', b'\r\n', b',', b':', b'=', b'-', b'<',
    b'../../x', b'/dev/zero', b'=cmd()', b'\xc2\xb2', b'\xd9\xa3', b'1.0e-400', b'-0', b'18446744073709551616',
    b'9223372036854775808', b'inf', b'nan', b'None',
)  # fmt: skip


# So many inputs become so long: what takes the square of it is noticed then.
_GROWS, _LONG = 0.002, 300_000


def _grown(tokens: list[bytes], rng: Rng) -> bytes:
    first, last = sorted(int(each) for each in rng.integers(0, len(tokens), 2))
    part = _ATOMS[int(rng.integers(len(_ATOMS)))] if rng.random() < 0.3 else b"".join(tokens[first : last + 1])
    tokens[last:last] = [part * (_LONG // max(1, len(part)))]
    return b"".join(tokens)


@functools.lru_cache(4096)
def _tokens(seed: bytes) -> tuple[bytes, ...]:
    return tuple(_TOKENS.findall(seed))


def mutate_text(seed: bytes, rng: Rng) -> bytes:
    """Change a text by tokens."""
    tokens = list(_tokens(seed))
    if rng.random() < _GROWS:
        return _grown(tokens, rng)
    for _ in range(int(rng.integers(1, 5))):
        if not tokens:
            break
        at, other = (int(each) for each in rng.integers(0, len(tokens), 2))
        act = int(rng.integers(0, 8))
        if act <= 2:
            tokens[at] = _ATOMS[int(rng.integers(len(_ATOMS)))]
        elif act == 3:
            tokens[at], tokens[other] = tokens[other], tokens[at]
        elif act == 4:
            del tokens[min(at, other) : max(at, other)]
        elif act == 5:
            first, last = sorted((at, other))
            tokens[last:last] = tokens[first:last] * int(rng.integers(1, 20))
        elif act == 6:
            opening, closing = ((b"[", b"]"), (b"{", b"}"), (b"(", b")"))[int(rng.integers(3))]
            depth = int(rng.choice([1, 3, 99, 101, 2000]))
            tokens[at] = opening * depth + tokens[at] + closing * depth
        else:
            tokens.insert(at, _ATOMS[int(rng.integers(len(_ATOMS)))])
    return mutate_bytes(b"".join(tokens), rng) if rng.random() < 0.05 else b"".join(tokens)


# Bytes with fields: numbers of 1 to 8 bytes are set to what lengths and types break at.

_EDGES = (
    0,
    1,
    2,
    127,
    128,
    255,
    256,
    999,
    2**15,
    2**16 - 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63 - 1,
    2**63,
    2**64 - 1,
)


def mutate_bytes(seed: bytes, rng: Rng) -> bytes:
    """Change bytes: fields, cuts, repeats."""
    data = bytearray(seed)
    for _ in range(int(rng.integers(1, 6))):
        if not data:
            break
        at = int(rng.integers(0, len(data)))
        act = int(rng.integers(0, 6))
        if act <= 1:
            width = int(rng.choice([1, 2, 4, 8]))
            value = _EDGES[int(rng.integers(len(_EDGES)))] % 2 ** (8 * width)
            data[at : at + width] = value.to_bytes(width, "little" if rng.random() < 0.8 else "big")
        elif act == 2:
            data[at] = int(rng.integers(256))
        elif act == 3:
            del data[at : at + int(rng.choice([1, 4, 16, 10**6]))]
        elif act == 4:
            data[at:at] = data[at : at + int(rng.integers(1, 64))] * int(rng.integers(1, 8))
        else:
            data[at:at] = _ATOMS[int(rng.integers(len(_ATOMS)))][:64]
    return bytes(data)


# Messages of protobuf: known by descriptors, so that a field gets another value of its own type, or a hostile one.


def mutate_model(seed: bytes, rng: Rng) -> bytes:
    """Change a network: names, types, shapes, attributes, edges, weights; rarely bytes."""
    if rng.random() < 0.1:
        return mutate_bytes(seed, rng)
    model = onnx.ModelProto.FromString(seed)
    for _ in range(int(rng.integers(1, 4))):
        _change_message(model, rng)
    return bytes(model.SerializeToString())


def _change_message(root: Any, rng: Rng) -> None:
    messages = list(_messages(root))
    message = messages[int(rng.integers(len(messages)))]
    fields = [field for field, _ in message.ListFields()] or list(message.DESCRIPTOR.fields)
    field = fields[int(rng.integers(len(fields)))]
    with contextlib.suppress(ValueError, TypeError, OverflowError):  # what the schema itself does not allow
        if field.is_repeated:
            _change_list(getattr(message, field.name), field, rng)
        elif field.message_type is not None:
            message.ClearField(field.name)
        else:
            setattr(message, field.name, _value(field, rng, getattr(message, field.name)))


def _change_list(values: Any, field: Any, rng: Rng) -> None:
    act = int(rng.integers(4)) if len(values) else 3
    at = int(rng.integers(len(values))) if len(values) else 0
    if act == 0:
        del values[at]
    elif act == 1 and field.message_type is not None:
        values.add().CopyFrom(values[at])
    elif act == 2 and len(values) > 1 and field.message_type is not None:
        kept = list(values)
        other = type(kept[0])()
        other.CopyFrom(kept[int(rng.integers(len(kept)))])
        values[at].CopyFrom(other)
    elif field.message_type is None:
        value = _value(field, rng, values[at] if len(values) else None)
        if len(values):
            values[at] = value
        else:
            values.append(value)


def _value(field: Any, rng: Rng, old: Any) -> Any:
    if field.cpp_type == field.CPPTYPE_STRING:
        atom = _ATOMS[int(rng.integers(len(_ATOMS)))]
        if field.type == field.TYPE_BYTES:
            return mutate_bytes(old, rng) if old else atom
        return atom.decode("utf-8", "ignore")
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return float(rng.choice([0, -1, np.nan, np.inf, -np.inf, 1e38, 1e-45]))
    if field.cpp_type == field.CPPTYPE_ENUM:
        return int(rng.integers(0, 30))
    edges = [0, 1, -1, 2, 16, 999, 2**31 - 1, -(2**31), 2**62, -(2**62)]
    return int(edges[int(rng.integers(len(edges)))])


def _messages(message: Any) -> Iterator[Any]:
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in value if field.is_repeated else [value]:
                yield from _messages(each)


_TEXTS = (".json", ".txt", ".csv", ".toml", ".cfg", ".xml", ".prototxt", ".mlir", ".yaml", ".lst", ".encodings")
_MODELS = (".onnx",)


def mutate_file(name: str, seed: bytes, rng: Rng) -> bytes:
    """Change a file of a folder in the way that its ending says."""
    if name.endswith(_MODELS):
        return mutate_model(seed, rng)
    return (mutate_text if name.endswith(_TEXTS) else mutate_bytes)(seed, rng)
