"""Memory of whole commands on large models: the largest resident size of the process, beside what is allowed.

``python -m benchmarks memory [--models wide language] [--commands NAME ...] [--model-mb N] [--external]``. The
models are made in code: wide matrix products of 500 MB, nearly all of it weights, and a language model of 650 MB.
Each command runs in a process of its own, whose peak the system reports when it ends. Allowed is so many times the
model: of the wide one beside the budget for the rest, of the language model with everything.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tests.graph.transformer_nets import Form, transformer

from roundoff.graph.nodes import make_model

MODEL_MB = 500
WIDTH = 2048
BUDGET_MB = 800
"""What a command is given for tensors and the program itself beside the weights."""
SAMPLES = (4, 16)
_CHIP = ("--target", "generic-int8")
# Times the model that a command may take.
COMMANDS = {
    "quantize": (2.2, 3.0, ("quantize", *_CHIP, "-o", "{out}")),
    "quantize-weights": (2.2, 3.0, ("quantize", "--target", "weights-int8", "-o", "{out}")),
    "layers": (2.2, 3.0, ("layers", *_CHIP)),
    "diagnose": (3.0, 3.0, ("diagnose", *_CHIP)),
}
_FLAT = 1.1
"""With four times the samples at most so much more."""
_WORDS, _TOKENS = 32_000, 32
LANGUAGE = Form(
    mask="causal", norm="rms", gelu="swish", pre_norm=True, rotary=True, shared_keys=True, outliers=30.0, noise=4,
    tokens=_TOKENS, words=_WORDS, width=1024, heads=16, layers=15,
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model-mb", type=int, default=MODEL_MB)
    parser.add_argument("--models", nargs="*", default=["wide", "language"])
    parser.add_argument("--commands", nargs="*", default=list(COMMANDS))
    parser.add_argument("--external", action="store_true", help="keep the weights in a file beside the model")
    given = parser.parse_args()
    good = True
    for kind in given.models:
        with tempfile.TemporaryDirectory() as name:
            making = Making(kind, Path(name), given.model_mb * 10**6, given.external)
            for command in given.commands:
                good &= _measured(making, command)
    return 0 if good else 1


class Making:
    """A model and samples of two sizes; made in a process of its own: a parent's peak counts as its child's."""

    def __init__(self, kind: str, folder: Path, size: int, external: bool) -> None:
        self.kind, self.folder, self.model = kind, folder, folder / "model.onnx"
        given = (self.model, size, external) if kind == "wide" else (self.model,)
        maker = get_context("spawn").Process(target=save_wide if kind == "wide" else save_language, args=given)
        maker.start()
        maker.join()
        self.size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
        self.feeds = {count: _save_samples(folder / f"x{count}.npy", count, kind) for count in SAMPLES}


def _measured(made: Making, command: str) -> bool:
    """Whether a command takes what it may, with few samples and with many."""
    beside, alone, words = COMMANDS[command]
    times, budget = (beside, BUDGET_MB) if made.kind == "wide" else (alone, 0)
    allowed, peaks, good = times * made.size + budget, [], True
    for count, feed in made.feeds.items():
        asked = [text.format(out=made.folder / f"{command}-{count}") for text in words[1:]]
        line = [words[0], str(made.model), "--data", str(feed), *asked, "--max-memory", f"{int(allowed)}MB"]
        code, peak = _peak(line)
        peaks.append(peak)
        met = peak <= allowed and code in (0, 1)
        good &= met
        rest = f" + {budget} MB" if budget else ""
        print(
            f"{made.kind:8} {command:16} {count:2} samples, peak {peak:5.0f} MB ="
            f" {(peak - budget) / made.size:.2f} x {made.size:.0f} MB{rest}, allowed {times} x  exit {code} "
            f" {'ok' if met else 'MISSED'}",
            flush=True,
        )
    return good and peaks[-1] <= _FLAT * peaks[0]


def save_language(path: Path) -> None:
    """A transformer with a causal mask, and a last layer of a score for each word."""
    drawn = np.random.default_rng(3).standard_normal((LANGUAGE.width, _WORDS), dtype=np.float32)
    head = np.vstack([drawn / np.float32(LANGUAGE.width**0.5), np.zeros((1, _WORDS), np.float32)])
    onnx.save(transformer(replace(LANGUAGE, head_weights=head)).proto, path)


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


def _save_samples(path: Path, count: int, kind: str) -> Path:
    rng = np.random.default_rng(1)
    words = kind == "language"
    drawn = (
        rng.integers(0, _WORDS, (count, 1, _TOKENS)) if words else rng.standard_normal((count, WIDTH), np.float32)
    )
    np.save(path, drawn)
    return path


def _peak(words: list[str]) -> tuple[int, float]:
    """Exit code and largest resident memory, in MB, of a command."""
    child = subprocess.Popen([sys.executable, "-m", "roundoff", *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, usage.ru_maxrss * 1024 / 1e6


if __name__ == "__main__":
    sys.exit(main())
