"""All metrics over 1 GiB of float32 pairs, against summing both sides once and against the naive way.

Each figure is the best CPU time of several rounds, taken in turn, so that a busy machine slows all of them alike.
"""

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from roundoff.align.alignment import align
from roundoff.align.pairing import Pairing, TensorPair
from roundoff.core.tensors import Array
from roundoff.studies.compare.study import compare
from roundoff.tensors import open_source

SHAPES = [(1, 64, 256, 256)] * 12 + [(16, 256, 32, 32)] * 8 + [(4, 1024, 1024)] * 4 + [(1 << 25,)]
ROUNDS = 3
SHARE_OF_SUM = 0.5
TIMES_NAIVE = 4.0
GROWTH_MB = 200.0


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Written by a process of its own, so that its memory does not count as ours.
        subprocess.run([sys.executable, "-m", "benchmarks.compare_metrics", str(folder)], check=True)
        names = [f"tensor{index}" for index in range(len(SHAPES))]
        size = sum(path.stat().st_size for path in folder.rglob("*.npy"))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        pairing = align(open_source(folder / "a"), open_source(folder / "b"))

        def metrics() -> None:
            found = compare(open_source(folder / "a"), open_source(folder / "b"), pairing)
            assert found.verdict.compared == len(names)

        metrics()
        growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        ours, summing, summing32 = rounds(metrics, lambda: sums(folder, np.float64), lambda: sums(folder, None))
        small = names[:6]
        some = Pairing(tuple(TensorPair(n, n) for n in small))
        naive, part = rounds(
            lambda: naive_metrics(folder, small),
            lambda: compare(open_source(folder / "a"), open_source(folder / "b"), some),
        )
    report(size, ours, summing, summing32)
    print(f"naive numpy, seven metrics: {naive / part:.1f} x our time for all of them (target >= {TIMES_NAIVE})")
    print(f"memory grows by {growth:.0f} MB (target < {GROWTH_MB:.0f})")
    good = summing / ours >= SHARE_OF_SUM and naive / part >= TIMES_NAIVE and growth < GROWTH_MB
    return 0 if good else 1


def report(size: int, ours: float, summing: float, summing32: float) -> None:
    gigabytes = size / 1e9
    print(f"{gigabytes:.2f} GB in both folders; metrics {gigabytes / ours:.2f} GB/s")
    print(
        f"{summing / ours:.3f} x the speed of summing both sides in float64 "
        f"({gigabytes / summing:.2f} GB/s; target >= {SHARE_OF_SUM})"
    )
    print(
        f"{summing32 / ours:.3f} x the speed of summing both sides in float32 ({gigabytes / summing32:.2f} GB/s)"
    )


def write(folder: Path) -> int:
    rng = np.random.default_rng(0)
    for index, shape in enumerate(SHAPES):
        reference = rng.standard_normal(shape, dtype=np.float32)
        noise = rng.standard_normal(shape, dtype=np.float32)
        for side, values in (("a", reference), ("b", reference + np.float32(0.02) * noise)):
            (folder / side).mkdir(exist_ok=True)
            np.save(folder / side / f"tensor{index}.npy", values)
    return 0


def sums(folder: Path, dtype: type[np.float64] | None) -> None:
    for path in folder.rglob("*.npy"):
        np.load(path, mmap_mode="r").sum(dtype=dtype)


def naive_metrics(folder: Path, names: list[str]) -> None:
    for name in names:
        a: Array = np.load(folder / "a" / f"{name}.npy").astype(np.float64)
        b: Array = np.load(folder / "b" / f"{name}.npy").astype(np.float64)
        error = np.abs(a - b)
        np.sum(a * b) / (np.sqrt(np.sum(a * a)) * np.sqrt(np.sum(b * b)))
        10 * np.log10(np.sum(a**2) / np.sum((a - b) ** 2))
        np.mean((a - b) ** 2)
        np.mean(np.abs(a - b))
        np.max(error)
        np.linalg.norm((a - b).ravel()) / np.linalg.norm(a.ravel())
        with np.errstate(divide="ignore", invalid="ignore"):
            np.mean(error / np.abs(a))


def rounds(*jobs: Callable[[], object]) -> list[float]:
    best = [float("inf")] * len(jobs)
    for _ in range(ROUNDS):
        for index, job in enumerate(jobs):
            started = time.process_time()
            job()
            best[index] = min(best[index], time.process_time() - started)
    return best


if __name__ == "__main__":
    sys.exit(write(Path(sys.argv[1])) if len(sys.argv) > 1 else main())
