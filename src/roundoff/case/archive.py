"""The files of a case: models, samples and arrays as bytes, in archives that depend on nothing but their files."""

import contextlib
import getpass
import hashlib
import io
import json
import platform
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath

import numpy as np

from roundoff.case import ticket
from roundoff.case.excerpt import CaseNumbers, CaseSamples, QuantizedCase
from roundoff.core.claims import ScratchFolder
from roundoff.core.document import Environment, environment, environment_content
from roundoff.core.quantizers import Quantizer
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.insertion import fake_quant_model
from roundoff.graph.load import Model, weight_tensors
from roundoff.graph.save import DeferredModel, save_model
from roundoff.graph.weights import constant_value
from roundoff.messages.message import english
from roundoff.messages.numbers import csv_text
from roundoff.samples.sample_set import copy_samples

SCRIPT = '''\
"""Shows what this case is about. Needs numpy and onnxruntime.

A reproducer holds one fault. Exit code 1 while the fault is there, 0 when it is gone:

    python run.py                  computes it again
    python run.py --observed FILE  judges other results, laid out as observed.npz

A bundle holds the numbers of its ticket. Exit code 0 when they are met:

    python test_case.py
"""

import argparse
import json
import math
import os
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
# onnxruntime must not send anything; it reads this when it is imported.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
# Arithmetic differs in the last bits from machine to machine.
CLOSE_DB = 1.0


def run(model, feed):
    """Outputs of a model by name, computed as its graph says."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(HERE / model), options, providers=["CPUExecutionProvider"])
    return dict(zip([each.name for each in session.get_outputs()], session.run(None, feed)))


def scores(pairs):
    """SQNR in decibels and cosine of all pairs as one tensor, and how many values the candidate alone lacks.

    Values that are not finite count for nothing but the last.
    """
    signal = noise = power = product = 0.0
    lost = 0
    for reference, candidate in pairs:
        if reference.shape != candidate.shape:
            return -math.inf, 0.0, reference.size
        a, b = (np.asarray(each, np.float64).ravel() for each in (reference, candidate))
        lost += int((np.isfinite(a) & ~np.isfinite(b)).sum())
        good = np.isfinite(a) & np.isfinite(b)
        a, b = a[good], b[good]
        signal, noise = signal + float(a @ a), noise + float((a - b) @ (a - b))
        power, product = power + float(b @ b), product + float(a @ b)
    if noise == 0:
        db = math.inf
    else:
        db = -math.inf if signal == 0 else 10 * (math.log10(signal) - math.log10(noise))
    size = math.sqrt(signal) * math.sqrt(power)
    return db, (product / size if size else float(signal == power)), lost


def show(name, found):
    db, cosine, lost = found
    print(f"{name}: {db:.2f} dB, cosine {cosine:.6f}" + (f", {lost} values are not finite" if lost else ""))


def fault_pairs(case, given):
    """Sample, expected and observed values where the fault of a reproducer shows."""
    tensor, axis, index = case["tensor"], case["axis"], case["index"]
    inputs, results = np.load(HERE / "inputs.npz"), np.load(given or HERE / "observed.npz")
    for sample in case["samples"]:
        feed = {name: inputs[key] for name, key in sample["inputs"].items()}
        # A device wrote what is observed; what it should be follows from the device's own inputs.
        expected = run(case["reference"] if case["dump"] else "float.onnx", feed)[tensor]
        stored = case["dump"] or given
        observed = results[sample["outputs"][tensor]] if stored else run("quantized.onnx", feed)[tensor]
        if axis is not None and expected.shape == observed.shape:
            expected, observed = expected.take(index, axis=axis), observed.take(index, axis=axis)
        yield sample["name"], expected, observed


def ticket_pairs(case):
    """Name, reference and candidate of everything that a bundle compares."""
    for sample in case["samples"]:
        feed = {name: np.load(HERE / path) for name, path in sample["inputs"].items()}
        if "quantized" in case:
            left, right = run(case["float"], feed), run(case["quantized"], feed)
            for name in case["outputs"]:
                yield f"{sample['name']}: {name}", left[name], right[name]
            continue
        computed = run(case["float"], feed) if feed else {}
        for name, paths in sample["tensors"].items():
            stored, candidate = (np.load(HERE / path) for path in paths)
            yield f"{sample['name']}: {name}", computed.get(name, stored), candidate


def judge_fault(case, given):
    """Whether the fault is there: values are lost, or all samples together are as bad as they were."""
    pairs = []
    for name, expected, observed in fault_pairs(case, given):
        pairs.append((expected, observed))
        show(name, scores(pairs[-1:]))
    db, _, lost = scores(pairs)
    there = lost > 0 or db <= case["threshold_db"]
    where = case["tensor"] + ("" if case["axis"] is None else f", slice {case['index']} of axis {case['axis']}")
    print(f"{where}: {db:.2f} dB; the fault is there at or below {case['threshold_db']:.2f} dB")
    print("FAULT" if there else "no fault")
    return 1 if there else 0


def judge_numbers(case):
    """Whether the worst of what is compared has the number of the ticket."""
    worst = math.inf
    for name, reference, candidate in ticket_pairs(case):
        found = scores([(reference, candidate)])
        show(name, found)
        worst = min(worst, found[0])
    expected = float(case["expected_sqnr_db"])
    print(f"worst {worst:.2f} dB, expected {expected:.2f} dB")
    met = worst == expected or abs(worst - expected) <= CLOSE_DB
    print("the numbers are those of the ticket" if met else "the numbers are NOT those of the ticket")
    return 0 if met else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--observed", type=Path, help="other results; of a reproducer only")
    given = parser.parse_args().observed
    case = json.loads((HERE / "case.json").read_text(encoding="utf-8"))
    if "threshold_db" in case:
        return judge_fault(case, given)
    if given is not None:
        parser.error("a bundle has no observed.npz; its results are computed again, or are in tensors/")
    return judge_numbers(case)


if __name__ == "__main__":
    sys.exit(main())
'''


FLOAT_MODEL, QUANTIZED_MODEL = "model/float.onnx", "model/quantized.onnx"
SAMPLES_LIST = "data/worst.txt"

Content = dict[str, bytes]
"""Files by their names."""

MANIFEST_NAME = "MANIFEST.json"
# The earliest time an archive can hold; when files were made is nobody's business.
_TIME = (1980, 1, 1, 0, 0, 0)
_UNIX, _REGULAR_FILE = 3, 0o100644


def manifest_of(members: Mapping[str, bytes]) -> bytes:
    """Size and hash of each file, as JSON."""
    entries = {
        name: {"size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in sorted(members.items())
    }
    return json_bytes(entries)


def zip_bytes(members: Mapping[str, bytes], *, manifest: bool = True) -> bytes:
    """An archive of these files.

    Args:
        members: The files, by their names.
        manifest: Whether a list of them with their hashes is put in, too.
    """
    listed = {MANIFEST_NAME: manifest_of(members)} if manifest else {}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name, content in sorted({**members, **listed}.items()):
            info = zipfile.ZipInfo(name, _TIME)
            info.compress_type, info.create_system = zipfile.ZIP_DEFLATED, _UNIX
            info.external_attr = _REGULAR_FILE << 16
            archive.writestr(info, content)
    return out.getvalue()


def json_bytes(content: object) -> bytes:
    """Anything as a file for people and programs."""
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()


def npy_bytes(array: Array) -> bytes:
    """An array as the content of a file."""
    out = io.BytesIO()
    np.save(out, np.ascontiguousarray(array), allow_pickle=False)
    return out.getvalue()


def environment_bytes(found: Environment) -> bytes:
    """Versions and host of the run, and those of this one, which packed it."""
    sides = {"run": found, "packed": environment(0.0)}
    plain = {
        side: environment_content(each) | {"arithmetic": str(each.arithmetic)} for side, each in sides.items()
    }
    return (json.dumps(plain, indent=1) + "\n").encode()


def quantizer_table(quantizers: tuple[Quantizer, ...]) -> str:
    """Scale and zero point of every quantizer, as CSV."""

    def row(each: Quantizer) -> list[object]:
        scales, zeros = np.atleast_1d(each.params.scale), np.atleast_1d(each.params.zero_point)
        readers = " ".join(f"{consumer.node}:{consumer.input}" for consumer in each.consumers)
        axis = "" if each.spec.axis is None else each.spec.axis
        numbers = " ".join(map(repr, map(float, scales))), " ".join(map(str, map(int, zeros)))
        return [each.tensor, each.kind, each.spec.dtype, axis, *numbers, readers]

    heading = ["tensor", "kind", "dtype", "axis", "scale", "zero_point", "read_by"]
    return csv_text(heading, map(row, quantizers))


def quantized_members(
    case: QuantizedCase, float_model: Model, numbers: CaseNumbers
) -> tuple[Content, dict[str, object]]:
    """Both models, the samples, and what the script needs to know.

    Args:
        case: The case.
        float_model: What is handed on as the float model: the case's own, or what that was prepared from.
        numbers: What the case shows.

    Raises:
        BadInput: The models are too large for one archive, or there is no score to show.
    """
    if numbers.sqnr_db is None:
        what = english("The outputs of the worst sample have no score, so that there is no number to show.")
        raise BadInput(
            what, fix=english("run roundoff samples on it to see why, and leave such samples out of --data")
        )
    members = model_members(float_model, FLOAT_MODEL)
    members |= model_members(
        fake_quant_model(case.quantized.float_model, case.quantized.quantizers), QUANTIZED_MODEL
    )
    samples, places = sample_members(case.samples)
    outputs = sorted({value.name for value in case.quantized.float_model.proto.graph.output})
    description: dict[str, object] = {
        "float": FLOAT_MODEL,
        "quantized": QUANTIZED_MODEL,
        "outputs": [name for name in outputs if name == numbers.output] or outputs,
        "samples": places,
        "expected_sqnr_db": numbers.sqnr_db,
    }
    return members | samples, description


def model_members(model: Model | DeferredModel, name: str) -> Content:
    """A model in one file, or with its weights beside it when they are large."""
    with ScratchFolder() as folder:
        save_model(model, folder / Path(name).name)
        return _read(folder, str(Path(name).parent))


def sample_members(samples: CaseSamples) -> tuple[Content, list[dict[str, object]]]:
    """Samples as files, and where the inputs of each are."""
    with ScratchFolder() as folder:
        pairs = list(zip(samples.names, samples.feeds, strict=True))
        copy_samples(folder, pairs, heading="the samples that show the fault, the worst first")
        members = _read(folder, "data")
    # The list names the files of a sample in the order of the inputs.
    listed = members[SAMPLES_LIST].decode()
    files = [name for name in members if name.endswith(".npy")]
    files.sort(key=lambda file: listed.index(file.removeprefix("data/")))
    places: list[dict[str, object]] = []
    for number, (name, feed) in enumerate(pairs, start=1):
        own = [file for file in files if Path(file).name.startswith(f"{number:04d}_")]
        by_input = dict(zip(feed, own, strict=True))
        places.append({"name": name, "inputs": by_input})
    return members, places


def _read(folder: Path, prefix: str) -> Content:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {f"{prefix}/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in files}


# Looking for what must not be in a confidential bundle, byte by byte, before it is handed out.

# Shorter names occur by chance in any file.
_SHORTEST = 4
# ... and in numbers even these.
_SHORTEST_IN_NUMBERS, _NUMBERS = 6, (".onnx", ".npy", ".data")
# Names as we give them ourselves, and some exporters.
_LIKE_OURS = re.compile(r"[A-Za-z]+_[0-9]+")
# The same in every bundle for a target and a machine.
_OURS = ("environment.json", "config/target.toml")
# Values in a row by which weights are recognised.
_VALUES = 16


def secrets_of(texts: Iterable[str], paths: Iterable[str]) -> frozenset[str]:
    """What must not occur: these texts, the parts of these paths, whoever runs this and where.

    Args:
        texts: Names of nodes, tensors and samples, remarks.
        paths: Files and folders.
    """
    found = {text.strip() for text in texts}
    for path in paths:
        found.add(path)
        for part in PurePath(path).parts:
            found |= {part, Path(part).stem}
    found |= {platform.node(), str(Path.home())}
    with contextlib.suppress(OSError, KeyError):  # a process may have no user
        found.add(getpass.getuser())
    return frozenset(text for text in found if len(text) >= _SHORTEST and not text.isdigit())


def find_leaks(
    members: Mapping[str, bytes], secrets: Iterable[str], *, ours: str, models: Iterable[Model]
) -> list[str]:
    """What of the secrets is in a bundle, in words; nothing when all is well.

    Args:
        members: Files of the bundle.
        secrets: Texts that must not occur.
        ours: Text that is the same in every bundle: a name that is part of it tells nothing.
        models: Their weights must not occur.
    """
    telling = sorted(text for text in secrets if text not in ours and not _LIKE_OURS.fullmatch(text))
    found = [f"{text!r} in the name {name}" for name in members for text in telling if text in name]
    for text in telling:
        needle = text.encode("utf-8", "surrogateescape")
        found += [
            f"{text!r} in {name}"
            for name, content in members.items()
            if (len(needle) >= _SHORTEST_IN_NUMBERS or not name.endswith(_NUMBERS)) and needle in content
        ]
    for name, block in _blocks(models):
        found += [f"values of {name!r} in {member}" for member, content in members.items() if block in content]
    return found


def _blocks(models: Iterable[Model]) -> Iterator[tuple[str, bytes]]:
    """A few runs of values of each float constant, as bytes."""
    for model in models:
        for tensor in weight_tensors(model.proto):
            values = np.asarray(constant_value(tensor, model)).reshape(-1)
            if values.dtype.kind != "f" or values.size < _VALUES:
                continue
            last = values.size - _VALUES
            for start in sorted({0, last // 2, last}):
                part = values[start : start + _VALUES]
                # The same value everywhere is in many files.
                if np.unique(part).size > _VALUES // 2:
                    yield tensor.name, np.ascontiguousarray(part).tobytes()


def refuse_leaks(
    members: Mapping[str, bytes],
    texts: Iterable[str],
    *,
    paths: Iterable[str],
    models: Sequence[Model],
    said: Iterable[str],
) -> None:
    """Refuse to hand out anything that tells; that it does would be a fault of ours.

    Args:
        members: The files of the bundle.
        texts: Names that must not be in them.
        paths: Files of the run, whose names must not be in them.
        models: Their weights must not be in them.
        said: Words that stand in the bundle whatever the model is.

    Raises:
        BadInput: Something is in them.
    """
    # Words that are in every bundle tell nothing, whatever else is called so; nor do those of the form itself.
    form = Path(ticket.__file__).read_text(encoding="utf-8")
    known = [*members, *said, SCRIPT, form]
    known += [content.decode() for name, content in members.items() if name in _OURS]
    leaks = find_leaks(members, secrets_of(texts, paths), ours="\n".join(known), models=models)
    if leaks:
        raise BadInput(
            "The bundle was not written, it would give away {leaks}{value}",
            fix=english("rename it in the model, or send the bundle without --confidential"),
            leaks=leaks[0],
            value=english(" and {number} more.", number=len(leaks) - 1) if len(leaks) > 1 else ".",
        )
