"""Memory of whole commands on a model of 500 MB: the largest resident size of the process, beside what is allowed.

The model is made in code: wide matrix products, nearly all of it weights. Each command runs in a process of its
own, whose peak the system reports when it ends. Allowed is so many times the model, and the budget for the rest.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from roundoff.graph.nodes import make_model

MODEL_MB = 500
WIDTH = 2048
BUDGET_MB = 800
"""What a command is given for tensors and the program itself beside the weights."""
SAMPLES = (4, 16)
# Times the model that a command may take beside its budget.
COMMANDS = {
    "quantize": (2.2, ["--target", "generic-int8", "-o", "{out}"]),
    "layers": (2.2, ["--target", "generic-int8"]),
    "diagnose": (3.0, ["--target", "generic-int8"]),
}
_FLAT = 1.1
"""With four times the samples at most so much more."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model-mb", type=int, default=MODEL_MB)
    parser.add_argument("--commands", nargs="*", default=list(COMMANDS))
    parser.add_argument("--external", action="store_true", help="keep the weights in a file beside the model")
    given = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "wide.onnx"
        # In a process of its own: the peak of whoever starts a command counts as that of the command.
        making = (model, given.model_mb * 10**6, given.external)
        maker = get_context("spawn").Process(target=save_wide, args=making)
        maker.start()
        maker.join()
        size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
        feeds = {count: _save_samples(folder / f"x{count}.npy", count) for count in SAMPLES}
        for command in given.commands:
            times, options = COMMANDS[command]
            allowed = times * size + BUDGET_MB
            peaks = []
            for count, feed in feeds.items():
                words = [text.format(out=folder / f"{command}-{count}") for text in options]
                line = [command, str(model), "--data", str(feed), *words, "--max-memory", f"{int(allowed)}MB"]
                code, peak = _peak(line)
                peaks.append(peak)
                met = peak <= allowed and code in (0, 1)
                good &= met
                print(
                    f"{command:8} {count:2} samples, peak {peak:5.0f} MB = {(peak - BUDGET_MB) / size:.2f} x model"
                    f" + {BUDGET_MB} MB  allowed {times} x  exit {code}  {'ok' if met else 'MISSED'}",
                    flush=True,
                )
            good &= peaks[-1] <= _FLAT * peaks[0]
    return 0 if good else 1


def save_wide(path: Path, size: int, external: bool) -> None:
    """A chain of square matrix products, each with a Relu behind it, of so many bytes of weights."""
    rng = np.random.default_rng(0)
    nodes: list[Any] = []
    weights = []
    x = "x"
    for index in range(max(1, size // (4 * WIDTH * WIDTH))):
        values = rng.standard_normal((WIDTH, WIDTH), dtype=np.float32) * np.float32((2 / WIDTH) ** 0.5)
        weights.append(numpy_helper.from_array(values, f"w{index}"))
        nodes.append(helper.make_node("MatMul", [x, f"w{index}"], [f"m{index}"], name=f"mul{index}"))
        nodes.append(helper.make_node("Relu", [f"m{index}"], [f"r{index}"], name=f"relu{index}"))
        x = f"r{index}"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, WIDTH]) for name in ("x", x)]
    proto = make_model(helper.make_graph(nodes, "wide", ends[:1], ends[1:], weights))
    onnx.save(proto, path, save_as_external_data=external, location="wide.data")


def _save_samples(path: Path, count: int) -> Path:
    np.save(path, np.random.default_rng(1).standard_normal((count, WIDTH), dtype=np.float32))
    return path


def _peak(words: list[str]) -> tuple[int, float]:
    """Exit code and largest resident memory, in MB, of a command."""
    child = subprocess.Popen([sys.executable, "-m", "roundoff", *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, usage.ru_maxrss * 1024 / 1e6


if __name__ == "__main__":
    sys.exit(main())
