"""Runs in the environment of RKNN-Toolkit2: quantizes a network and writes what its simulator computes.

The job: model, dataset (a list of .npy), samples (.npy each), out; and, where wanted, config (arguments of
config) and edits (ranges of tensors that are written into the configuration).
"""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any


def main(job: dict[str, Any]) -> None:
    from rknn.api import RKNN

    out = Path(job["out"]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    os.chdir(out)
    Path("dataset.txt").write_text("\n".join(job["dataset"]) + "\n")
    stem = Path(job["model"]).stem

    def opened() -> Any:
        rknn = RKNN()
        rknn.config(target_platform="rk3588", quantized_algorithm="normal", **job.get("config", {}))
        return rknn

    first = opened()
    check(first.load_onnx(model=job["model"]), "load_onnx")
    check(first.hybrid_quantization_step1(dataset="dataset.txt", proposal=False), "step 1")
    config = Path(f"{stem}.quantization.cfg")
    text = config.read_text()
    for tensor, ends in job.get("edits", {}).items():
        text = edited(text, tensor, ends)
    config.write_text(text)
    second = RKNN()
    check(
        second.hybrid_quantization_step2(
            model_input=f"{stem}.model", data_input=f"{stem}.data", model_quantization_cfg=str(config)
        ),
        "step 2",
    )
    for place, sample in enumerate(job["samples"]):
        inputs = sample if isinstance(sample, list) else [sample]
        check(second.accuracy_analysis(inputs=inputs, output_dir=f"s{place}"), "accuracy_analysis")


def check(code: int, what: str) -> None:
    if code:
        sys.exit(f"{what} failed with {code}")


def edited(text: str, tensor: str, ends: dict[str, float]) -> str:
    """The configuration with another range; times says how many times as wide."""
    start = re.search(rf"^    '?{re.escape(tensor)}'?:\n", text, re.MULTILINE)
    if start is None:
        sys.exit(f"the configuration has no tensor {tensor}")
    stop = re.search(r"^    \S", text[start.end() :], re.MULTILINE)
    block = text[start.end() : start.end() + stop.start() if stop else len(text)]
    for key in ("min", "max"):
        found = re.search(rf"(^        {key}:\n        -   )(\S+)", block, re.MULTILINE)
        if found is None:
            sys.exit(f"the configuration has no {key} of {tensor}")
        value = float(found[2]) * ends["times"] if "times" in ends else ends[key]
        block = block[: found.start(2)] + repr(value) + block[found.end(2) :]
    return text[: start.end()] + block + (text[start.end() + stop.start() :] if stop else "")


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
