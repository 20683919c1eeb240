"""Make the demo's board dump: what a small NPU with one broken layer would have written for a few digits.

    python -m scripts.make_demo_dump

reads ``digits.onnx`` and ``digits.npz`` of ``src/roundoff/demo`` and writes beside them ``samples.npy``,
``board_dump/<sample>.npz`` (the simulated chip's own tensors, names and layout) and ``truth.json`` (what was
planted and what each tensor really is, for the tests).

The fault: the requantization of one pointwise convolution shifts one bit too far, which halves its output.
That is a gain error: the direction of the tensor, and so its cosine, stays almost perfect.
"""

import argparse
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from roundoff import demo
from roundoff.core.tensors import Array
from scripts import npu

# The broken layer, by the node that it runs and the reference tensor that it computes.
FAULTY_NODE = "block3/pointwise"
FAULTY_TENSOR = "block3/relu"
# How many bits too far it shifts, and the gain that results.
EXTRA_SHIFT = 1
FAULT_GAIN = 0.5**EXTRA_SHIFT

# The board reads half of the samples wrong, the others right: what someone who hunts a bug would collect.
SAMPLES = 8


def names_on_board(layers: Sequence[npu.Layer]) -> dict[str, str]:
    """The name in the dump of every reference tensor that the board computes."""
    return {"image": "L00_INPUT.ifm"} | {layer.output: layer.name for layer in layers}


def dump(
    layers: Sequence[npu.Layer], scales: Mapping[str, npu.Scale], codes: Mapping[str, Array]
) -> list[dict[str, Array]]:
    """What the chip's tool writes for each sample: its own names, channels last, dequantized to float32."""
    values = {name: scales[tensor].decode(codes[tensor]) for tensor, name in names_on_board(layers).items()}
    count = len(codes["image"])
    return [{name: value[index : index + 1] for name, value in values.items()} for index in range(count)]


def choose_samples(reference: Array, board: Array, labels: Array) -> Array:
    """Positions of the first samples that the board reads right and wrong, half each, in ascending order.

    Args:
        reference: Logits of the float model (n, 10).
        board: Logits or their codes on the broken board (n, 10).
        labels: The truth (n,).
    """
    reference_right = reference.argmax(axis=1) == labels
    board_right = board.argmax(axis=1) == labels
    half = SAMPLES // 2
    right = np.flatnonzero(reference_right & board_right)[:half]
    wrong = np.flatnonzero(reference_right & ~board_right)[:half]
    return np.sort(np.concatenate([right, wrong]))


def accuracy(logits: Array, labels: Array) -> float:
    """Share of samples whose largest logit is the right one."""
    return float((logits.argmax(axis=1) == labels).mean())


def main() -> None:
    """Simulate the board, report the accuracies and write the demo's files."""
    parser = argparse.ArgumentParser(description="Make the demo's board dump.")
    default = demo.model_path().parent
    parser.add_argument("-o", "--output", type=Path, default=default, help="folder to write to")
    output: Path = parser.parse_args().output
    model = onnx.load(demo.model_path())
    layers = npu.fuse(model)
    scales = npu.calibrate(model, demo.load_split("calibration")[0])
    images, labels = demo.load_split("test")
    reference = _float_logits(images)
    healthy = npu.run(layers, scales, images, extra_shift={})
    broken = npu.run(layers, scales, images, extra_shift={FAULTY_TENSOR: EXTRA_SHIFT})
    chosen = choose_samples(reference, broken["logits"], labels)
    truth = {
        "fault": {"node": FAULTY_NODE, "tensor": FAULTY_TENSOR, "kind": "gain", "gain": FAULT_GAIN},
        "accuracy": {
            "float": accuracy(reference, labels),
            "healthy_board": accuracy(healthy["logits"], labels),
            "broken_board": accuracy(broken["logits"], labels),
        },
        "samples": {
            "test_positions": chosen.tolist(),
            "labels": labels[chosen].tolist(),
            "board_reads": broken["logits"][chosen].argmax(axis=1).tolist(),
        },
        "names": {name: tensor for tensor, name in names_on_board(layers).items()},
        "scales": {tensor: asdict(scales[tensor]) for tensor in names_on_board(layers)},
    }
    _write(output, images[chosen], dump(layers, scales, {k: v[chosen] for k, v in broken.items()}), truth)
    print(json.dumps({key: truth[key] for key in ("accuracy", "samples")}, indent=1))


def _float_logits(images: Array) -> Array:
    session = ort.InferenceSession(demo.model_path(), providers=["CPUExecutionProvider"])
    logits: Array = session.run(["logits"], {"image": images})[0]
    return logits


def _write(output: Path, samples: Array, dumps: Sequence[Mapping[str, Array]], truth: Mapping[str, Any]) -> None:
    np.save(output / "samples.npy", samples)
    folder = output / "board_dump"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for index, tensors in enumerate(dumps):
        np.savez_compressed(folder / f"{index}.npz", **tensors)  # type: ignore[arg-type]
    (output / "truth.json").write_text(json.dumps(truth, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
