"""One planted case: the files a user would have, and the truth about them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from roundoff.core.tensors import Array, TensorInfo
from roundoff.graph.insertion import fake_quant_model
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.save import save_model
from roundoff.tensors.writer import WriteFormat, open_writer

Mode = Literal["quantized", "target", "dumps"]


@dataclass(frozen=True, slots=True)
class Truth:
    """What is wrong in a case.

    Attributes:
        kind: ``clean``: nothing; ``culprits``: some nodes; ``distributed``: no node in particular; ``somewhere``:
            what the user has cannot tell where, only that something is wrong.
        nodes: Nodes and tensors any of which is a right answer; any at all when empty.
        causes: Names of causes any of which is right, the best one first.
    """

    kind: Literal["clean", "culprits", "distributed", "somewhere"]
    nodes: frozenset[str] = frozenset()
    causes: tuple[str, ...] = ()


CLEAN = Truth("clean")


def truth(nodes: "frozenset[str] | tuple[str, ...]", *causes: str) -> Truth:
    """Culprits and what may be said of them."""
    return Truth("culprits", frozenset(nodes), causes)


@dataclass(frozen=True, slots=True)
class Dumps:
    """What a device wrote.

    Attributes:
        samples: For each sample its tensors in execution order.
        format: As what they are stored.
        with_quantized: Whether the user has the quantized model too.
        names: What the device calls each tensor; its own name where nothing is said.
        style: The style of these names, one of `naming.STYLES`.
        way: How the dump came, one of `variants.WAYS`.
    """

    samples: tuple[Mapping[str, Array], ...]
    format: WriteFormat = "npz"
    with_quantized: bool = True
    names: Mapping[str, str] = field(default_factory=dict)
    style: str = "same names"
    way: str = "whole"


@dataclass(frozen=True, slots=True)
class PlantedCase:
    """A network, what was done to it, and what a diagnosis should say.

    Attributes:
        family: Kind of network.
        fault: Kind of fault, ``clean`` for none.
        seed: Which of them.
        model: The float model.
        samples: The user's samples by input, along the first axis.
        labels: Their classes, where the network classifies.
        truths: What is wrong; several where one fault hides another.
        quantized: The quantized model, where there is one.
        target: The chip to quantize for, where there is no quantized model.
        dumps: What the device wrote, where there is one.
    """

    family: str
    fault: str
    seed: int
    model: Model
    samples: Mapping[str, Array]
    labels: Array | None
    truths: tuple[Truth, ...]
    quantized: QuantizedModel | None = None
    target: str = ""
    dumps: Dumps | None = None
    extra: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        return f"{self.fault}/{self.family}/{self.seed}"

    @property
    def mode(self) -> Mode:
        return "dumps" if self.dumps is not None else "quantized" if self.quantized is not None else "target"

    @property
    def is_clean(self) -> bool:
        return all(each.kind == "clean" for each in self.truths)

    def write(self, folder: Path) -> list[str]:
        """Write the files of a user; gives the arguments of `roundoff diagnose` for them."""
        folder.mkdir(parents=True, exist_ok=True)
        save_model(self.model, folder / "model.onnx", replace=True)
        if len(self.samples) == 1:
            data = folder / "data.npy"
            np.save(data, next(iter(self.samples.values())))
        else:
            data = folder / "data.npz"
            np.savez(data, **self.samples)  # type: ignore[arg-type]
        arguments = [str(folder / "model.onnx"), "--data", str(data), *self.extra]
        if self.quantized is not None and (self.dumps is None or self.dumps.with_quantized):
            deferred = fake_quant_model(self.quantized.float_model, self.quantized.quantizers)
            save_model(deferred, folder / "quantized.onnx", replace=True)
            arguments += ["--quantized", str(folder / "quantized.onnx")]
        if self.target:
            arguments += ["--target", self.target]
        if self.dumps is not None:
            self._write_dumps(self.dumps, folder / "dumps")
            arguments += ["--dumps", str(folder / "dumps")]
        return arguments

    def _write_dumps(self, dumps: Dumps, folder: Path) -> None:
        if dumps.names:
            for index, tensors in enumerate(dumps.samples):
                (folder / str(index)).mkdir(parents=True)
                # In the order of their names, so that the times of the files tell nothing.
                for tensor in sorted(tensors, key=lambda each: dumps.names[each]):
                    path = folder / str(index) / f"{dumps.names[tensor]}.npy"
                    np.save(path, np.ascontiguousarray(tensors[tensor]))
            return
        names = tuple(map(str, range(len(dumps.samples))))
        with open_writer(folder, dumps.format, samples=names) as writer:
            for name, tensors in zip(names, dumps.samples, strict=True):
                writer.begin_sample(name)
                for tensor, values in tensors.items():
                    writer.write(TensorInfo(tensor), np.ascontiguousarray(values))
