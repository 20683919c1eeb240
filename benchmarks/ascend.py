"""Speed and memory of `roundoff ascend compare`, each run in a process of its own.

Four cases. Large: 1 GiB of float16 dumps in NC1HWC0 and golden float32, both as stored, with all ten algorithms
(at least 1 GiB per second of processor time, under 200 MB) and with one (less than half of that time). Dumps: the
same of two dumps of one device (at least 0.7). Small: 2,000 small operators (under 5 s). Single: one operator of
16 M elements written out element by element (under 10 s, under 500 MB). Of several runs the best counts; what a
run of two tiny operators takes, which is to start the program, is told and taken off. The vendor's own tool has
0.03 GiB per second. Leaves with 1 when a target is missed.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from tests.ascend_dumps import TIME, item, write_dump

from roundoff.core.tensors import Array

TARGET_SPEED, TARGET_DUMPS_SPEED = 1.0, 0.7
TARGET_MB = 500.0
TARGET_SINGLE_S = 10.0
RUNS = 3
TARGET_LARGE_MB = 200.0
TARGET_ONE = 0.5
TARGET_SMALL_S = 5.0
LARGE, CHANNELS, SIDE = 40, 64, 278
SMALL = 2000


def model(path: Path, names: list[str], shape: tuple[int, ...], layout: str) -> Path:
    attributes = [
        {"key": "origin_format", "value": {"s": layout}},
        {"key": "origin_shape", "value": {"list": {"i": list(shape)}}},
    ]
    ops: list[dict[str, Any]] = [
        {"name": name, "type": "Conv2D", "id": place, "attr": [], "output_desc": [{"attr": attributes}]}
        for place, name in enumerate(names)
    ]
    path.write_text(json.dumps({"name": "net", "graph": [{"name": "net", "op": ops}]}))
    return path


def write_case(folder: Path, count: int, shape: tuple[int, ...], *, blocked: bool) -> int:
    """Write both sides; tell how many bytes."""
    rng = np.random.default_rng(0)
    names = [f"op{place}" for place in range(count)]
    for side in ("npu", "golden"):
        (folder / side).mkdir(parents=True)
    layout = "NC1HWC0" if blocked else "ND"
    n, c, h, w = shape
    for place, name in enumerate(names):
        golden: Array = rng.standard_normal(shape, np.float32)
        mine = (golden * 1.001).astype(np.float16)
        stored = mine.reshape(n, c // 16, 16, h, w).transpose(0, 1, 3, 4, 2) if blocked else mine
        about = item(np.ascontiguousarray(stored), format=layout, original=shape)
        write_dump(folder / "npu" / f"Conv2D.{name}.{place}.1.{TIME + place}", [about], op_name=name)
        np.save(folder / "golden" / f"{name}.0.{TIME + place}.npy", golden)
    model(folder / "om.json", names, shape, "NCHW" if blocked else "ND")
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# The system's own figure for a child counts the parent's memory, too; the child reads its own.
PROGRAM = """
import sys
from pathlib import Path
from roundoff.cli import main
main(sys.argv[1:])
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(int(peak.split()[1]) / 1024, file=sys.stderr)
"""


def run(folder: Path, *words: str) -> tuple[float, float, float]:
    """Wall time, processor time, and the most memory in megabytes, of one run."""
    rules = [] if "-f" in words else ["-f", str(folder / "om.json")]
    command = [
        sys.executable, "-c", PROGRAM, "ascend", "compare", "-m", str(folder / "npu"), "-g",
        str(folder / "golden"), "-out", str(folder / "out"), *rules, *(word for word in words if word != "-f"),
    ]  # fmt: skip
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, float(done.stderr.split()[-1])


def best(folder: Path, *words: str) -> tuple[float, float]:
    """Processor time without that of the start, and the most memory, of the fastest of a few runs."""
    with tempfile.TemporaryDirectory() as text:
        write_case(Path(text), 2, (1, 16, 4, 4), blocked=True)
        start = min(run(Path(text))[1] for _ in range(RUNS))
    runs = [run(folder, *words) for _ in range(RUNS)]
    cpu = min(found[1] for found in runs)
    print(f"  {cpu:.2f} s of processor time, of which {start:.2f} s to start")
    return cpu - start, max(found[2] for found in runs)


def large(folder: Path) -> int:
    size = write_case(folder, LARGE, (1, CHANNELS, SIDE, SIDE), blocked=True) / 2**30
    cpu, memory = best(folder)
    print(f"{size:.2f} GiB, ten algorithms: {size / cpu:.2f} GiB per CPU second, {memory:.0f} MB")
    one, _ = best(folder, "-alg", "0")
    print(f"one algorithm: {size / one:.2f} GiB per CPU second, {one / cpu:.2f} of the time of ten")
    return int(size / cpu < TARGET_SPEED or memory > TARGET_LARGE_MB or one > TARGET_ONE * cpu)


def dumps(folder: Path) -> int:
    write_case(folder, LARGE, (1, CHANNELS, SIDE, SIDE), blocked=True)
    shutil.rmtree(folder / "golden")
    (folder / "golden").mkdir()
    for path in (folder / "npu").iterdir():
        raw = np.fromfile(path, np.uint8)
        halves = raw[-2 * CHANNELS * SIDE * SIDE :].view(np.uint16)
        halves[::3] ^= 1  # as another version of a kernel rounds
        raw.tofile(folder / "golden" / path.name)
    size = 2 * sum(path.stat().st_size for path in (folder / "npu").iterdir()) / 2**30
    cpu, memory = best(folder, "-f")
    print(f"{size:.2f} GiB of two dumps: {size / cpu:.2f} GiB per CPU second, {memory:.0f} MB")
    return int(size / cpu < TARGET_DUMPS_SPEED or memory > TARGET_LARGE_MB)


def small(folder: Path) -> int:
    write_case(folder, SMALL, (1, 16, 4, 4), blocked=True)
    wall, cpu, memory = run(folder)
    print(f"{SMALL} operators: {wall:.1f} s, {cpu:.1f} s of processor time, {memory:.0f} MB")
    return int(min(wall, cpu) > TARGET_SMALL_S)


def single(folder: Path) -> int:
    write_case(folder, 1, (1, 64, 512, 512), blocked=True)
    wall, cpu, memory = run(folder, "-op", "op0")
    print(f"one operator of 16 M elements: {wall:.1f} s, {cpu:.1f} s of processor time, {memory:.0f} MB")
    return int(memory > TARGET_MB or min(wall, cpu) > TARGET_SINGLE_S)


CASES = {"large": large, "dumps": dumps, "small": small, "single": single}


def main() -> int:
    if len(sys.argv) > 1:
        with tempfile.TemporaryDirectory() as text:
            return CASES[sys.argv[1]](Path(text))
    codes = [
        subprocess.run([sys.executable, "-m", "benchmarks.ascend", name], check=False).returncode for name in CASES
    ]
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
