"""Random networks, compiled in every way: each tensor must meet the golden one it stands for, and no other.

All golden tensors differ, and what the NPU holds is the golden tensor itself: any other pairing shows.
"""

import csv
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roundoff.cli import main
from roundoff.core.tensors import Array
from tests.ascend_dumps import TIME, Item, item, write_dump
from tests.vendors.ascend.models import op, output, write_model

KINDS = ("plain", "renamed", "fused", "made", "several outputs", "split", "not dumped", "odd name")
Tensor = tuple[str, int, str]
"""Operator, which output, and the golden tensor it stands for."""


@dataclass
class Network:
    """What is built up operator by operator."""

    rng: np.random.Generator
    golden: dict[str, Array] = field(default_factory=dict)
    model: list[dict[str, Any]] = field(default_factory=list)
    dumps: list[tuple[str, str, list[Item], list[Item]]] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    expected: set[str] = field(default_factory=set)

    def original(self, name: str, index: int = 0) -> str:
        """A golden tensor of its own."""
        shape = (1, *(int(size) for size in self.rng.integers(2, 20, 3)))
        self.golden[f"{name}.{index}"] = self.rng.normal(size=shape).astype(np.float32)
        return f"{name}.{index}"

    def dumped(self, key: str) -> Item:
        """A golden tensor as the device holds it, plain or in blocks of channels."""
        array = self.golden[key]
        block = int(self.rng.choice([0, 16, 32]))
        if not block:
            return item(array, format="NCHW", original=array.shape)
        samples, channels, height, width = array.shape
        padded = np.pad(array, ((0, 0), (0, -channels % block), (0, 0), (0, 0)))
        split = padded.reshape(samples, -1, block, height, width).transpose(0, 1, 3, 4, 2)
        return item(np.ascontiguousarray(split), format="NC1HWC0", original=array.shape)

    def add(
        self, name: str, kind: str, reads: list[Tensor], writes: dict[str, str], *,
        originals: list[str] | None = None, dumped: bool = True,
    ) -> None:  # fmt: skip
        """Add an operator; `writes` has the golden tensors of its outputs and how the model names their origin."""
        descriptions = [
            output(self.golden[key].shape, layout="NCHW", origin=origin, index=int(key[-1]) if origin else None)
            for key, origin in writes.items()
        ]
        inputs = [*(f"{source}:{index}" for source, index, _ in reads), *(f"{read[0]}:-1" for read in reads[:1])]
        self.model.append(op(name, kind, inputs=inputs, originals=originals, outputs=descriptions))
        self.tensors += [(name, index, key) for index, key in enumerate(writes)]
        if dumped:
            sides = [self.dumped(key) for _, _, key in reads], [self.dumped(key) for key in writes]
            self.dumps.append((name, kind, *sides))
            self.expected |= {f"{name}:input:{place}" for place in range(len(reads))}
            self.expected |= {f"{name}:output:{place}" for place in range(len(writes))}


def grow(network: Network, place: int) -> None:
    """Add one operator of a random kind that reads one or two earlier tensors."""
    kind = str(network.rng.choice(KINDS))
    picked = network.rng.permutation(len(network.tensors))[: network.rng.integers(1, 3)]
    reads, name, first = [network.tensors[index] for index in picked], f"op{place}", f"first{place}"
    if kind == "made":
        made = str(network.rng.choice(["Cast", "TransData"]))
        network.add(name, made, reads[:1], {reads[0][2]: ""}, originals=[])
    elif kind == "renamed":
        network.add(name, "Relu", reads, {network.original(first): ""}, originals=[first])
    elif kind == "fused":
        network.original(first)
        last = network.original(f"last{place}")
        network.add(name, "Conv2D", reads, {last: f"last{place}"}, originals=[first, f"last{place}"])
    elif kind == "several outputs":
        keys = [network.original(first, index) for index in (2, 0, 1)]
        network.add(name, "Split", reads, dict.fromkeys(keys, first), originals=[first])
    elif kind == "split":
        key = network.original(first)
        network.add(f"{name}_a", "Conv2D", reads, {}, originals=[first])
        network.add(f"{name}_b", "Conv2D", [], {key: first}, originals=[first])
    else:
        name = f"block{place}/op.x" if kind == "odd name" else name
        network.add(name, "Add", reads, {network.original(name): ""}, dumped=kind != "not dumped")


def file_name(op_name: str) -> str:
    return op_name.replace("/", "_").replace(".", "_")


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("strict", [False, True])
def test_every_tensor_meets_its_golden_one(tmp_path: Path, seed: int, strict: bool) -> None:
    network = Network(np.random.default_rng(seed))
    network.add("data", "Data", [], {network.original("data"): ""}, dumped=False)
    for place in range(10):
        grow(network, place)
    npu, golden = tmp_path / "npu", tmp_path / "golden"
    npu.mkdir()
    golden.mkdir()
    for place, (name, kind, inputs, outputs) in enumerate(network.dumps):
        write_dump(npu / f"{kind}.{file_name(name)}.{place}.1.{TIME + place}", outputs, inputs, op_name=name)
    for place, (key, array) in enumerate(network.golden.items()):
        np.save(golden / f"{file_name(key[:-2])}{key[-2:]}.{TIME + place}.npy", array)
    model = write_model(tmp_path / "om.json", *network.model)
    words = ["-m", npu, "-g", golden, "-f", model, "-out", tmp_path, *(["--strict-vendor"] if strict else [])]
    main(["ascend", "compare", *map(str, words)])
    with next(tmp_path.glob("result_*.csv")).open(newline="") as file:
        rows = {row["TensorIndex"]: row["MaxAbsoluteError"] for row in csv.DictReader(file)}
    assert network.expected <= rows.keys()
    assert {rows[tensor] for tensor in network.expected} == {"0.000000"}
    assert {value for tensor, value in rows.items() if tensor not in network.expected} <= {"NaN"}
