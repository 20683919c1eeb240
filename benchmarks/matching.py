"""How long matching 2,000 x 2,000 tensors by value takes.

Each side is a folder of memory-mapped .npy files of up to 256k elements, in shapes that networks have. The
candidate is renamed, shuffled and noisy; every third tensor is stored NHWC. Exit code 1 when the time or the
result misses its target; the best of a few runs counts, for other processes only ever slow it down.
"""

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from roundoff.align.alignment import align
from roundoff.core.tensors import Array, TensorInfo

TENSORS = 2_000
RUNS = 3
MOST_SECONDS = 5.0
MOST_GROWTH_MB = 200
LEAST_RIGHT = 0.99
SHAPES = ((1, 64, 64, 64), (1, 128, 32, 32), (1, 16, 112, 112), (1, 256, 16, 16), (1, 512, 8, 8), (1, 1000))


class Folder:
    """Memory-mapped .npy files under names of their own."""

    samples = ("",)
    ordered = False

    def __init__(self, path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
        self.label = path.name
        self.path = path
        self.tensors = tuple(TensorInfo(name, "float32", shape) for name, shape in shapes.items())

    def read(self, name: str, sample: str) -> Array:
        return np.asarray(np.load(self.path / f"{name}{sample}.npy", mmap_mode="r"))


def write(folder: Path) -> tuple[Folder, Folder, dict[str, str]]:
    """Both sides on disk, and which candidate is which reference."""
    random = np.random.default_rng(0)
    reference: dict[str, tuple[int, ...]] = {}
    candidate: dict[str, tuple[int, ...]] = {}
    truth: dict[str, str] = {}
    for side in ("reference", "candidate"):
        (folder / side).mkdir()
    stream = random.standard_normal(2**20, dtype=np.float32)
    for index in range(TENSORS):
        shape = SHAPES[index % len(SHAPES)]
        size = int(np.prod(shape))
        # Neighbours share half of their values, as layers of a network do.
        start = int(random.integers(stream.size - size))
        values = (stream[start : start + size] + random.standard_normal(size, dtype=np.float32)).reshape(shape)
        noisy = values + 0.05 * random.standard_normal(shape, dtype=np.float32)
        if index % 3 == 0 and len(shape) == 4:
            noisy = np.ascontiguousarray(noisy.transpose(0, 2, 3, 1))
        name, other = f"r{index}", f"c{index * 7919 % TENSORS}"
        np.save(folder / "reference" / f"{name}.npy", values)
        np.save(folder / "candidate" / f"{other}.npy", noisy)
        reference[name], candidate[other], truth[name] = values.shape, noisy.shape, other
    shuffled = dict(sorted(candidate.items()))
    return Folder(folder / "reference", reference), Folder(folder / "candidate", shuffled), truth


def peak_mb() -> float:
    """Most memory the process ever held, mapped files included."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> int:
    """Measure and judge."""
    with tempfile.TemporaryDirectory() as folder:
        reference, candidate, truth = write(Path(folder))
        before = peak_mb()
        seconds = []
        for _ in range(RUNS):
            start = time.perf_counter()
            pairing = align(reference, candidate)
            seconds.append(time.perf_counter() - start)
        growth = peak_mb() - before
    wrong = sum(truth[pair.reference] != pair.candidate for pair in pairing.pairs)
    right = (len(pairing.pairs) - wrong) / TENSORS
    print(f"{TENSORS} x {TENSORS} tensors matched by value in {min(seconds):.2f} s (target {MOST_SECONDS} s)")
    print(f"runs: {', '.join(f'{one:.2f} s' for one in seconds)}; memory grew by {growth:.0f} MB")
    print(f"right {right:.1%} (target {LEAST_RIGHT:.0%}), wrong {wrong} (target 0)")
    met = min(seconds) <= MOST_SECONDS and right >= LEAST_RIGHT and not wrong and growth <= MOST_GROWTH_MB
    print("met" if met else "MISSED")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
