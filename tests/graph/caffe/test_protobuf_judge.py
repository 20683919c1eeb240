"""Reader and writer of the binary format, judged by the protobuf runtime with descriptors of the same tables."""

import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roundoff.core.text_proto import TextEntry, TextMessage
from roundoff.graph.caffe.wire import FieldSpec, decode, encode, message_spec

FIELD = descriptor_pb2.FieldDescriptorProto
TYPES = {
    "int": FIELD.TYPE_INT64, "uint": FIELD.TYPE_UINT64, "bool": FIELD.TYPE_BOOL, "float": FIELD.TYPE_FLOAT,
    "double": FIELD.TYPE_DOUBLE, "string": FIELD.TYPE_STRING, "bytes": FIELD.TYPE_BYTES, "enum": FIELD.TYPE_INT32,
    "message": FIELD.TYPE_MESSAGE,
}  # fmt: skip
# Gradients are never kept by the reader.
LEFT_OUT = ("diff", "double_diff")
WEIGHTS = ("data", "double_data", "int32_data", "uint64_data")
ARRAYS = {"data": np.float32, "double_data": np.float64, "int32_data": np.int64, "uint64_data": np.uint64}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-(2**31), 2**31 - 1), "uint": st.integers(0, 2**32 - 1), "bool": st.booleans(),
    "float": st.floats(width=32, allow_nan=False), "double": st.floats(allow_nan=False),
    "string": st.text(max_size=6), "bytes": st.binary(max_size=6),
}  # fmt: skip


@cache
def runtime(*, packed: bool) -> Any:
    """The runtime's message classes, by name; repeated numbers in one piece or each with a tag of its own."""
    file = descriptor_pb2.FileDescriptorProto(name="judge.proto", package="judge", syntax="proto2")
    tables = tomllib.loads(resources.files("roundoff.graph.caffe").joinpath("fields.toml").read_text("utf-8"))
    for name in tables["messages"]:
        made = file.message_type.add(name=name)
        for spec in message_spec(name).by_number.values():
            label = FIELD.LABEL_REPEATED if spec.repeated else FIELD.LABEL_OPTIONAL
            added = made.field.add(name=spec.name, number=spec.number, type=TYPES[spec.kind], label=label)
            if spec.message:
                added.type_name = f".judge.{spec.message}"
            elif spec.repeated and spec.kind not in ("string", "bytes"):
                added.options.packed = packed
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"judge.{name}"))


def fields_of(table: str) -> list[FieldSpec]:
    return [spec for spec in message_spec(table).by_number.values() if spec.name not in LEFT_OUT]


def one(spec: FieldSpec, depth: int) -> st.SearchStrategy[Any]:
    if spec.kind == "message":
        return contents(spec.message, depth - 1)
    return st.sampled_from(sorted(spec.values.values())) if spec.kind == "enum" else VALUES[spec.kind]


def contents(table: str, depth: int = 3) -> st.SearchStrategy[dict[str, Any]]:
    """What a message may say: some of its fields, to a depth."""
    known = [spec for spec in fields_of(table) if depth or spec.kind != "message"]

    def filled(chosen: list[FieldSpec]) -> st.SearchStrategy[dict[str, Any]]:
        return st.fixed_dictionaries({
            spec.name: st.lists(one(spec, depth), min_size=1, max_size=3) if spec.repeated else one(spec, depth)
            for spec in chosen
        })  # fmt: skip

    chosen = (
        st.lists(st.sampled_from(known), max_size=3, unique_by=lambda spec: spec.name) if known else st.just([])
    )
    return chosen.flatmap(filled)


def entries(content: dict[str, Any], table: str) -> Iterator[TextEntry]:
    """The same for our writer: weights as one array."""
    for name, value in content.items():
        spec = message_spec(table).by_name[name]
        values = value if spec.repeated else [value]
        if name in WEIGHTS:
            yield TextEntry(name, np.array(values, ARRAYS[name]))
            continue
        for each in values:
            yield TextEntry(name, TextMessage(tuple(entries(each, spec.message))) if spec.message else each)


def told(message: TextMessage, table: str) -> dict[str, Any]:
    """What our reader found, with the names of enumerations as numbers again."""
    found: dict[str, Any] = {}
    for entry in message.entries:
        spec, value = message_spec(table).by_name[entry.name], entry.value
        if isinstance(value, TextMessage):
            value = told(value, spec.message)  # type: ignore[assignment]
        elif spec.kind == "enum" and isinstance(value, str):
            value = spec.values[value]
        if spec.repeated:
            found.setdefault(entry.name, []).extend(value.tolist() if isinstance(value, np.ndarray) else [value])
        else:
            found[entry.name] = value
    return found


def plain(message: Any, table: str) -> dict[str, Any]:
    """What the runtime found."""
    found = {}
    for field, value in message.ListFields():
        spec = message_spec(table).by_name[field.name]
        values = [
            plain(each, spec.message) if spec.message else each for each in (value if spec.repeated else [value])
        ]
        found[field.name] = values if spec.repeated else values[0]
    return found


TABLES = st.sampled_from(["NetParameter", "LayerParameter", "V1LayerParameter", "V0LayerParameter", "BlobProto"])
DRAWN = TABLES.flatmap(lambda table: st.tuples(st.just(table), contents(table)))
MANY = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])


@MANY
@given(DRAWN, st.booleans())
def test_what_the_runtime_writes_is_read_alike(drawn: tuple[str, dict[str, Any]], packed: bool) -> None:
    table, content = drawn
    message = runtime(packed=packed)(table)(**content)
    found = decode(np.frombuffer(message.SerializeToString(), np.uint8), table, what="it")
    assert found.unknown == 0
    assert told(found.message, table) == plain(message, table)


@MANY
@given(DRAWN, st.booleans())
def test_what_is_written_the_runtime_reads_alike(drawn: tuple[str, dict[str, Any]], packed: bool) -> None:
    table, content = drawn
    data = b"".join(encode(TextMessage(tuple(entries(content, table))), table))
    message = runtime(packed=packed)(table).FromString(data)
    assert plain(message, table) == content
    assert message.SerializeToString() == type(message)(**content).SerializeToString()


@pytest.mark.parametrize("packed", [True, False])
def test_blobs_of_real_size_are_read_alike(packed: bool) -> None:
    values = np.random.default_rng(0).standard_normal(10_000).astype(np.float32)
    blob = runtime(packed=packed)("BlobProto")(data=values, shape={"dim": [100, 100]})
    found = decode(np.frombuffer(blob.SerializeToString(), np.uint8), "BlobProto", what="it").message
    np.testing.assert_array_equal(np.asarray(found.get("data")), values)
