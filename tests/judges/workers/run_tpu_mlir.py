"""Runs in the environment of TPU-MLIR: quantizes a network and writes what its interpreters compute.

The job: model, dataset (a folder of .npz), samples (.npz each), out, shapes; and, where wanted, mode (INT8), edits
(thresholds in the calibration table, times), table and qtable (of export-settings, instead of a calibration).
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def main(job: dict[str, Any]) -> None:
    out = Path(job["out"]).resolve()
    mode = job.get("mode", "INT8")
    (out / mode).mkdir(parents=True, exist_ok=True)
    os.chdir(out)
    name = Path(job["model"]).stem
    first = job["samples"][0]
    call(
        "model_transform.py", "--model_name", name, "--model_def", job["model"], "--mlir", f"{name}.mlir",
        "--test_input", first, "--test_result", f"{name}_top_outputs.npz",
        "--input_shapes", json.dumps(job["shapes"]).replace(" ", ""),
    )  # fmt: skip
    table = Path(f"{name}_cali_table")
    if "table" in job:
        table.write_text(Path(job["table"]).read_text())
    else:
        call("run_calibration.py", f"{name}.mlir", "--dataset", job["dataset"], "-o", str(table))
    table.write_text(
        "\n".join(edited(line, job.get("edits", {})) for line in table.read_text().splitlines()) + "\n"
    )
    tables = ["--quantize_table", job["qtable"]] if "qtable" in job else []
    call(
        "model_deploy.py", "--mlir", f"{name}.mlir", "--quantize", mode, "--processor", "bm1684x",
        "--calibration_table", str(table), *tables, "--model", f"{mode}/{name}.bmodel", "--debug",
    )  # fmt: skip
    lowered = next(each for each in Path().rglob("*_tpu.mlir"))
    if lowered.parent != Path(mode):
        lowered = lowered.rename(Path(mode) / lowered.name)
    for place, sample in enumerate(job["samples"]):
        for model, run in ((f"{name}.mlir", f"s{place}_top.npz"), (str(lowered), f"{mode}/s{place}_tpu.npz")):
            call("model_runner.py", "--input", sample, "--model", model, "--dump_all_tensors", "--output", run)


def call(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{words[0]} failed: {(done.stdout + done.stderr)[-2000:]}")


def edited(line: str, edits: dict[str, float]) -> str:
    parts = line.split()
    if len(parts) != 4 or parts[0] not in edits:
        return line
    return " ".join([parts[0], *(f"{float(each) * edits[parts[0]]:.9g}" for each in parts[1:])])


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
