"""How exactly simulators of other vendors are reproduced from their own scales: share of values that are equal.

``python -m benchmarks exact`` measures on the files beside this checkout and writes docs/reference/how-exact.md.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.study import open_replay
from roundoff.diagnosis.devices.tool_scales import expected_by_scales
from roundoff.diagnosis.investigation import DiagnoseSettings
from roundoff.graph.litert.schema import LiteModel, read_lite
from roundoff.graph.load import load_model
from roundoff.graph.readers import read_quantized
from roundoff.quantize.targets.files import load_target
from roundoff.run.integer.machine import IntegerRunner
from roundoff.samples.sample_set import ArraySamples
from roundoff.tensors import open_source
from roundoff.tensors.stored import target_of

HERE = Path(__file__).resolve().parents[1]
FILES = HERE.parent / "shared" / "vectors" / "tools"
PAGE = HERE / "docs" / "reference" / "how-exact.md"
_EQUAL = 0.1
"""Steps: what is nearer to a code than this is that code."""


@dataclass
class Tally:
    """Values that were compared, equal ones, and the largest difference in steps, by operation."""

    equal: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    count: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    largest: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, operation: str, steps: Array) -> None:
        """Take in differences in steps of the codes."""
        self.equal[operation] += int(np.count_nonzero(np.abs(steps) < _EQUAL))
        self.count[operation] += steps.size
        self.largest[operation] = max(self.largest[operation], float(np.abs(steps).max(initial=0.0)))

    def rows(self) -> Iterator[tuple[str, float, int, float]]:
        """Operation, share, values, largest difference."""
        for operation in sorted(self.count):
            share = self.equal[operation] / self.count[operation]
            yield operation, share, self.count[operation], self.largest[operation]


def by_scales(model: Path, values: Array, dumps: Path, tally: Tally) -> None:
    """Every tensor that the tool wrote with codes, from the tool's own tensors and scales; and the outputs."""
    network = load_model(model)
    source = open_source(dumps)
    samples = ArraySamples({network.proto.graph.input[0].name: values})
    told = expected_by_scales(network, samples, source)
    if told is None:
        return
    graph = told.float_model.proto.graph
    kinds = {name: node.op_type for node in graph.node for name in node.output}
    settings = DiagnoseSettings(arithmetic=load_target(target_of(source)).arithmetic)
    with open_replay(told, samples, source, settings=settings) as replay:
        for name in replay.tensors:
            coded = replay.golden.coded.get(name)
            pair = replay.pair(name, 0)
            # What is read in float and only cast for its readers has no codes of its own.
            if coded is None or not np.allclose(
                np.rint(pair.found / coded.params.scale), pair.found / coded.params.scale, atol=0.02
            ):
                continue
            tally.add(kinds[name], (pair.found - pair.exact) / float(coded.params.scale))
        ends = [
            each.name for each in graph.output if each.name in replay.tensors and each.name in replay.golden.coded
        ]
        made = replay.golden.compute_all(ends, replay.feed(0))
        for name in ends:
            step = float(replay.golden.coded[name].params.scale)
            tally.add(f"(outputs, {model.stem})", (replay.readout.read(name, 0) - made[name]) / step)


def of_litert(path: Path, dump: Path, tally: Tally) -> None:
    """Every tensor of LiteRT's reference kernels from LiteRT's own tensors; and the outputs."""
    lite, values = read_lite(path), np.load(dump)
    told = read_quantized(load_model(path))
    runner = IntegerRunner(told.float_model, told.quantizers, load_target("litert").arithmetic)
    graph = told.float_model.proto.graph
    kinds = {name: node.op_type for node in graph.node for name in node.output}
    leaving = {value.name for value in graph.output}
    known = {
        tensor.name: (place, _real(lite, place, values))
        for place, tensor in enumerate(lite.tensors)
        if str(place) in values.files and tensor.dtype == "int8" and tensor.values is None
    }
    given = {
        name: each.transpose(0, 3, 1, 2) if name in kinds and name not in leaving and each.ndim == 4 else each
        for name, (_, each) in known.items()
    }
    for name in (each for each in given if each in kinds):
        made = runner.run_local({key: each for key, each in given.items() if key != name}, (name,)).values[name]
        if made.shape == given[name].shape:
            tally.add(kinds[name], (made - given[name]) / _step(lite, known[name][0]))
    feed = {value.name: known[value.name][1] for value in graph.input}
    made_all = runner.run(feed, [value.name for value in graph.output]).values
    for value, place in zip(graph.output, lite.outputs, strict=True):
        tally.add("(outputs)", (made_all[value.name] - _real(lite, place, values)) / _step(lite, place))


def _real(lite: LiteModel, place: int, values: Array) -> Array:
    scales = lite.tensors[place].scales
    assert scales is not None
    return np.asarray((values[str(place)].astype(np.float32) - scales.zero_point[0]) * scales.scale[0], np.float32)


def _step(lite: LiteModel, place: int) -> float:
    scales = lite.tensors[place].scales
    assert scales is not None
    return float(scales.scale[0])


def measure() -> dict[str, Tally]:
    """All that is there."""
    found: dict[str, Tally] = defaultdict(Tally)
    for tool, pattern in (
        ("RKNN-Toolkit2 simulator", "rknn/{}/s{}"),
        ("TPU-MLIR INT8", "tpu_mlir/{}/INT8/s{}_tpu.npz"),
    ):
        for model in sorted((FILES / "models").glob("*.onnx")):
            data = np.load(FILES / "inputs" / f"{model.stem}.npz")
            samples = next(data[name] for name in data.files if name.startswith("sample."))
            for place in range(len(samples)):
                dumps = FILES / pattern.format(model.stem, place)
                if dumps.exists():
                    by_scales(model, samples[place : place + 1], dumps, found[tool])
    folders = [*(FILES / "litert").iterdir(), *(FILES / "probes" / "litert").iterdir()]
    for path in sorted(file for folder in folders for file in folder.glob("*_int8.tflite")):
        for dump in sorted(path.parent.glob(f"{path.stem}_s*.npz")):
            of_litert(path, dump, found["LiteRT reference kernels"])
    return found


_HEAD = """# How exact

Share of values whose codes are equal to those of a vendor's simulator. Scales are the tool's own; each tensor is
computed from the tool's tensors in front of it, and the outputs from the inputs alone (last rows of each table).
Written by `python -m benchmarks exact` from files of these tools that are not part of this repository.

Each departure has its reason:

- **RKNN-Toolkit2** (target `rknn`): what the tool adds before it rounds, or reads in front of a fused activation,
  has no codes and is not counted. In other networks single codes may differ by one where sums in another order of
  float32 decide a half; what lies behind then differs by a few.
- **TPU-MLIR** (target `sophgo-bm1684x`): LayerNormalization, Softmax and means behind them are computed in
  float16, and their casts to codes round in float16, too. Products behind such casts, and the outputs of networks
  with them, differ for that. Networks in integers alone are equal to the last code.
- **LiteRT** (target `litert`): the exact-integer simulator. Linear resizing is computed in float here.
- **HTP emulator** (target `qualcomm-htp`): its rounding is not known; it is not predicted here.
"""


def page(found: dict[str, Tally]) -> str:
    """The page."""
    lines = [_HEAD]
    for tool, tally in found.items():
        lines += [
            f"## {tool}\n",
            "| operation | equal | values | largest difference, steps |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| {name} | {100 * share:.2f} % | {count:,} | {largest:.0f} |"
            for name, share, count, largest in sorted(
                tally.rows(), key=lambda row: (row[0].startswith("("), row[0])
            )
        ]
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    """Measure and write the page."""
    if not FILES.is_dir():
        print(f"skipped: no files of other tools beside this checkout ({FILES.name})")
        return 0
    found = measure()
    PAGE.write_text(page(found), encoding="utf-8")
    for tool, tally in found.items():
        for name, share, count, largest in tally.rows():
            print(f"{tool:26} {name:24} {100 * share:7.2f} % of {count:7} (largest {largest:.0f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
