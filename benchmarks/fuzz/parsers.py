"""Every parser of files that others write: what it is given at first, and what reads it."""

import contextlib
import io
import json
import pickle  # noqa: TID251 - written, never read
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fuzz import seeds
from benchmarks.fuzz.mutations import Rng, mutate_bytes, mutate_file, mutate_model, mutate_text
from roundoff.align.names import read_aliases
from roundoff.api.checks import check_io
from roundoff.api.mcp import _answer
from roundoff.api.project import load_project
from roundoff.core.document import load_document
from roundoff.core.progress import read_progress
from roundoff.core.tensors import InputSpec
from roundoff.errors import BadInput
from roundoff.graph.caffe.convert import _KEY, import_caffe, layer_tops
from roundoff.graph.caffe.net import read_net
from roundoff.graph.load import load_model
from roundoff.graph.weights import Weights
from roundoff.quantize import targets as targets_package
from roundoff.quantize.calibration.files import load_calibration
from roundoff.quantize.plan_file import load_plan
from roundoff.quantize.planning.rules import load_rules
from roundoff.quantize.targets.files import load_target, target_text
from roundoff.samples.files import unpack
from roundoff.samples.labels import load_labels
from roundoff.samples.options import ImageOptions, SampleOptions
from roundoff.samples.sample_set import open_samples
from roundoff.search.cost import load_costs
from roundoff.search.store import TrialJournal
from roundoff.studies.partial.study import read_ranking
from roundoff.studies.run_diff.gate import read_budgets, read_scores
from roundoff.studies.sensitivity.exact import Journal
from roundoff.suite.matrix import load_suite
from roundoff.suite.store import _opened
from roundoff.tensors import open_source
from roundoff.tensors.ascend_dump.header import parse_header_message
from roundoff.tensors.ascend_dump.names import read_statistics
from roundoff.tensors.pickled import read_pickled
from roundoff.tensors.stored import remarks_of, scales_of
from roundoff.tensors.tpu_mlir import read_lowered, read_precisions, read_thresholds
from roundoff.vendors.amct.common.auto_calibration import read_history
from roundoff.vendors.amct.common.auto_calibration import read_ranking as read_layers
from roundoff.vendors.amct.config import read_config
from roundoff.vendors.amct.observation import KEY, stage_of
from roundoff.vendors.amct.records import read_records
from roundoff.vendors.amct.simplified_config import read_simplified
from roundoff.vendors.ascend.advisor import read_table
from roundoff.vendors.dialects.chips import read_encodings
from roundoff.vendors.pulsar2.config.files import load_config
from roundoff.vendors.pulsar2.patches import _from_file
from roundoff.vendors.pulsar2.run import read_cases, read_input
from roundoff.vendors.pulsar2.ticket import _BuildRecord

SLOW = 40
"""Whole commands get so many times fewer inputs."""
MIDDLE = 4
"""Readers of folders and networks."""


@dataclass(frozen=True)
class Parser:
    """What is fuzzed.

    Attributes:
        name: What it is called.
        seeds: Valid files, with what belongs beside them; one of them is changed.
        opens: The name of what is read; nothing for the folder.
        read: Reads it.
        mutate: Changes one of the files.
        changed: The files that are changed; all where empty.
        times: Of so many inputs one is tried.
    """

    name: str
    seeds: tuple[seeds.Tree, ...]
    opens: str
    read: Callable[[Path], object]
    mutate: Callable[[str, bytes, Rng], bytes] = mutate_file
    changed: tuple[str, ...] = ()
    times: int = 1


def single(
    name: str,
    file: str,
    given: tuple[bytes, ...],
    mutate: Callable[[bytes, Rng], bytes],
    read: Callable[[Path], object],
    *,
    times: int = 1,
) -> Parser:
    """A parser of a single file."""
    return Parser(
        name, tuple({file: each} for each in given), file, read, lambda _, *rest: mutate(*rest), times=times
    )


def source(path: Path) -> object:
    """Read a dump: all of its first tensors, and what it says of them."""
    found = open_source(path)
    remarks_of(found)
    scales_of(found)
    for info in found.tensors[:6]:
        for sample in found.samples[:2]:
            with contextlib.suppress(BadInput):  # a tensor that cannot be read is a row with a problem
                found.read(info.name, sample)
    return found


def folders() -> tuple[Parser, ...]:
    """Those of folders, and of files that belong together."""
    image = InputSpec("x", "float32", ("N", 3, 8, 8))

    def dump(name: str, write: Callable[[Path], object], opens: str = "", **more: Any) -> Parser:
        return Parser(name, (seeds.tree(write),), opens, source, times=more.pop("times", MIDDLE), **more)

    def samples(path: Path) -> object:
        found = open_samples(path, [image], SampleOptions())
        return [found.feed(place) for place in range(min(2, len(found.names)))]

    def pictures(path: Path) -> object:
        found = open_samples(path, [image], SampleOptions(image=ImageOptions(scale=1 / 255)))
        return found.feed(0)

    def constant(path: Path) -> object:
        files = sorted(path.iterdir())
        return [_from_file(str(each), np.dtype(np.float32), None, name="c") for each in files]

    shots = tuple({f"p.{kind}": seeds.picture(kind)} for kind in ("png", "jpeg", "bmp", "webp"))
    return (
        dump("RKNN folder", seeds.rknn),
        dump("QNN folder", seeds.qnn),
        dump("TPU-MLIR folder", seeds.tpu_mlir),
        dump("Polygraphy results", seeds.polygraphy, "out.json"),
        dump("PyTorch file", seeds.torch_file, "t.pt"),
        dump("msprobe tensors", seeds.msprobe),
        dump("msprobe statistics", seeds.msprobe_statistics),
        dump("TIDL traces", seeds.tidl),
        dump("Ascend golden data", seeds.ascend_npy),
        dump("Ascend dumps", seeds.ascend_dump),
        dump("raw tensors, manifest.csv", seeds.raw_with_manifest),
        dump("arrays with a list of names", seeds.named_list),
        dump("arrays with a manifest.json", seeds.manifest),
        *(dump(f"codes beside scales.{kind}", partial(seeds.codes_and_scales, suffix=kind),
               changed=(f"scales.{kind}",)) for kind in ("json", "csv")),
        Parser("list of samples", (seeds.tree(seeds.list_of_samples),), "samples.txt", samples, times=MIDDLE),
        *(
            Parser(f"picture ({next(iter(each)).partition('.')[2]})", (each,), "", pictures, times=MIDDLE)
            for each in shots
        ),
        Parser("ONNX with external data", (seeds.tree(seeds.external_model),), "m.onnx", _weights, times=MIDDLE),
        Parser("OpenVINO", (seeds.tree(seeds.openvino),), "m.xml", load_model, times=MIDDLE),
        Parser("Caffe net and weights", (seeds.tree(seeds.caffe_net),), "",
               lambda p: import_caffe(p / "net.prototxt", p / "net.caffemodel"), times=MIDDLE),
        Parser("journal of a search", (seeds.tree(seeds.search_journal),), "journal.sqlite", _searched,
               times=MIDDLE),
        Parser("Pulsar2 constants", (seeds.tree(seeds.constants),), "", constant, times=2),
        Parser("Pulsar2 list of runs", ({"l.txt": b"a\nb/c\n"},), "l.txt", read_cases),
        Parser("Pulsar2 input", ({"x.bin": bytes(768)},), "x.bin", lambda p: read_input(p, image)),
        Parser("suite (TOML)", (seeds.tree(seeds.suite),), "suite.toml", load_suite, changed=("suite.toml",),
               times=MIDDLE),
        Parser("check-io, raw files", ({"a.bin": bytes(96), "b.bin": bytes(96)},), "", _checked, times=MIDDLE),
    )  # fmt: skip


def _checked(path: Path) -> object:
    return check_io(output=[path / "a.bin", path / "b.bin"], shape=(2, 12), dtype="float32")


def _weights(path: Path) -> object:
    model = load_model(path)
    held = Weights(model)
    return [held[name] for name in held]


def _searched(path: Path) -> object:
    journal = TrialJournal(path, {"model": "ab"})
    with contextlib.closing(journal):
        return journal.chunks("k"), journal.fact("f"), journal.facts(""), journal.measured()


def _journal(path: Path) -> object:
    journal = Journal(path)
    with contextlib.closing(journal):
        return journal.find("ab")


def documents(folder: Path) -> tuple[Parser, ...]:
    """Those of single documents."""
    made = seeds.documents(folder)
    chips = Path(targets_package.__file__).parent.glob("*.toml")
    targets = tuple(path.read_bytes() for path in sorted(chips))
    config = json.dumps(seeds.CONFIG, indent=1).encode()
    environment = json.loads(made["run"])["environment"]
    built = {"inputs": [], "environment": environment, "command": ["roundoff"], "config": seeds.CONFIG}
    model = load_model(folder / "m.onnx")

    def of_caffe(path: Path) -> object:
        model.proto.metadata_props.add(key=_KEY, value=_words(path))
        try:
            return layer_tops(model)
        finally:
            del model.proto.metadata_props[:]

    text, changed = mutate_text, mutate_bytes
    return (
        single("target (TOML)", "t.toml", targets, text, lambda p: (load_target(p), target_text(p)), times=2),
        single("rules (TOML)", "r.toml", (seeds.RULES,), text, load_rules),
        single("cost (TOML)", "c.toml", (seeds.COSTS,), text, load_costs),
        single("project (TOML)", "roundoff.toml", (seeds.PROJECT,), text, lambda p: load_project(p.parent)),
        single("budgets (TOML)", "b.toml", (seeds.BUDGETS,), text, read_budgets),
        single("budgets (JSON)", "b.json", (b'{"nodes": {"a": 0.5}}',), text, read_budgets),
        single("scores (CSV)", "s.csv", (seeds.SCORES,), text, read_scores),
        single("aliases (JSON)", "a.json", (b'{"a": "b", "c": "d"}',), text, read_aliases),
        single("aliases (CSV)", "a.csv", (b"reference,candidate\na,b\nc,d\n",), text, read_aliases),
        single("labels (CSV)", "l.csv", (b"file,label\na,1\nb,2\n",), text, lambda p: load_labels(p, "ab")),
        single("labels (.npy)", "l.npy", (seeds.saved(lambda out: np.save(out, np.arange(2))),), changed,
               lambda p: load_labels(p, "ab")),
        single("ranking (CSV)", "r.csv", (seeds.RANKING,), text, lambda p: read_ranking(p, "node")),
        single("ranking (JSON)", "r.json", (b'{"conv": 1, "fc": {"name": "x"}}', seeds.ROWS), text,
               lambda p: read_ranking(p, "node")),
        single("plan.json", "plan.json", (made["plan"],), text, load_plan, times=4),
        single("run.json", "run.json", (made["run"],), text, load_document, times=4),
        single("calibration.npz", "calibration.npz", (made["calibration"],), changed, load_calibration, times=2),
        single("progress file", ".out.roundoff-progress", (seeds.PROGRESS,), text,
               lambda p: read_progress(p.parent)),
        single("journal of sensitivity", "j", (seeds.tree(_write_journal)["j"],), text, _journal),
        single("store of a suite", "u.json", (b'{"format": 1, "run": {"a": [1.5, null]}}',), text,
               lambda p: _opened(seeds.sealed(p.read_bytes()), "u")),
        single("request (MCP)", "q.json", (seeds.REQUEST,), text, lambda p: _answer(_words(p), folder, False),
               times=2),
        single("prototxt", "n.prototxt", (seeds.PROTOTXT,), text, lambda p: read_net(p, None)),
        single("Caffe tops (metadata)", "t.json", (seeds.TOPS,), text, of_caffe),
        single("Pulsar2 (JSON)", "p.json", (config,), text, load_config),
        single("Pulsar2 (TOML)", "p.toml", (seeds.TOML,), text, load_config),
        single("Pulsar2 (prototxt)", "p.prototxt", (seeds.CONFIG_TEXT,), text, load_config),
        single("TPU-MLIR graph", "m_tpu.mlir", (seeds.LOWERED,), text, read_lowered),
        single("TPU-MLIR thresholds", "m_cali_table", (seeds.THRESHOLDS,), text, read_thresholds),
        single("TPU-MLIR precisions", "m_qtable", (seeds.PRECISIONS,), text, read_precisions),
        single("Pulsar2 record of a build", "c.json", (json.dumps(built).encode(),), text, _BuildRecord.read),
        single("Pulsar2 (YAML)", "p.yaml", (seeds.YAML,), text, load_config, times=4),
        single("AIMET encodings", "m.encodings", seeds.AIMET, text, lambda p: read_encodings(p, model)),
        single("AMCT configuration", "c.json", (seeds.AMCT,), text, lambda p: read_config(p, None)),
        single("AMCT simplified", "x.cfg", (seeds.SIMPLE,), text, read_simplified),
        single("AMCT record", "r.txt", (seeds.RECORD,), text, read_records),
        single("AMCT history", "h.json", (seeds.HISTORY,), text, read_history),
        single("AMCT ranking", "l.json", (seeds.LAYERS,), text, read_layers),
        single("AMCT stage (metadata)", "s.json", (seeds.STAGE,), text, lambda p: stage_of({KEY: _words(p)})),
        single("Ascend table (CSV)", "t.csv", (seeds.TABLE,), text, read_table),
        single("Ascend statistics (CSV)", "s.csv", (seeds.STATS,), text, read_statistics),
    )  # fmt: skip


def _write_journal(folder: Path) -> None:
    journal = Journal(folder / "j")
    journal.add("ab", np.array([1.5, np.nan]))
    journal.close()


def _words(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


def binaries(folder: Path) -> tuple[Parser, ...]:
    """Those of arrays, archives and networks in one file; and whole commands."""
    array = seeds.saved(lambda out: np.save(out, np.arange(24, dtype=np.float32).reshape(2, 3, 4)))
    arrays = seeds.saved(lambda out: np.savez(out, a=np.arange(6.0), b=np.ones((2, 3), np.int8)))
    tensor = json.dumps({"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}).encode()
    safetensors = len(tensor).to_bytes(8, "little") + tensor + bytes(24)
    pickled = pickle.dumps({"x": np.arange(6, dtype=np.float32)}, protocol=4)
    old = pickle.dumps({"x": np.arange(6, dtype=np.float32)}, protocol=2)
    model, made = seeds.small_model(), (folder / "deploy.onnx").read_bytes()

    def command(*words: str) -> Callable[[Path], object]:
        def run(path: Path) -> object:
            from roundoff.cli import main

            given = [
                word.format(file=path, data=folder / "x.npy", out=folder / f"out-{words[0]}") for word in words
            ]
            quiet = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
            with quiet[0], quiet[1], warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a command makes notes of them
                return main(given)

        return run

    chip = ("--data", "{data}", "--target", "generic-int8")
    sides = seeds.tree(seeds.ascend_sides)
    both = "compare", "-m", "{file}/s/npu", "-g", "{file}/s/float", "-f", "{file}/s/on.json"
    asked = {
        "compare": both,
        "compare -op": (*both, "-op", "fc1", "-o", "0"),
        "convert": ("convert", "-d", "{file}/s/npu"),
        "overflow": ("overflow", "-d", "{file}/s/npu"),
    }
    return (
        single(".npy", "a.npy", (array,), mutate_bytes, source),
        single(".npz", "a.npz", (arrays,), mutate_bytes, source),
        single("safetensors", "a.safetensors", (safetensors,), mutate_bytes, source),
        single("safetensors (header)", "a.safetensors", (safetensors,), _mutate_header, source),
        single("pickle", "a.pkl", (pickled, old), mutate_bytes, lambda p: read_pickled(p.read_bytes())),
        single("tar", "a.tar", (seeds.archive("w"),), mutate_bytes, _unpacked),
        single("tar.gz", "a.tar.gz", (seeds.archive("w:gz"),), mutate_bytes, _unpacked),
        single("zip", "a.zip", (seeds.zipped(),), mutate_bytes, _unpacked),
        single("Ascend header (protobuf)", "h.bin", (b"\n\x032.0\x10\x052\x04conv",), mutate_bytes,
               lambda p: parse_header_message(p.read_bytes())),
        single(".tflite", "m.tflite", (seeds.small_lite(),), mutate_bytes, load_model, times=2),
        single("ONNX: load", "m.onnx", (model, made), mutate_model, load_model, times=2),
        single("ONNX: audit", "m.onnx", (made,), mutate_model, command("audit", "{file}"), times=SLOW),
        single("ONNX: quantize", "m.onnx", (model,), mutate_model,
               command("quantize", "{file}", *chip, "-o", "{out}", "--force"), times=SLOW),
        single("ONNX: layers", "m.onnx", (model,), mutate_model, command("layers", "{file}", *chip), times=SLOW),
        *(Parser(f"ascend {name}", (sides,), "", command("ascend", *words, "-out", "{out}"),
                 changed=("s/npu", "s/float", "s/on.json"), times=SLOW) for name, words in asked.items()),
        *(Parser(f"pulsar2 build, {kind}", (seeds.tree(partial(seeds.vendor_build, kind=kind)),), "p.json",
                 command("pulsar2", "build", "--config", "{file}", "--output_dir", "{out}", "--force"), times=SLOW)
          for kind in ("Binary", "NumpyObject")),
        Parser("amct calibration", (seeds.tree(seeds.vendor_calibration),), "",
               command("amct", "calibration", "--model", "{file}/m.onnx", "--save_path", "{out}/m",
                       "--input_shape", "x:1,3,8,8", "--data_dir", "{file}/bins", "--data_types", "float32",
                       "--calibration_config", "{file}/c.cfg"), times=SLOW),
    )  # fmt: skip


def parsers(folder: Path) -> tuple[Parser, ...]:
    """All of them; `folder` holds what they need beside their files."""
    return (*documents(folder), *folders(), *binaries(folder))


def _mutate_header(seed: bytes, rng: Rng) -> bytes:
    length = int.from_bytes(seed[:8], "little")
    header = mutate_text(seed[8 : 8 + length], rng)
    return len(header).to_bytes(8, "little") + header + seed[8 + length :]


def _unpacked(path: Path) -> object:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        return unpack(path, Path(folder))
