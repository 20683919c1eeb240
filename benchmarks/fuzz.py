"""Fuzzing with structure: every parser of files that others write, and whole commands on mutated networks.

``python -m benchmarks fuzz [--inputs N] [--seed S] [--parsers NAME ...] [--page FILE]``. An input begins as a
valid document and is changed where its grammar has places: values are replaced by hostile ones, parts repeated,
nested, swapped or dropped, fields of lengths and types altered, and only sometimes bytes. It must be read, or
refused with an error of ours, within the time; anything else is a failure, which is kept in ``tests/corpus`` and
from then on tried by the tests. ``--page`` writes the table of docs/reference/fuzzing.md.
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import pickle  # noqa: TID251 - written, never read
import re
import signal
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from roundoff.align.names import read_aliases
from roundoff.core.array_files import Unreadable
from roundoff.core.document import load_document
from roundoff.core.progress import read_progress
from roundoff.errors import RoundoffError
from roundoff.graph.caffe.net import read_net
from roundoff.graph.load import load_model
from roundoff.quantize import targets as targets_package
from roundoff.quantize.calibration.files import load_calibration
from roundoff.quantize.plan_file import load_plan
from roundoff.quantize.planning.rules import load_rules
from roundoff.quantize.targets.files import load_target
from roundoff.samples.files import unpack
from roundoff.samples.labels import load_labels
from roundoff.search.cost import load_costs
from roundoff.studies.run_diff.gate import read_budgets
from roundoff.tensors import open_source
from roundoff.tensors.ascend_dump.header import parse_header_message
from roundoff.tensors.ascend_dump.names import read_statistics
from roundoff.tensors.pickled import read_pickled
from roundoff.vendors.amct.common.auto_calibration import read_history
from roundoff.vendors.amct.records import read_records
from roundoff.vendors.ascend.advisor import read_table
from roundoff.vendors.pulsar2.config.files import load_config

INPUTS = 2000
SECONDS = 10.0
"""An input that takes longer is a failure; an honest one takes milliseconds."""
CORPUS = Path(__file__).parent.parent / "tests" / "corpus"
SLOW = 50
"""Whole commands get so many times fewer inputs."""

Rng = np.random.Generator


@dataclass(frozen=True)
class Parser:
    """What is fuzzed.

    Attributes:
        name: What it is called.
        file: The name of the file that it is given.
        seeds: Valid documents.
        mutate: Changes one.
        read: Reads the file.
        times: Of so many inputs one is tried.
    """

    name: str
    file: str
    seeds: tuple[bytes, ...]
    mutate: Callable[[bytes, Rng], bytes]
    read: Callable[[Path], object]
    times: int = 1


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


def mutate_text(seed: bytes, rng: Rng) -> bytes:
    """Change a text by tokens."""
    tokens = _TOKENS.findall(seed)
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


# Seeds: one valid document of each kind, as our own commands or the vendors' tools write them.


def small_model() -> bytes:
    """A network of five nodes."""
    from onnx import TensorProto, helper, numpy_helper

    from roundoff.graph.nodes import make_model

    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
        for name, shape in {"w": (4, 3, 3, 3), "b": (4,), "v": (5, 4)}.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flat"),
        helper.make_node("Gemm", ["f", "v"], ["y"], name="fc", transB=1),
    ]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 8, 8]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 5]),
    ]
    return bytes(make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)).SerializeToString())


def small_lite() -> bytes:
    """A .tflite file: one Conv with Relu in 8 bits, 1x4x4x2 to 1x4x4x3, scales 0.1, 0.02 and 0.05."""
    import flatbuffers

    builder = flatbuffers.Builder(1024)

    def table(count: int, **fields: tuple[str, int]) -> int:
        builder.StartObject(count)
        for name, (kind, value) in fields.items():
            slot = int(name.removeprefix("f"))
            if kind == "ref":
                builder.PrependUOffsetTRelativeSlot(slot, value, 0)
            else:
                getattr(builder, f"Prepend{kind}Slot")(slot, value, 0)
        return int(builder.EndObject())

    def tables(places: list[int]) -> int:
        builder.StartVector(4, len(places), 4)
        for place in reversed(places):
            builder.PrependUOffsetTRelative(place)
        return int(builder.EndVector())

    def numbers(values: Any, dtype: str) -> int:
        return int(builder.CreateNumpyVector(np.asarray(values, dtype)))

    weights = np.random.default_rng(0).integers(-127, 128, (3, 3, 3, 2)).astype(np.int8)
    stored = [np.zeros(0, np.uint8), weights.ravel().view(np.uint8), np.arange(3, dtype="<i4").view(np.uint8)]
    buffers = tables([table(1, f0=("ref", numbers(each, "uint8"))) for each in stored])
    made = []
    for name, shape, kind, buffer, scale in (
        ("x", (1, 4, 4, 2), 9, 0, [0.1]),
        ("w", (3, 3, 3, 2), 9, 1, [0.02, 0.01, 0.03]),
        ("b", (3,), 2, 2, [0.002, 0.001, 0.003]),
        ("y", (1, 4, 4, 3), 9, 0, [0.05]),
    ):
        parts = numbers(scale, "float32"), numbers([0] * len(scale), "int64")
        scales = table(7, f2=("ref", parts[0]), f3=("ref", parts[1]))
        places = builder.CreateString(name), numbers(shape, "int32")
        made.append(
            table(5, f0=("ref", places[1]), f1=("Int8", kind), f2=("Uint32", buffer), f3=("ref", places[0]),
                  f4=("ref", scales))
        )  # fmt: skip
    options = table(6, f1=("Int32", 1), f2=("Int32", 1), f3=("Int8", 1))
    ends = numbers([0, 1, 2], "int32"), numbers([3], "int32")
    operator = tables([table(5, f1=("ref", ends[0]), f2=("ref", ends[1]), f3=("Uint8", 1), f4=("ref", options))])
    tensors, entering, leaving = tables(made), numbers([0], "int32"), numbers([3], "int32")
    graph = tables([
        table(4, f0=("ref", tensors), f1=("ref", entering), f2=("ref", leaving), f3=("ref", operator))
    ])  # fmt: skip
    codes = tables([table(4, f0=("Int8", 3), f3=("Int32", 3))])
    builder.Finish(
        table(5, f0=("Uint32", 3), f1=("ref", codes), f2=("ref", graph), f4=("ref", buffers)),
        file_identifier=b"TFL3",
    )
    return bytes(builder.Output())


def _saved(save: Callable[[io.BytesIO], object]) -> bytes:
    out = io.BytesIO()
    save(out)
    return out.getvalue()


def _archive(mode: Any) -> bytes:
    def save(out: io.BytesIO) -> None:
        with tarfile.open(fileobj=out, mode=mode) as tar:
            for name in ("a.npy", "b/c.npy"):
                data = _saved(lambda file: np.save(file, np.arange(6.0)))
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))

    return _saved(save)


def _zip() -> bytes:
    def save(out: io.BytesIO) -> None:
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.npy", _saved(lambda file: np.save(file, np.arange(6.0))))

    return _saved(save)


_RULES = b"""[[rule]]
node = ["/head/conv1", "conv*"]
precision = "u16"
[[rule]]
between = { start = "features", end = ["boxes", "scores"] }
precision = { activation = "u16", output = "float" }
[[rule]]
op = "Gemm"
precision = "float"
"""
_COSTS = b"product_8x8 = 1.0\nproduct_16x8 = 2.0\nbyte = 0.01\n"
_BUDGETS = b'max_regression = "1dB"\n[nodes]\n"head/*" = 0.5\n"a" = { loss = 0.5, at_least = 20 }\n'
_PROTOTXT = b"""name: "net"
input: "data"
input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "fc" type: "InnerProduct" bottom: "conv" top: "fc" inner_product_param { num_output: 5 } }
"""
_CONFIG = {
    "model_type": "ONNX",
    "npu_mode": "NPU1",
    "quant": {
        "input_configs": [
            {"tensor_name": "DEFAULT", "calibration_dataset": "d.tar", "calibration_size": 4,
             "calibration_mean": [1.0, 2.0, 3.0], "calibration_std": [1.0, 1.0, 1.0]}
        ],
        "layer_configs": [{"op_type": "Add", "data_type": "U16"}],
        "calibration_method": "MinMax",
    },
    "input_processors": [{"tensor_name": "DEFAULT", "tensor_layout": "NHWC", "src_dtype": "U8"}],
    "compiler": {"check": 0},
}  # fmt: skip
_YAML = b"""model_type: ONNX
quant:
  input_configs:
    - tensor_name: DEFAULT
      calibration_dataset: d.tar
      calibration_size: 4
  layer_configs:
    - {op_type: Add, data_type: U16}
"""
_RECORD = b"""record {
  key: "conv"
  value { scale_d: 0.5 offset_d: -3 scale_w: 0.1 scale_w: 0.2 offset_w: 0 offset_w: 0 shift_bit: 1 }
}
"""
_HISTORY = (
    b'{"roll_back_config":{"a":true,"b":false},"metric_eval":[true,0.5]}{"ro'
    b'll_back_config":{"a":false},"metric_eval":[false,1e-3]}'
)
_TABLE = (
    b"Index,OpType,NPUDump,TensorIndex,OverFlow,CosineSimilarity\n0,Conv,conv"
    b",conv:output:0,NO,0.99\n1,Add,a,a:output:0,NaN,NaN\n"
)
_STATS = (
    b"Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Valu"
    b"e,Avg Value,Count,Nan Count\nInput,0,24,float,NCHW,1x3x1x2,1.0,-1,0.5,6"
    b",0\n"
)
_PROGRESS = b'{"output": "out", "title": "measuring", "done": 3, "total": 9, "elapsed_s": 4.5, "process": 1}'


def _documents(folder: Path) -> dict[str, bytes]:
    """A plan, a run document and statistics of calibration, as `quantize` and `layers` write them here."""
    import roundoff

    (folder / "m.onnx").write_bytes(small_model())
    np.save(folder / "x.npy", np.random.default_rng(1).standard_normal((4, 3, 8, 8)).astype(np.float32))
    options: Any = {"data": folder / "x.npy", "target": "generic-int8"}
    roundoff.quantize(folder / "m.onnx", **options).save(folder / "q")
    roundoff.layers(folder / "m.onnx", **options).save(folder / "run")
    return {
        "plan": (folder / "q" / "plan.json").read_bytes(),
        "calibration": (folder / "q" / "calibration.npz").read_bytes(),
        "quantized": next((folder / "q").glob("*deploy*.onnx")).read_bytes(),
        "run": (folder / "run" / "run.json").read_bytes(),
    }


def parsers(folder: Path) -> tuple[Parser, ...]:
    """All of them; `folder` holds what they need beside their file."""
    made = _documents(folder)
    array = _saved(lambda out: np.save(out, np.arange(24, dtype=np.float32).reshape(2, 3, 4)))
    arrays = _saved(lambda out: np.savez(out, a=np.arange(6.0), b=np.ones((2, 3), np.int8)))
    tensor = json.dumps({"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}).encode()
    safetensors = len(tensor).to_bytes(8, "little") + tensor + bytes(24)
    pickled = pickle.dumps({"x": np.arange(6, dtype=np.float32)}, protocol=4)
    old = pickle.dumps({"x": np.arange(6, dtype=np.float32)}, protocol=2)
    chips = Path(targets_package.__file__).parent.glob("*.toml")
    targets = tuple(path.read_bytes() for path in sorted(chips))
    model, config = small_model(), json.dumps(_CONFIG, indent=1).encode()

    def source(path: Path) -> object:
        found = open_source(path)
        return [found.read(info.name, sample) for info in found.tensors[:4] for sample in found.samples[:2]]

    def command(*words: str) -> Callable[[Path], object]:
        def run(path: Path) -> object:
            from roundoff.cli import main

            given = [word.format(file=path, data=folder / "x.npy", out=folder / "out") for word in words]
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                return main([*given, *(["--force"] if "-o" in given else [])])

        return run

    chip = ("--data", "{data}", "--target", "generic-int8")
    return (
        Parser("target (TOML)", "t.toml", targets, mutate_text, load_target),
        Parser("rules (TOML)", "r.toml", (_RULES,), mutate_text, load_rules),
        Parser("cost (TOML)", "c.toml", (_COSTS,), mutate_text, load_costs),
        Parser("budgets (TOML)", "b.toml", (_BUDGETS,), mutate_text, read_budgets),
        Parser("budgets (JSON)", "b.json", (b'{"nodes": {"a": 0.5}}',), mutate_text, read_budgets),
        Parser("aliases (JSON)", "a.json", (b'{"a": "b", "c": "d"}',), mutate_text, read_aliases),
        Parser("aliases (CSV)", "a.csv", (b"reference,candidate\na,b\nc,d\n",), mutate_text, read_aliases),
        Parser("labels (CSV)", "l.csv", (b"file,label\na,1\nb,2\n",), mutate_text, lambda p: load_labels(p, "ab")),
        Parser("labels (.npy)", "l.npy", (_saved(lambda out: np.save(out, np.arange(2))),), mutate_bytes,
               lambda p: load_labels(p, "ab")),
        Parser("plan.json", "plan.json", (made["plan"],), mutate_text, load_plan, times=4),
        Parser("run.json", "run.json", (made["run"],), mutate_text, load_document, times=4),
        Parser("calibration.npz", "calibration.npz", (made["calibration"],), mutate_bytes, load_calibration),
        Parser("progress file", ".out.progress.json", (_PROGRESS,), mutate_text,
               lambda p: read_progress(p.parent)),
        Parser(".npy", "a.npy", (array,), mutate_bytes, source),
        Parser(".npz", "a.npz", (arrays,), mutate_bytes, source),
        Parser("safetensors", "a.safetensors", (safetensors,), mutate_bytes, source),
        Parser("safetensors (header)", "a.safetensors", (tensor,),
               lambda seed, rng: _with_length(mutate_text(seed, rng)) + bytes(24), source),
        Parser("pickle", "a.pkl", (pickled, old), mutate_bytes, lambda p: read_pickled(p.read_bytes())),
        Parser("tar", "a.tar", (_archive("w"),), mutate_bytes, _unpacked),
        Parser("tar.gz", "a.tar.gz", (_archive("w:gz"),), mutate_bytes, _unpacked),
        Parser("zip", "a.zip", (_zip(),), mutate_bytes, _unpacked),
        Parser("prototxt", "n.prototxt", (_PROTOTXT,), mutate_text, lambda p: read_net(p, None)),
        Parser("Pulsar2 (JSON)", "p.json", (config,), mutate_text, load_config),
        Parser("Pulsar2 (YAML)", "p.yaml", (_YAML,), mutate_text, load_config, times=4),
        Parser("AMCT record", "r.txt", (_RECORD,), mutate_text, read_records),
        Parser("AMCT history", "h.json", (_HISTORY,), mutate_text, read_history),
        Parser("Ascend table (CSV)", "t.csv", (_TABLE,), mutate_text, read_table),
        Parser("Ascend statistics (CSV)", "s.csv", (_STATS,), mutate_text, read_statistics),
        Parser("Ascend header (protobuf)", "h.bin", (b"\n\x032.0\x10\x052\x04conv",), mutate_bytes,
               lambda p: parse_header_message(p.read_bytes())),
        Parser(".tflite", "m.tflite", (small_lite(),), mutate_bytes, load_model),
        Parser("ONNX: load", "m.onnx", (model, made["quantized"]), mutate_model, load_model),
        Parser("ONNX: audit", "m.onnx", (made["quantized"],), mutate_model,
               command("audit", "{file}"), times=SLOW),
        Parser("ONNX: quantize", "m.onnx", (model,), mutate_model,
               command("quantize", "{file}", *chip, "-o", "{out}"), times=SLOW),
        Parser("ONNX: layers", "m.onnx", (model,), mutate_model, command("layers", "{file}", *chip), times=SLOW),
    )  # fmt: skip


def _with_length(header: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header


def _unpacked(path: Path) -> object:
    with tempfile.TemporaryDirectory() as folder:
        return unpack(path, Path(folder))


class _TooLong(BaseException):
    """An input that takes longer than any may."""


@contextlib.contextmanager
def _within(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def problem(parser: Parser, data: bytes, folder: Path, *, seconds: float = SECONDS) -> str:
    """What went wrong with an input; empty when it was read or refused as it should be."""
    path = folder / parser.file
    path.write_bytes(data)
    try:
        with _within(seconds):
            parser.read(path)
    except (RoundoffError, Unreadable) as error:
        return "" if str(error) and getattr(error, "fix", "") else f"no fix: {error}"
    except _TooLong:
        return f"over {seconds:g} s"
    except BaseException as error:  # noqa: BLE001 - that is what is looked for
        return f"{type(error).__name__}: {error}"[:200]
    return ""


def fuzz(parser: Parser, folder: Path, *, inputs: int, seed: int) -> Iterator[tuple[bytes, str]]:
    """Inputs that failed, and how."""
    rng = np.random.default_rng([seed, *parser.name.encode()])
    for _ in range(max(1, inputs // parser.times)):
        data = parser.mutate(parser.seeds[int(rng.integers(len(parser.seeds)))], rng)
        wrong = problem(parser, data, folder)
        if wrong:
            yield data, wrong


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--inputs", type=int, default=INPUTS)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--parsers", nargs="*", default=[])
    options.add_argument("--page", type=Path)
    given = options.parse_args()
    rows, failed = [], 0
    os.environ["ROUNDOFF_TRACEBACK"] = "1"  # what escapes a command is a failure here
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for parser in parsers(folder):
            if given.parsers and not any(asked in parser.name for asked in given.parsers):
                continue
            began = time.monotonic()
            found: dict[str, int] = {}
            for data, wrong in fuzz(parser, folder, inputs=given.inputs, seed=given.seed):
                failed += 1
                if wrong.partition(":")[0] not in found:
                    keep(parser, data)
                    print(f"  {parser.name}: {wrong}", flush=True)
                found[wrong.partition(":")[0]] = found.get(wrong.partition(":")[0], 0) + 1
            count = max(1, given.inputs // parser.times)
            rows.append((parser.name, count, sum(found.values())))
            took = time.monotonic() - began
            print(f"{parser.name:26} {count:8,} inputs, {sum(found.values())} failures, {took:.0f} s", flush=True)
    if given.page is not None:
        write_page(given.page, rows, seed=given.seed)
    return 1 if failed else 0


def keep(parser: Parser, data: bytes) -> None:
    """Keep an input that failed, for the tests."""
    CORPUS.mkdir(exist_ok=True)
    stem = re.sub(r"\W+", "_", parser.name).strip("_")
    (CORPUS / f"{stem}-{hashlib.sha256(data).hexdigest()[:12]}").write_bytes(data)


def write_page(path: Path, rows: list[tuple[str, int, int]], *, seed: int) -> None:
    """Write the table of all parsers."""
    lines = [f"| {name} | {count:,} | {failures} |" for name, count, failures in rows]
    total, wrong = sum(row[1] for row in rows), sum(row[2] for row in rows)
    text = _PAGE.format(seed=seed, total=f"{total:,}", wrong=wrong, rows="\n".join(lines))
    path.write_text(text, encoding="utf-8")


_PAGE = """# Fuzzing

Every parser of files that others write, with inputs that begin as a valid document and are changed where its
grammar has places: values replaced by hostile ones, parts repeated, nested, swapped or dropped, fields of lengths
and types altered. An input must be read, or refused with an error and its fix, within 10 s. What fails is kept in
`tests/corpus`, and the tests try it, and new inputs for each parser, from then on.

`python -m benchmarks fuzz --inputs N --page docs/reference/fuzzing.md` makes this page (seed {seed}):

| parser | inputs | failures |
|---|---|---|
{rows}
| all | {total} | {wrong} |
"""


if __name__ == "__main__":
    sys.exit(main())
