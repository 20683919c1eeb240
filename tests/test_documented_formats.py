"""Every ending and form that a table of the documentation lists is taken by every command that has the option."""

import argparse
import re
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.fuzz.seeds import small_lite
from onnx import helper
from PIL import Image
from safetensors.numpy import save_file

from roundoff.cli import COMMANDS, command_of, main
from roundoff.core.tensors import Array
from roundoff.graph.caffe.convert import import_caffe
from tests.ascend_dumps import write_dumps
from tests.contracts.format_contract import FormatContract
from tests.documented import ROOT, table_rows
from tests.graph.caffe.nets import weights_bytes
from tests.graph.test_openvino import small_ir
from tests.models import save, value, weight, wrapped
from tests.tensors import test_tools

SHAPE = (1, 3, 4, 4)
SAMPLES = 3


def endings(text: str) -> list[str]:
    """Endings in code marks: ``FILE.npy``, ``.lst``."""
    return [found for code in re.findall(r"`([^`]+)`", text) for found in re.findall(r"\.[a-z]\w*$", code)]


@cache
def options(name: str) -> frozenset[str]:
    """The options of a command."""
    parser = argparse.ArgumentParser(add_help=False)
    command_of(name).declare(parser)
    return frozenset(parser._option_string_actions)


def commands_with(option: str) -> set[str]:
    return {name for name in COMMANDS if option in options(name)}


# A folder of a reader, as small as commands allow.

_PROTOTXT = """
name: "net"
layer { name: "image" type: "Input" top: "image" input_param { shape { dim: 1 dim: 3 dim: 4 dim: 4 } } }
layer { name: "conv" type: "Convolution" bottom: "image" top: "conv"
        convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "fc" type: "InnerProduct" bottom: "conv" top: "logits" inner_product_param { num_output: 3 } }
"""


def _network() -> Any:
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["c"], "conv"),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("Flatten", ["r"], ["f"], "flat"),
        helper.make_node("Gemm", ["f", "v"], ["logits"], "fc"),
    ]
    weights = [weight("w", 4, 3, 3, 3, seed=1), weight("v", 16, 3, seed=2)]
    return wrapped(nodes, [value("image", SHAPE)], [value("logits", (1, 3))], weights)


def _arrays() -> list[Array]:
    return [np.random.default_rng(seed).normal(0.3, 1, SHAPE).astype(np.float32) for seed in range(SAMPLES)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("formats")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        save(_network(), made / "model.onnx")
        Path("net.prototxt").write_text(_PROTOTXT)
        net = import_caffe(Path("net.prototxt"), None, fill=True).net
        stored = {layer.name: (layer.type, layer.blobs) for layer in net.layers if layer.blobs}
        for name in ("net", "other"):
            Path(f"{name}.caffemodel").write_bytes(weights_bytes(stored))
        np.save("data.npy", np.concatenate(_arrays()))
        assert main(["quantize", "model.onnx", *TARGET, "--data", "data.npy", "-o", "int8"]) in {0, 1}
        assert main(["dump", "model.onnx", "--data", "data.npy", "-o", "golden"]) == 0
        assert main(["layers", "model.onnx", *TARGET, "--data", "data.npy", "-o", "run"]) in {0, 1}
        target = resources.files("roundoff.quantize.targets").joinpath("generic-int8.toml").read_text("utf-8")
        Path("chip.toml").write_text(target.replace("generic-int8", "chip"))
        yield made


TARGET = ("--target", "generic-int8")

# How each command is typed: {model} and {data} are what is tried, in front of what else it needs.
WITH_DATA = {
    "check-calibration": "{model} --target generic-int8", "compare": "{model} {model}", "dump": "{model} -o out",
    "diagnose": "{model} --target generic-int8", "quantize": "{model} --target generic-int8 -o out",
    "transform": "bias-correct {model} --target generic-int8 -o out",
    "tune": "{model} --target generic-int8 --max-trials 1 -o out",
    "distribution": "{model} conv --target generic-int8",
    "channels": "{model} conv --target generic-int8", "layers": "{model} --target generic-int8",
    "sensitivity": "{model} --target generic-int8", "accumulate": "{model} --target generic-int8",
    "partial": "{model} --top 1 --target generic-int8", "outliers": "{model} --target generic-int8",
    "samples": "{model} --target generic-int8",
}  # fmt: skip


def typed(command: str, *data: str, model: str = "model.onnx") -> tuple[int, list[str]]:
    """The exit code of a command with a model and samples, and what was typed."""
    shutil.rmtree("out", ignore_errors=True)
    words = [command, *WITH_DATA[command].replace("{model}", model).split(), *data]
    return main(words), words


def test_all_commands_with_samples_are_typed_here() -> None:
    # init writes down where samples are; that they are then read is tried below.
    assert set(WITH_DATA) == commands_with("--data") - {"init"}


# Samples.


def _folder_of(write: Callable[[Path, Array], None], ending: str) -> Callable[[Path], list[str]]:
    def make(path: Path) -> list[str]:
        path.mkdir()
        for number, array in enumerate(_arrays()):
            write(path / f"{number}{ending}", array)
        return [str(path)]

    return make


def _picture(path: Path, array: Array) -> None:
    Image.fromarray((array[0] * 40 + 120).clip(0, 255).astype(np.uint8).transpose(1, 2, 0)).save(path)


def _pictures(path: Path) -> list[str]:
    return [*_folder_of(_picture, ".png")(path), "--scale", "1/255", "--image-layout", "nchw"]


def _per_input(path: Path) -> list[str]:
    path.mkdir()
    _folder_of(np.save, ".npy")(path / "image")
    return [str(path)]


def _one_file(write: Callable[[Path, Array], None], ending: str) -> Callable[[Path], list[str]]:
    def make(path: Path) -> list[str]:
        write(path.with_suffix(ending), np.concatenate(_arrays()))
        return [str(path.with_suffix(ending))]

    return make


def _list_of(ending: str) -> Callable[[Path], list[str]]:
    def make(path: Path) -> list[str]:
        _folder_of(np.save, ".npy")(path)
        listed = path.with_suffix(ending)
        listed.write_text("".join(f"{path.name}/{number}.npy\n" for number in range(SAMPLES)))
        return [str(listed)]

    return make


def _named(path: Path) -> list[str]:
    return [f"image={_one_file(np.save, '.npy')(path)[0]}"]


def _archive(path: Path, array: Array) -> None:
    np.savez(path, image=array)


def _raw(path: Path, array: Array) -> None:
    array.tofile(path)


def sample_forms() -> dict[str, Callable[[Path], list[str]]]:
    """What the page on samples lists, each with how it is made."""
    writers: dict[str, Callable[[Path, Array], None]] = {
        ".npy": np.save,
        ".npz": _archive,
        ".bin": _raw,
        ".raw": _raw,
    }
    found: dict[str, Callable[[Path], list[str]]] = {}
    for first, second, _ in table_rows("reference/samples.md", "| `--data`"):
        if first == "`DIR`":
            if "a folder per input" in second:
                found["DIR/input"] = _per_input
                continue
            found |= {f"DIR {each}": _folder_of(writers[each], each) for each in endings(second)}
            found |= {"DIR pictures": _pictures} if "pictures" in second else {}
        elif "=" in first:
            found["INPUT=PATH"] = _named
        elif "LIST" not in first:
            found |= {f"FILE {each}": _one_file(writers[each], each) for each in endings(first)}
    page = (ROOT / "docs" / "reference" / "samples.md").read_text("utf-8")
    [lists] = re.findall(r"\*\*List files\*\* \(([^)]*)\)", page)
    return found | {f"LIST {each}": _list_of(each) for each in endings(lists)}


@pytest.mark.parametrize("form", sample_forms())
def test_every_form_of_samples_is_taken_by_commands_in_turn(form: str, folder: Path, tmp_path: Path) -> None:
    data = sample_forms()[form](tmp_path / "data")
    # A form is read in one place, and each command hands samples on in one: every third of them, in turn.
    for command in list(WITH_DATA)[list(sample_forms()).index(form) % 3 :: 3]:
        code, words = typed(command, "--data", *data)
        assert code in {0, 1}, " ".join(words)


@pytest.mark.parametrize("form", sample_forms())
def test_every_form_of_samples_can_be_a_projects(form: str, folder: Path, tmp_path: Path) -> None:
    data, *how = sample_forms()[form](tmp_path / "data")
    assert main(["init", "--model", "model.onnx", "--target", "generic-int8", "--data", data]) == 0
    try:
        assert main(["check-calibration", *how]) in {0, 1}
    finally:
        Path("roundoff.toml").unlink()


# Models, quantized models and targets.

MODELS = (
    "net.prototxt",
    "net.prototxt,other.caffemodel",
    "other.caffemodel,net.prototxt",
    "other.caffemodel net.prototxt",
)


def test_the_ways_to_name_a_net_are_those_of_the_page() -> None:
    rows = table_rows("reference/convert.md", "| given")
    assert [len(re.findall(r"`([^`]*\.prototxt[^`]*)`", row[0])) for row in rows] == [2, 1, 1]


@pytest.mark.parametrize("model", MODELS)
def test_every_way_to_name_a_net_is_taken_by_commands_in_turn(model: str, folder: Path) -> None:
    for command in list(WITH_DATA)[MODELS.index(model) % 2 :: 2]:
        code, words = typed(command, "--data", "data.npy", model=model)
        assert code in {0, 1}, " ".join(words)


def _choices(option: str) -> list[str]:
    return sorted(commands_with(option) & set(WITH_DATA))


@pytest.mark.parametrize("form", ["int8", "int8/model_fake_quant_model.onnx", "int8/model_deploy_model.onnx"])
def test_every_form_of_a_quantized_model_is_taken_by_every_command(form: str, folder: Path) -> None:
    rows = {row[0] for row in table_rows("reference/quantize.md", "## What it writes")}
    assert {"`<prefix>_fake_quant_model.onnx`", "`<prefix>_deploy_model.onnx`"} <= rows
    for command in _choices("--quantized"):
        given = WITH_DATA[command].replace("{model}", "model.onnx").replace("--target generic-int8", "").split()
        assert main([command, *given, "--quantized", form, "--data", "data.npy"]) in {0, 1}, command


def _of_other_tools(ending: str) -> tuple[str, str]:
    """A small model of 8 bits as LiteRT or OpenVINO has it, and samples for it."""
    if ending == ".tflite":
        Path("small.tflite").write_bytes(small_lite())
        shape: tuple[int, ...] = (SAMPLES, 4, 4, 2)
    else:
        small_ir(Path())
        Path("m.xml").rename("small.xml")
        Path("m.bin").rename("small.bin")
        shape = (SAMPLES, 2)
    np.save("small.npy", np.random.default_rng(0).normal(0, 0.5, shape).astype(np.float32))
    return f"small{ending}", "small.npy"


@pytest.mark.parametrize(("page", "ending"), [("tflite", ".tflite"), ("openvino", ".xml")])
def test_models_of_other_tools_are_taken_wherever_a_model_is(page: str, ending: str, folder: Path) -> None:
    text = " ".join((ROOT / "docs" / "formats" / f"{page}.md").read_text("utf-8").split())
    assert "is taken wherever a model is" in text
    model, data = _of_other_tools(ending)
    for command in _choices("--quantized"):
        shutil.rmtree("out", ignore_errors=True)
        given = WITH_DATA[command].replace("{model} conv", "*").replace("{model}", "")
        words = [
            command,
            *given.replace("--target generic-int8", "").split(),
            "--quantized",
            model,
            "--data",
            data,
        ]
        assert main(words) in {0, 1}, " ".join(words)
    for command in ("dump", "compare"):
        code, words = typed(command, "--data", data, model=model)
        assert code in {0, 1}, " ".join(words)
    assert main(["audit", model]) in {0, 1}
    assert main(["convert", model, "-o", "small.onnx", "--force"]) == 0
    assert main(["compare", model, "small.onnx", "--data", data]) == 0


def test_a_target_of_ones_own_is_taken_by_every_command(folder: Path) -> None:
    for command in _choices("--target"):
        shutil.rmtree("out", ignore_errors=True)
        given = WITH_DATA[command].replace("{model}", "model.onnx").replace("generic-int8", "chip.toml").split()
        assert main([command, *given, "--data", "data.npy"]) in {0, 1}, command


# Dumps.


def _tensors() -> dict[str, Array]:
    with np.load("golden.npz") as archive:
        return {name: archive[name] for name in archive.files}


def _write_format(name: str, out: Path) -> Path:
    """A dump of one sample: those that are not written by the program by what other tools use."""
    if name == "safetensors":
        save_file(_tensors(), out.with_suffix(".safetensors"))
        out.with_suffix(".safetensors").rename(out)
    elif name == "ascend-dump":
        write_dumps(out, _tensors())
    elif name in WRITERS:
        out.mkdir()
        return WRITERS[name]().write(out, _tensors())
    elif name == "tidl":
        _write_traces(out)
    else:
        words = ["dump", "model.onnx", "--data", "data.npy", "--samples", "1", "--format", name, "-o", str(out)]
        assert main(words) == 0
    return out


# What other tools write, by those who test its readers.
WRITERS: dict[str, Callable[[], FormatContract]] = {
    "rknn": test_tools.TestRknn,
    "qnn": test_tools.TestQnn,
    "tpu-mlir": test_tools.TestTpuMlir,
    "polygraphy": test_tools.TestPolygraphy,
    "msprobe": test_tools.TestMsprobe,
    "torch": test_tools.TestTorchFile,
}


def _write_traces(out: Path) -> None:
    out.mkdir()
    names = []
    for number, (name, values) in enumerate(_tensors().items(), 1):
        if values.dtype == np.float32 and values.ndim <= 4:
            sizes = (1,) * (4 - values.ndim) + values.shape
            batch, channels, rows, columns = (f"{size:05d}" for size in sizes)
            trace = f"tidl_trace_subgraph_0_{number:04d}_0001_0001_{batch}_{channels}_{columns}x{rows}_float.bin"
            (out / trace).write_bytes(values.tobytes())
            names.append(f"{number} 1 {name}")
    (out / "subgraph_0_layer_info.txt").write_text("\n".join(names) + "\n")


@pytest.mark.parametrize("row", table_rows("formats/README.md", "# Tensor files"), ids=lambda row: row[0])
def test_every_format_of_dumps_is_taken_on_both_sides_of_every_command(
    row: list[str], folder: Path, tmp_path: Path
) -> None:
    [name] = re.findall(r"\[`([^`]+)`\]", row[0])
    if not Path("golden.npz").exists():
        main(["dump", "model.onnx", "--data", "data.npy", "--samples", "1", "--format", "npz", "-o", "made"])
        shutil.copy("made/tensors.npz", "golden.npz")
    out = tmp_path / ("dump.safetensors" if name == "safetensors" else "dump")
    out = _write_format(name, out)
    data = ["--data", "data.npy", "--samples", "1"]
    for words in (
        ["compare", str(out), "golden.npz", "--model", "model.onnx"],
        ["compare", "golden.npz", str(out), "--model", "model.onnx"],
        ["compare", "model.onnx", str(out), *data],
        ["diagnose", "model.onnx", "--dumps", str(out), *data],
        ["convert", str(out), "-o", str(tmp_path / "again")],
    ):
        assert main(words) in {0, 1}, " ".join(words)


# Reports of every kind of run, rankings and labels.


def refused(command: str, name: str, about: str) -> bool:
    """Whether the page says that a format is not for the runs of a command."""
    if name == "junit":
        judged = table_rows("reference/report.md", "## JUnit")
        return not any(f"`{command}`" in row[0] for row in judged)
    if " Of `" in about:
        return f"`{command}`" not in about
    return f"Not of `{command}`" in about


@pytest.mark.parametrize("command", sorted(name for name in WITH_DATA if "-o" in options(name)))
def test_every_format_of_reports_is_written_of_every_run(command: str, folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    given = WITH_DATA[command].replace("{model}", "model.onnx").removesuffix("-o out").split()
    assert main([command, *given, "--data", "data.npy", "-o", str(run)]) in {0, 1}
    if not (run / "run.json").exists():
        assert command in {"dump", "quantize"}
        return
    for cell, chosen, about in table_rows("reference/report.md", "| `--format`"):
        name = cell.strip("`")
        for number, ending in enumerate(endings(chosen) or [""]):
            out = tmp_path / f"{name}{number}{ending}"
            said = ["--format", name] if "--format" in chosen or not ending else []
            code = main(["report", str(run), "-o", str(out), *said])
            assert (code == 2) == refused(command, name, about), f"{command}: {name}, {ending}"
            assert code in {0, 1, 2}


def _labels(form: str) -> str:
    rows = {
        ".txt": "".join(f"{label}\n" for label in (0, 1, 2)),
        ".csv": "file,label\n0,0\n1,1\n2,2\n",
        ".tsv": "0\t0\n1\t1\n2\t2\n",
    }
    path = Path(f"labels{form}")
    if form == ".npy":
        np.save(path, np.arange(SAMPLES))
    else:
        path.write_text(rows[form])
    return str(path)


@pytest.mark.parametrize("form", [".npy", ".txt", ".csv", ".tsv"])
def test_every_form_of_labels_is_taken_by_every_command(form: str, folder: Path) -> None:
    page = (ROOT / "docs" / "reference" / "partial.md").read_text("utf-8")
    assert "`.npy` with whole numbers" in page
    assert "separated by a comma, tab, semicolon or blank" in page
    for command in _choices("--labels"):
        code, words = typed(command, "--data", "data.npy", "--labels", _labels(form))
        assert code in {0, 1}, " ".join(words)
