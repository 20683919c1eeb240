"""Where the tools are, networks for them, and running them: ``make judges`` or ROUNDOFF_JUDGES=FOLDER."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.planted.families import FAMILIES
from scripts.judges import TOOLS, interpreter, quiet

from roundoff.core.tensors import Array
from roundoff.graph.load import Model
from roundoff.graph.save import save_model

WORKERS = Path(__file__).with_name("workers")
FOLDER = os.environ.get("ROUNDOFF_JUDGES", "")
_LONGEST = 600
CALIBRATED_ON, RUN_ON = 8, 2


def python_of(tool: str) -> Path:
    """The Python of a tool; without it the test is visibly skipped."""
    found = interpreter(Path(FOLDER).resolve(), tool) if FOLDER else None
    if found is None:
        pytest.skip(f"{TOOLS[tool]['title']} is not there: 'make judges' installs it, ROUNDOFF_JUDGES names where")
    return found


@dataclass(frozen=True, slots=True)
class Network:
    """A network of ours on disk, with samples to calibrate on and to run.

    Attributes:
        path: The ONNX model.
        folder: Where everything of it is.
        calibration: What tools calibrate on, samples along the first axis.
        samples: What they run, which was not calibrated on.
    """

    path: Path
    folder: Path
    calibration: Mapping[str, Array]
    samples: Mapping[str, Array]

    def rows(self, values: Mapping[str, Array]) -> list[dict[str, Array]]:
        """Samples one by one."""
        count = len(next(iter(values.values())))
        return [{name: each[place : place + 1] for name, each in values.items()} for place in range(count)]

    def stored(self, values: Mapping[str, Array], kind: str) -> list[dict[str, str]]:
        """Samples as one .npy for each input."""
        found = []
        for place, row in enumerate(self.rows(values)):
            names = {name: self.folder / f"{kind}{place}_{name}.npy" for name in row}
            for name, array in row.items():
                np.save(names[name], array)
            found.append({name: str(path) for name, path in names.items()})
        return found

    def archives(self, values: Mapping[str, Array], kind: str) -> list[str]:
        """Samples as an .npz each."""
        (self.folder / kind).mkdir(exist_ok=True)
        found = []
        for place, row in enumerate(self.rows(values)):
            path = self.folder / kind / f"{place}.npz"
            _store(path, row)
            found.append(str(path))
        return found


def _store(path: Path, values: Mapping[str, Any]) -> None:
    np.savez(path, **values)


def network(family: str, seed: int, folder: Path, *, model: Model | None = None) -> Network:
    """A network of a family that no file in the repository was made of, or another with its samples."""
    built = FAMILIES[family](np.random.default_rng(seed))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{family.replace('-', '_')}{seed}.onnx"
    save_model(model or built.model, path)
    parts = [
        {name: values[first:last] for name, values in built.samples.items()}
        for first, last in ((0, CALIBRATED_ON), (CALIBRATED_ON, CALIBRATED_ON + RUN_ON))
    ]
    return Network(path, folder, *parts)


def run_tool(tool: str, job: Mapping[str, Any], folder: Path) -> None:
    """Run the worker of a tool in the tool's environment."""
    python = python_of(tool)
    folder.mkdir(parents=True, exist_ok=True)
    paper = folder / "job.json"
    paper.write_text(json.dumps(job), encoding="utf-8")
    run_python(python, [str(WORKERS / f"run_{tool}.py"), str(paper.resolve())], folder)


def run_python(python: Path, words: Sequence[str], folder: Path) -> str:
    """Run something in a tool's environment; what it printed."""
    environment = quiet()
    environment["PATH"] = f"{python.parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        [str(python), *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_LONGEST,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


def rknn_dumps(net: Network, name: str = "rknn", *, model: Path | None = None, **more: Any) -> Path:
    """What RKNN-Toolkit2's simulator makes of a network."""
    out = net.folder / name
    rows = [list(row.values()) for row in net.stored(net.calibration, "calibration")]
    job = {
        "model": str(model or net.path),
        "out": str(out),
        "dataset": [" ".join(row) for row in rows],
        "samples": [list(row.values()) for row in net.stored(net.samples, "sample")],
        **more,
    }
    run_tool("rknn", job, out)
    return out


def tpu_dumps(net: Network, name: str = "tpu", *, model: Path | None = None, **more: Any) -> Path:
    """What TPU-MLIR's interpreter makes of a network."""
    out = net.folder / name
    net.archives(net.calibration, "calibration")
    job = {
        "model": str(model or net.path),
        "out": str(out),
        "dataset": str(net.folder / "calibration"),
        "samples": net.archives(net.samples, "samples"),
        "shapes": [list(each[:1].shape) for each in net.samples.values()],
        **more,
    }
    run_tool("tpu_mlir", job, out)
    return out


def htp_dumps(net: Network, name: str = "htp", **more: Any) -> Path:
    """What the HTP emulator makes of a network."""
    out = net.folder / name
    _store(net.folder / "calibration.npz", net.calibration)
    job = {
        "model": str(net.path),
        "out": str(out),
        "calibration": str(net.folder / "calibration.npz"),
        "samples": net.archives(net.samples, "samples"),
        **more,
    }
    run_tool("htp", job, out)
    return out
