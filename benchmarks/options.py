"""Options that cannot act together: ``python -m benchmarks options [--commands NAME ...] [--page FILE]``.

Every pair of options of a command is typed on a small network. An option that changes what a command finds when it
is typed alone, and nothing when it is typed beside another one, is ignored there: it must be refused (exit code 2)
or be told of in a note. ``--page`` writes docs/reference/option-pairs.md: the pairs that are refused, and by what
words. A pair that is silently ignored is a failure.
"""

import argparse
import contextlib
import io
import itertools
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from tests.models import conv_net

from roundoff.cli import command_of, main
from roundoff.cli.options import flat_options

VALUES = {
    "--calibration": "mse",
    "--weight-method": "mse",
    "--calibration-option": "percentile=90",
    "--set": "Classifier=float",
    "--rules": "rules.toml",
    "--arithmetic": "ascend-310",
    "--mode": "accumulated",
    "--method": "local",
    "--samples": "2",
    "--scale": "0.5",
    "--mean": "0.1",
    "--std": "0.5",
    "--threshold": "cosine=0.5",
    "--profile": "ascend",
    "--channel-axis": "0",
    "--model": "m.onnx",
    "--aliases": "aliases.csv",
    "--labels": "labels.npy",
    "--test-data": "others.npy",
    "--quantized": "q.onnx",
    "--target": "generic-int8-per-tensor",
    "--dumps": "dump",
    "--image-size": "4x4",
    "--image-color": "bgr",
    "--image-layout": "nhwc",
    "--raw-shape": "1x3x8x8",
    "--raw-dtype": "float32",
    "--nodes": "C*",
    "--metric": "mse",
    "--kind": "weight",
    "--max-drop": "5%",
    "--min-metric": "0.5",
    "--max-cost": "2",
    "--trials": "2",
    "--strategy": "greedy",
    "--goal": "90%",
    "--to": "s16",
}
"""A value for each option that another one could silence; those that only say where to write are left out."""
BASES = {
    "layers": (
        ("m.onnx", "--target", "generic-int8", "--data", "x.npy"),
        ("--quantized", "q.onnx", "--data", "x.npy"),
    ),
    "quantize": (("m.onnx", "--target", "generic-int8", "--data", "x.npy", "-o", "out"),),
    "compare": (("m.onnx", "q.onnx", "--data", "x.npy"), ("right", "dump")),
    "diagnose": (
        ("m.onnx", "--target", "generic-int8", "--data", "x.npy"),
        ("--quantized", "q.onnx", "--data", "x.npy"),
        ("m.onnx", "--dumps", "dump", "--data", "x.npy"),
    ),
    "sensitivity": (("m.onnx", "--target", "generic-int8", "--data", "x.npy"),),
    "partial": (("m.onnx", "--target", "generic-int8", "--data", "x.npy"),),
    "samples": (("m.onnx", "--target", "generic-int8", "--data", "x.npy"),),
    "accumulate": (("m.onnx", "--target", "generic-int8", "--data", "x.npy"),),
    "check-calibration": (("m.onnx", "--data", "x.npy"),),
    "distribution": (("m.onnx", "*", "--target", "generic-int8", "--data", "x.npy"),),
    "transform": (("bias-correct", "m.onnx", "--target", "generic-int8", "--data", "x.npy", "-o", "out"),),
    "tune": (("m.onnx", "--target", "generic-int8", "--data", "x.npy", "--labels", "labels.npy", "-o", "out"),),
}
"""What each command needs at least, in every way it can be asked."""
BY_NATURE = {
    ("sensitivity", "--kind", "--calibration"): "weights alone do not depend on the ranges of activations",
    ("sensitivity", "--kind", "--nodes"): "all weights are of these nodes here",
    ("distribution", "--kind", "--calibration"): "weights do not depend on the ranges of activations",
    ("distribution", "--kind", "--samples"): "weights do not depend on samples",
}
"""Pairs that have nothing to do with each other, and why."""
_NUMBERS = re.compile(r"\d+(?:\.\d+)? (?:ms|s)\b")


def scene(folder: Path) -> None:
    """The files that the commands are given."""
    from onnx import save

    rng = np.random.default_rng(3)
    save(conv_net(), folder / "m.onnx")
    np.save(folder / "x.npy", rng.normal(size=(8, 3, 8, 8)).astype(np.float32))
    np.save(folder / "others.npy", rng.normal(size=(6, 3, 8, 8)).astype(np.float32))
    np.save(folder / "labels.npy", rng.integers(0, 5, 8))
    (folder / "rules.toml").write_text('[[rule]]\nnode = ["Conv2"]\nprecision = "float"\n')
    (folder / "aliases.csv").write_text("reference,candidate\nrelu1,conv1\n")
    said("quantize", "m.onnx", "--target", "generic-int8-per-tensor", "--data", "x.npy", "-o", "made")
    (folder / "q.onnx").write_bytes((folder / "made" / "m_fake_quant_model.onnx").read_bytes())
    for model, name in (("m.onnx", "right"), ("q.onnx", "dump")):
        said("dump", model, "--data", "x.npy", "--samples", "2", "-o", name)


def said(*words: str) -> tuple[int, str, str]:
    """Type a command: its exit code, what it finds, and what it says besides."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(list(words))
        except SystemExit as stop:
            code = int(stop.code or 0)
    text = _NUMBERS.sub("", out.getvalue())
    with contextlib.suppress(ValueError):
        content = json.loads(out.getvalue())
        for key in ("command", "environment", "inputs"):
            content.pop(key, None)
        text = _NUMBERS.sub("", json.dumps(content))
        text = re.sub(r'"(?:seconds|elapsed_s|took)": [\d.e-]+', "", text)
    return code, text, err.getvalue()


def choices(name: str) -> Iterator[tuple[str, ...]]:
    """Options of a command that can act, each with a value."""
    for option in flat_options(command_of(name).options):
        flag = option.flags[-1]
        if VALUES.get(flag):
            allowed = option.settings.get("choices")
            value = VALUES[flag] if allowed is None or VALUES[flag] in allowed else list(allowed)[-1]
            yield flag, str(value)


def tried(name: str, base: Sequence[str]) -> Iterator[tuple[str, str, str, str]]:
    """Every pair: what it is, and what is said of it.

    Yields:
        The first option, the second, ``refused``, ``noted``, ``ignored`` or ``acts``, and the words.
    """

    def run(*more: str) -> tuple[int, str, str]:
        if "-o" in base:
            return said(name, *base, *more, "--json", "--force")
        return said(name, *base, *more, "--json")

    plain = run()
    alone = {pair: run(*pair) for pair in choices(name) if pair[0] not in base}
    for (flag, _), (code, text, err) in alone.items():
        if code == 2:
            yield " ".join(base), flag, "refused", _words(err)
        elif text == plain[1]:
            yield " ".join(base), flag, "noted" if flag in err or "note" in err else "ignored", _words(err)
    acting = [pair for pair, (code, text, _) in alone.items() if code != 2 and text != plain[1]]
    for left, right in itertools.combinations(acting, 2):
        code, text, err = run(*left, *right)
        if code == 2:
            yield left[0], right[0], "refused", _words(err)
            continue
        for loud, silent in ((left, right), (right, left)):
            if text == alone[loud][1]:
                told = silent[0] in err and err != alone[loud][2]
                yield loud[0], silent[0], "noted" if told else "ignored", _words(err)


def _words(text: str) -> str:
    lines = [line for line in text.splitlines() if line.startswith(("error:", "note:", "warning:"))]
    return lines[0].partition(": ")[2] if lines else ""


def _settled(name: str, left: str, right: str, kind: str, words: str) -> tuple[str, str, str, str, str]:
    reason = BY_NATURE.get((name, left, right)) if kind == "ignored" else None
    return (name, left, right, kind, words) if reason is None else (name, left, right, "by nature", reason)


def page(rows: Sequence[tuple[str, str, str, str, str]]) -> str:
    """The page of what cannot act together."""
    lines = [
        "# Options that cannot act together",
        "",
        "Every pair of options that change what a command finds was typed on a small network; the pairs below",
        "cannot act together, or not in that way of asking. Each is refused, or told of in a note. Made by",
        "`python -m benchmarks options --page docs/reference/option-pairs.md`.",
        "",
        "| command | beside | option | what is said |",
        "|---|---|---|---|",
    ]
    for command, left, right, kind, words in rows:
        text = words.replace("|", "\\|") or kind
        lines.append(f"| {command} | `{left}` | `{right}` | {text} |")
    return "\n".join([*lines, ""])


def run() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--commands", nargs="+", default=list(BASES))
    parser.add_argument("--page", type=Path)
    args = parser.parse_args()
    target = None if args.page is None else args.page.resolve()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        scene(Path(folder))
        for name in args.commands:
            began = time.monotonic()
            found = [_settled(name, *row) for base in BASES[name] for row in tried(name, base)]
            rows += found
            kinds = {kind: sum(row[3] == kind for row in found) for kind in ("refused", "noted", "ignored")}
            print(f"{name}: {kinds}, {time.monotonic() - began:.0f} s", flush=True)
            for row in found:
                if row[3] == "ignored":
                    print("  ignored:", *row[1:3], row[4])
    if target is not None:
        target.write_text(page([row for row in rows if row[3] != "ignored"]), encoding="utf-8")
    return 1 if any(row[3] == "ignored" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(run())
