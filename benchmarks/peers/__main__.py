"""roundoff beside onnxruntime's tools, NNCF and Polygraphy: the same models, samples and dumps, in one run.

``python -m benchmarks peers [--python nncf=VENV/bin/python] [--page docs/benchmarks.md] [--nodes 125,250,500]``
runs every job in a process of its own and prints CPU seconds, growth of memory, accuracy on samples that nobody
saw with its interval, and the share of products in int8. Who is not installed, in this environment or in one of
its own that is named, is skipped by name. With ``--page`` the page of the documentation is written anew.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from benchmarks.accuracy import Task, digits, mobilenet
from benchmarks.diagnose import residual_network
from benchmarks.models import RandomImages, save_mobilenet_v2
from benchmarks.networks import integer_share
from benchmarks.peers.curves import growth, picture
from benchmarks.tune import MODEL, read_data, rescale
from roundoff.core.tensors import Array
from roundoff.graph.insertion import insert_quantizers
from roundoff.graph.load import load_model
from roundoff.graph.readers.reader import read_quantized
from roundoff.measure.inference import share_interval
from roundoff.run.bench import spread
from roundoff.studies.sensitivity.ranking import find_subjects

ROOT = Path(__file__).resolve().parents[2]
THEIRS = Path(__file__).with_name("theirs.py")
PEERS = ("onnxruntime", "nncf", "polygraphy")
SEARCHED = 500
"""So many samples a search may use, at most half of those with labels."""
UNSEEN = 2000
"""So many samples that nobody saw are answered at most."""
MOST_CPU_S = 400
"""A job that takes more is ended."""
LOOPED = 30
"""The loop that stands in for a sensitivity is run for so many nodes at most; its time is scaled up to all."""
LAYER_SAMPLES, DUMP_MB = 32, 64


@dataclass(frozen=True)
class Took:
    """What a job took."""

    cpu_s: float
    growth_mb: float
    counts: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Bench:
    """Runs jobs of either side.

    Attributes:
        pythons: The Python that has a tool; this one by default.
        missing: Tools that are not there.
        curves: CPU seconds as something grows: by what grows, and by job.
    """

    pythons: dict[str, str]
    missing: set[str] = field(default_factory=set)
    curves: dict[str, dict[str, list[tuple[float, float]]]] = field(default_factory=dict)

    def grow(self, what: str, job: str, at: float, took: Took) -> None:
        """Note a point of a curve."""
        self.curves.setdefault(what, {}).setdefault(job, []).append((at, max(took.cpu_s, 0.01)))

    def find(self) -> None:
        """Ask which tools are there."""
        for peer in PEERS:
            python = self.pythons.setdefault(peer, sys.executable)
            asked = [python, "-c", f"import {peer}"]
            there = shutil.which(python) is not None
            if not there or subprocess.run(asked, capture_output=True, check=False).returncode:
                self.missing.add(peer)
                print(f"{peer} is not installed: skipped", flush=True)

    def run(self, job: str, folder: Path) -> Took | None:
        """Do a job; None where its tool is not there or fails."""
        who = job.split("-", maxsplit=1)[0]
        if who in self.missing:
            return None
        command = [sys.executable, "-m", "benchmarks.peers.ours"]
        if who != "roundoff":
            command = [self.pythons[who], str(THEIRS)]
        limited = ["bash", "-c", f'ulimit -t {MOST_CPU_S}; exec "$@"', "job", *command, job, str(folder)]
        done = subprocess.run(limited, capture_output=True, text=True, cwd=ROOT, check=False)
        if done.returncode in (-signal.SIGKILL, -signal.SIGXCPU):
            print(f"{folder.name}: {job} did not end within {MOST_CPU_S} CPU s", flush=True)
            return None
        if done.returncode:
            print(f"{job} failed: {(done.stderr.strip().splitlines() or [''])[-1]}", flush=True)
            return None
        found = json.loads(done.stdout.strip().splitlines()[-1])
        took = Took(found.pop("cpu_s"), found.pop("growth_mb"), found)
        print(f"{folder.name}: {job} {took.cpu_s:.2f} CPU s, +{took.growth_mb:.0f} MB", flush=True)
        return took


def tasks(folder: Path) -> Iterator[Task]:
    """Networks with samples and labels: the demo's always, others where they lie beside the checkout."""
    yield digits()
    if MODEL.is_file():
        proto = onnx.load(MODEL)
        rescale(proto)
        path = folder / "repvgg.onnx"
        onnx.save(proto, path)
        pixels, labels = read_data()
        yield Task("RepVGG with rescaled channels", path, pixels[:64], pixels[1000:], labels[1000:])
    if (found := mobilenet()) is not None:
        yield found


def lay_out(task: Task, folder: Path) -> int:
    """Write what jobs read; how many samples a search may use."""
    folder.mkdir()
    shutil.copy(task.path, folder / "float.onnx")
    (folder / "input.txt").write_text(task.input, "utf-8")
    searched = min(SEARCHED, len(task.labels) // 2)
    np.save(folder / "calibration.npy", task.calibration)
    np.save(folder / "search.npy", task.images[:searched])
    np.save(folder / "labels.npy", task.labels[:searched])
    return searched


def accuracy(path: Path, task: Task, searched: int) -> str:
    """Share of right answers on samples that neither side saw, by stock onnxruntime."""
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    images, labels = (each[searched : searched + UNSEEN] for each in (task.images, task.labels))
    right = sum(
        int(session.run(None, {task.input: images[at : at + 1]})[0].reshape(-1).argmax() == labels[at])
        for at in range(len(labels))
    )
    low, high = share_interval(right, len(labels)) or (0.0, 1.0)
    return f"{right / len(labels):.1%} ({low:.1%} to {high:.1%})"


GROUPS = {
    "Calibration": (
        "roundoff-minmax", "onnxruntime-minmax", "roundoff-entropy", "onnxruntime-entropy", "roundoff-percentile",
        "onnxruntime-percentile",
    ),
    "Bias correction": ("roundoff-none", "nncf-none", "roundoff-bias", "nncf-fast", "nncf-exact"),
    "Search for a model that loses at most one point": ("roundoff-search", "nncf-search"),
}  # fmt: skip
MADE = "| | CPU s | MB on top | right on unseen samples (95 %) | products in int8 |\n|---|---|---|---|---|"
MEASURED = "| | CPU s | MB on top | of it |\n|---|---|---|---|"


def made_models(bench: Bench, folder: Path, wanted: str) -> Iterator[str]:
    """Tables of models that both sides make of the same float model and samples."""
    for number, task in enumerate(each for each in tasks(folder) if fnmatch(each.name, wanted)):
        place = folder / f"task{number}"
        searched = lay_out(task, place)
        unseen = min(UNSEEN, len(task.labels) - searched)
        in_float = accuracy(task.path, task, searched)
        yield f"## {task.name}\n\n{unseen} unseen samples; in float {in_float} are right.\n"
        for title, jobs in GROUPS.items():
            yield f"### {title}\n\n{MADE}"
            for job in jobs:
                took = bench.run(job, place)
                if took is not None:
                    path = place / f"{job}.onnx"
                    runs = f", {took.counts['runs']:,.0f} sample runs" if took.counts else ""
                    yield (
                        f"| {job}{runs} | {took.cpu_s:.2f} | {took.growth_mb:.0f} | "
                        f"{accuracy(path, task, searched)} | {integer_share(path):.0%} |"
                    )
            yield ""


def write_singles(folder: Path) -> int:
    """A model for some nodes with their quantizers alone, as one writes them by hand; how many nodes there are."""
    quantized = read_quantized(
        load_model(folder / "onnxruntime-minmax.onnx"), float_model=load_model(folder / "float.onnx")
    )
    by_name = {each.name: each for each in quantized.quantizers}
    (folder / "single").mkdir(exist_ok=True)
    subjects = find_subjects(quantized, ["node"])
    for number in spread(len(subjects), LOOPED):
        subject = subjects[number]
        on = [by_name[name] for name in subject.quantizers]
        onnx.save(insert_quantizers(quantized.float_model, on).proto, folder / "single" / f"{number:04}.onnx")
    return len(subjects)


def studied(bench: Bench, folder: Path, name: str, path: Path, images: Array, *, nodes: int = 0) -> Iterator[str]:
    """Layers and sensitivity of one network, of so many nodes where it is one of several."""
    place = folder / name.replace(" ", "_")
    place.mkdir()
    shutil.copy(path, place / "float.onnx")
    (place / "input.txt").write_text("image", "utf-8")
    np.save(place / "calibration.npy", images[:4])
    np.save(place / "search.npy", images)
    if bench.run("onnxruntime-minmax", place) is None:
        return
    total = write_singles(place)
    for job in ("roundoff-layers", "onnxruntime-layers", "roundoff-sensitivity", "onnxruntime-loop"):
        took = bench.run(job, place)
        if took is not None:
            of_it = ", ".join(f"{count:.0f} {what}" for what, count in took.counts.items())
            if job == "onnxruntime-loop" and took.counts["nodes"] < total:
                took = replace(took, cpu_s=took.cpu_s * total / took.counts["nodes"])
                of_it = f"{total} nodes, from {of_it}"
            if nodes:
                bench.grow("nodes", job, nodes, took)
            yield f"| {name}: {job} | {took.cpu_s:.2f} | {took.growth_mb:.0f} | {of_it} |"
    shutil.rmtree(place)


def studies(bench: Bench, folder: Path, nodes: Sequence[int]) -> Iterator[str]:
    """Layers and sensitivity, and how they grow with nodes."""
    yield f"## Layer by layer, and node by node\n\n{LAYER_SAMPLES} samples, both from the same quantized file."
    yield "onnxruntime has no sensitivity: a model for each node, run by a session of its own, stands in."
    yield f"\n{MEASURED}"
    feeds = RandomImages(LAYER_SAMPLES, 96)
    images = np.concatenate([feeds.feed(at)["image"] for at in range(LAYER_SAMPLES)])
    yield from studied(bench, folder, "MobileNetV2", save_mobilenet_v2(folder / "v2.onnx", 96), images)
    small = np.random.default_rng(0).standard_normal((LAYER_SAMPLES, 3, 16, 16)).astype(np.float32)
    for count in nodes:
        path = folder / "deep.onnx"
        onnx.save(residual_network(count), path)
        yield from studied(bench, folder, f"{count:,} nodes", path, small, nodes=count)
    yield from curve(bench, "nodes")


def dumps(bench: Bench, folder: Path) -> Iterator[str]:
    """Two stored runs."""
    place = folder / "dumps"
    place.mkdir()
    rng, shape = np.random.default_rng(0), (1, 64, 128, 128)
    count = DUMP_MB * 2**20 // (4 * int(np.prod(shape)))
    exact: dict[str, Any] = {f"tensor{at:03}": rng.standard_normal(shape, dtype=np.float32) for at in range(count)}
    noise = np.float32(0.02)
    other: dict[str, Any] = {
        name: each + noise * rng.standard_normal(shape, dtype=np.float32) for name, each in exact.items()
    }
    np.savez(place / "a.npz", **exact)
    np.savez(place / "b.npz", **other)
    if bench.run("polygraphy-save", place) is None:
        return
    yield f"## Two dumps of {DUMP_MB} MB each, in Polygraphy's form\n\n{MEASURED}"
    for job in ("roundoff-compare", "polygraphy-compare"):
        took = bench.run(job, place)
        if took is not None:
            yield f"| {job} | {took.cpu_s:.2f} | {took.growth_mb:.0f} | {took.counts['tensors']:.0f} tensors |"
    yield ""


def grown(bench: Bench, folder: Path, counts: Sequence[int]) -> Iterator[str]:
    """How calibration grows with samples."""
    yield f"## Growth with samples\n\nThe demo's network, its pictures again and again.\n\n{MEASURED}"
    task = digits()
    for count in counts:
        place = folder / f"samples{count}"
        lay_out(task, place)
        np.save(place / "calibration.npy", np.resize(task.images, (count, *task.images.shape[1:])))
        for job in ("roundoff-minmax", "onnxruntime-minmax", "roundoff-entropy", "onnxruntime-entropy"):
            took = bench.run(job, place)
            if took is not None:
                bench.grow("samples", job, count, took)
                yield f"| {count:,} samples: {job} | {took.cpu_s:.2f} | {took.growth_mb:.0f} | |"
        shutil.rmtree(place)
    yield from curve(bench, "samples")


def curve(bench: Bench, what: str) -> Iterator[str]:
    """The picture of what grows, and with which power of it."""
    grown = {job: points for job, points in bench.curves.get(what, {}).items() if len(points) > 1}
    if grown:
        powers = ", ".join(f"{job} {growth(points):.2f}" for job, points in grown.items())
        yield f"\n![CPU seconds by {what}](benchmarks-{what}.svg)\n\nGrows with a power of the {what}: {powers}.\n"


def heading(bench: Bench, command: Sequence[str]) -> str:
    """What was run where."""
    told = {}
    for peer in PEERS:
        code = f"import importlib.metadata as m; print(m.version('{peer}'))"
        if peer not in bench.missing:
            told[peer] = subprocess.run(
                [bench.pythons[peer], "-c", code], capture_output=True, text=True, check=False
            ).stdout.strip()
    others = ", ".join(f"{name} {number}" for name, number in told.items())
    absent = f" Not installed, and left out: {', '.join(sorted(bench.missing))}." if bench.missing else ""
    return f"""# Beside other tools

Written by `{" ".join(command)}`: roundoff {version("roundoff")}, {others}.
Every job runs in a process of its own, beside other work (load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores
when this was written, which makes every CPU second longer),
imports not counted, on the same files in one run.{absent} CPU seconds are those of all cores; memory is what the
process grew by. With a calibration roundoff judges the outputs, too, which the others do not do; on small
networks that takes longer than all the rest. Weights have a scale for each output channel.

`none` is a model without corrected biases, `fast` and `exact` are NNCF's two ways to correct them. RepVGG is
trained on Fashion-MNIST; channels between three pairs of its convolutions differ by up to 2^10 without changing
what it computes in float, which plain int8 does not survive.
"""


def write(page: Path, told: Sequence[str], bench: Bench) -> None:
    """The page as far as it is known, with its pictures."""
    page.write_text("\n".join(told).rstrip() + "\n", "utf-8")
    for what, curves in bench.curves.items():
        drawn = picture(f"CPU seconds, by {what}", f"number of {what}", "CPU seconds", curves)
        page.with_name(f"benchmarks-{what}.svg").write_text(drawn, "utf-8")


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    asked.add_argument("--python", action="append", default=[], metavar="PEER=PYTHON")
    asked.add_argument("--page", type=Path, default=None)
    asked.add_argument("--models", default="*", help="of the networks with labels only those of such a name")
    asked.add_argument("--nodes", default="125,500,2000")
    asked.add_argument("--samples", default="100,1000,10000")
    given = asked.parse_args()
    bench = Bench(dict(each.split("=", 1) for each in given.python))
    bench.find()
    nodes, samples = ([int(each) for each in text.split(",") if each] for text in (given.nodes, given.samples))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        told = [
            heading(
                bench,
                [
                    "python -m benchmarks peers",
                    f"--models '{given.models}'",
                    f"--nodes {given.nodes}",
                    f"--samples {given.samples}",
                ],
            )
        ]
        sections = (
            studies(bench, folder, nodes),
            dumps(bench, folder),
            grown(bench, folder, samples),
            made_models(bench, folder, given.models),
        )
        for line in chain.from_iterable(sections):
            told.append(line)
            if given.page is not None:
                write(given.page, told, bench)
    print("\n".join(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
