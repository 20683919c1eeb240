"""Dumps of other tools: what formats promise, what the tools wrote, and files that are cut short or mixed up."""

import base64
import contextlib
import io
import json
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.tensors import FORMATS, open_source
from roundoff.tensors.msprobe import as_alike
from roundoff.tensors.rknn import read_ranges
from roundoff.tensors.stored import holds_statistics, remarks_of, rungs_of, runs_of, scales_of
from roundoff.tensors.tpu_mlir import read_lowered, read_precisions, read_thresholds
from tests.contracts.format_contract import FormatContract
from tests.real_models import tool_files


def npy_bytes(array: Array) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


# RKNN-Toolkit2.


def write_snapshot(folder: Path, runs: Mapping[str, Mapping[str, Array]]) -> None:
    """An analysis as RKNN-Toolkit2 lays it out."""
    names = {name: name.replace("/", "_") for tensors in runs.values() for name in tensors}
    lines = ["layer_name  file_name", "-" * 40, *(f"{name}   {file}.txt   " for name, file in names.items())]
    folder.mkdir(exist_ok=True)
    (folder / "map_name_to_file.txt").write_text("\n".join(lines))
    for run, tensors in runs.items():
        (folder / run / "npy").mkdir(parents=True)
        for name, array in tensors.items():
            np.save(folder / run / "npy" / f"{names[name]}.npy", array)


class TestRknn(FormatContract):
    format = "rknn"
    names = ("block/conv2", "block/conv10", "fc")

    def write(self, folder: Path, tensors: Mapping[str, Array]) -> Path:
        write_snapshot(folder, {"golden": tensors, "simulator": tensors})
        return folder

    def damage(self, path: Path, name: str) -> None:
        file = path / "simulator" / "npy" / f"{name.replace('/', '_')}.npy"
        file.write_bytes(file.read_bytes()[:-1])


def snapshot(tmp_path: Path, *runs: str) -> Path:
    values = {"x": np.arange(6, dtype=np.float32), "a/b": np.arange(6, dtype=np.float32) * 2}
    write_snapshot(tmp_path / "s", dict.fromkeys(runs, values))
    return tmp_path / "s"


def test_the_chips_run_is_judged_by_golden(tmp_path: Path) -> None:
    path = snapshot(tmp_path, "golden", "simulator", "runtime")
    assert runs_of(open_source(path))[0] == "runtime"
    assert runs_of(open_source(path, golden=True))[0] == "golden"
    assert runs_of(open_source(path, run="simulator"))[0] == "simulator"
    assert list(rungs_of(open_source(path))) == ["golden", "simulator", "runtime"]
    with pytest.raises(BadInput, match="no run 'board'"):
        open_source(path, run="board")


def test_a_golden_run_alone_is_no_board(tmp_path: Path) -> None:
    path = snapshot(tmp_path, "golden")
    with pytest.raises(BadInput, match="only the golden run"):
        open_source(path)
    assert open_source(path, golden=True).samples == open_source(path, run="golden").samples


def test_half_an_analysis_is_named(tmp_path: Path) -> None:
    path = snapshot(tmp_path, "simulator")
    assert [each.key for each in remarks_of(open_source(path))] == ["tensors.rknn_half"]


def test_a_file_that_is_listed_and_missing_is_a_row_with_a_problem(tmp_path: Path) -> None:
    path = snapshot(tmp_path, "golden", "simulator")
    (path / "simulator" / "npy" / "a_b.npy").unlink()
    problems = {info.name: info.problem for info in open_source(path).tensors}
    assert problems == {"x": "", "a/b": "is listed in map_name_to_file.txt and not there"}


def test_without_the_list_tensors_have_the_names_of_files(tmp_path: Path) -> None:
    path = snapshot(tmp_path, "golden", "simulator")
    (path / "map_name_to_file.txt").rename(path / "error_analysis.txt")
    source = open_source(path)
    assert not source.ordered
    assert {info.name for info in source.tensors} == {"x", "a_b"}
    assert "tensors.rknn_no_list" in [each.key for each in remarks_of(source)]


def test_runs_of_two_samples_and_changed_files_are_named(tmp_path: Path) -> None:
    path = snapshot(tmp_path, "golden", "simulator")
    rows = ["[Input] x      1.00000 | 0.00000   1.00000 | 0.00000", "[Conv] a/b     0.99999 | 0.01   0.99 | 0.01"]
    (path / "error_analysis.txt").write_text("\n".join(rows))
    assert remarks_of(open_source(path)) == ()
    np.save(path / "simulator" / "npy" / "x.npy", np.ones(6, np.float32))
    np.save(path / "simulator" / "npy" / "a_b.npy", -np.arange(6, dtype=np.float32))
    found = [each.key for each in remarks_of(open_source(path))]
    assert found == ["tensors.rknn_other_sample", "tensors.rknn_figures"]


def test_values_as_text_are_read_where_there_are_no_arrays(tmp_path: Path) -> None:
    path = snapshot(tmp_path, "golden", "simulator")
    shutil.rmtree(path / "simulator" / "npy")
    (path / "simulator" / "x.txt").write_text("1.5\n-2\n")
    (path / "simulator" / "a_b.txt").write_text("1.5\nx\n")
    source = open_source(path)
    np.testing.assert_array_equal(source.read("x", ""), np.array([1.5, -2], np.float32))
    assert {info.name: info.problem for info in source.tensors}["a/b"] == "is no list of numbers"


def test_ranges_of_a_configuration(tmp_path: Path) -> None:
    path = tmp_path / "net.quantization.cfg"
    path.write_text(
        "custom_quantize_layers: {}\nquantize_parameters:\n    a/b:\n        qtype: asym\n        dtype: int8\n"
        "        min:\n        -   -1.0\n        max:\n        -   4.1\n        scale:\n        -   0.02\n"
        "        zero_point:\n        -   -78\n        ori_min:\n        -   -1.0\n"
        "        ori_max:\n        -   2.0\n"
        "    x:\n        dtype: float32\n        min: [0.0]\n        max: [1.0]\n        scale: []\n"
    )
    (scale,) = read_ranges(path).values()
    assert (scale.low, scale.high, scale.observed) == (-1.0, 4.1, (-1.0, 2.0))
    assert scale.scale == pytest.approx(5.1 / 255)


def test_what_rknn_wrote() -> None:
    source = open_source(tool_files("rknn/digits"))
    assert source.samples == ("s0", "s1")
    assert source.ordered
    assert len(source.tensors) == 26
    assert runs_of(source) == ("simulator", "golden")
    assert remarks_of(source) == ()
    scale = scales_of(source)["stem/relu"]
    codes = source.read("stem/relu", "s1") / scale.scale
    assert float(np.abs(codes - np.rint(codes)).max()) < 1e-3
    broken = open_source(tool_files("faults/rknn_digits_broken_tensor"))
    assert [dict(each.arguments)["name"] for each in remarks_of(broken)] == ["block3/relu"]


# Qualcomm.

_KINDS = {"float32": "FLOAT_32", "int64": "INT_64", "float16": "FLOAT_16"}


class TestQnn(FormatContract):
    format = "qnn"

    def write(self, folder: Path, tensors: Mapping[str, Array]) -> Path:
        (folder / "Result_0").mkdir()
        graph = {
            name: {"data_type": f"QNN_DATATYPE_{_KINDS[each.dtype.name]}", "current_dims": list(each.shape)}
            for name, each in tensors.items()
        }
        (folder / "model_net.json").write_text(json.dumps({"graph": {"tensors": graph}}))
        for name, each in tensors.items():
            each.tofile(folder / "Result_0" / f"{name}.raw")
        return folder / "Result_0"

    def damage(self, path: Path, name: str) -> None:
        file = path / f"{name}.raw"
        file.write_bytes(file.read_bytes()[:-1])


def coded(folder: Path, *, values: Array | None, kind: str | int = "QNN_DATATYPE_UFIXED_POINT_8") -> Path:
    codes = np.arange(12, dtype=np.uint8).reshape(1, 2, 3, 2)
    entry = {
        "data_type": kind,
        "current_dims": [1, 2, 3, 2],
        "quant_params": {"scale_offset": {"scale": 0.5, "offset": -4}},
    }
    (folder / "model_net.json").write_text(json.dumps({"graph": {"tensors": {"x": entry}}}))
    for number in range(2):
        (folder / f"Result_{number}").mkdir()
        codes.tofile(folder / f"Result_{number}" / "x_native.raw")
        if values is not None:
            values.astype(np.float32).tofile(folder / f"Result_{number}" / "x.raw")
    return folder


@pytest.mark.parametrize("kind", ["QNN_DATATYPE_UFIXED_POINT_8", 0x0408])
def test_codes_are_read_as_values(tmp_path: Path, kind: str | int) -> None:
    source = open_source(coded(tmp_path, values=None, kind=kind))
    assert source.samples == ("Result_0", "Result_1")
    np.testing.assert_array_equal(source.read("x", "Result_1").ravel(), (np.arange(12) - 4) * 0.5)
    assert (scales_of(source)["x"].low, scales_of(source)["x"].high) == (-2.0, 125.5)


@pytest.mark.parametrize("shift", [0, 3])
def test_codes_beside_values_are_held_against_them(tmp_path: Path, shift: int) -> None:
    source = open_source(coded(tmp_path, values=(np.arange(12) - 4 + shift) * 0.5))
    assert [info.name for info in source.tensors] == ["x"]
    assert [each.key for each in remarks_of(source)] == ["tensors.qnn_codes"] * (2 if shift else 0)


def test_the_list_of_inputs_says_what_was_fed(tmp_path: Path) -> None:
    coded(tmp_path, values=None)
    (tmp_path / "in.raw").write_bytes(np.array([1, 2], np.float32).tobytes())
    (tmp_path / "input_list.txt").write_text("# inputs\nimage:=in.raw\nimage:=../outside.raw\n")
    source = open_source(tmp_path)
    np.testing.assert_array_equal(source.read("image", "Result_0"), np.array([1, 2], np.float32))
    with pytest.raises(BadInput, match="in sample 'Result_1'"):
        source.read("image", "Result_1")


def test_what_the_htp_emulator_wrote() -> None:
    source = open_source(tool_files("qnn_htp/resnet8.qdq"))
    truth = np.load(tool_files("qnn_htp/resnet8.qdq/tapped_s1.npz"))
    name = "model/activation_2/Relu_3_relu"
    found = source.read(name.replace("/", "_"), "Result_1")
    np.testing.assert_array_equal(np.moveaxis(found, -1, 1), truth[name])
    assert remarks_of(source) == ()


# TPU-MLIR.


class TestTpuMlir(FormatContract):
    format = "tpu-mlir"
    names = ("b/conv2_Relu", "b/conv10_Relu", "fc_Add")

    def write(self, folder: Path, tensors: Mapping[str, Array]) -> Path:
        np.savez(folder / "s0_tpu.npz", **dict[str, Any](tensors))
        return folder

    def damage(self, path: Path, name: str) -> None:
        content = (path / "s0_tpu.npz").read_bytes()
        at = content.index(b"'descr'", content.index(f"{name}.npy".encode()))
        (path / "s0_tpu.npz").write_bytes(content[:at] + b"'DESCR'" + content[at + 7 :])


def test_runs_casts_and_halves(tmp_path: Path) -> None:
    values = np.array([1.5, -2.0, 0.25], np.float32)
    halves = (values.view(np.uint32) >> 16).astype(np.uint16)
    for run in ("top", "tpu", "model"):
        np.savez(tmp_path / f"s3_{run}.npz", x=values, y_Relu=values, y_Reluz_Conv_f32=values)
    np.savez(tmp_path / "s4_tpu.npz", x=halves, y_Relu=halves, z_Conv=halves)
    source = open_source(tmp_path)
    assert runs_of(source) == ("tpu", "model", "top")
    assert source.samples == ("s3", "s4")
    infos = {info.name: info for info in source.tensors}
    assert (infos["y_Relu"].origin, infos["y_Reluz_Conv_f32"].copy_of, infos["z_Conv"].origin) == (
        "y",
        "y_Relu",
        "",
    )
    np.testing.assert_array_equal(source.read("y_Relu", "s4"), values)


def test_scales_of_a_lowered_graph_and_of_tables(tmp_path: Path) -> None:
    (tmp_path / "m_tpu.mlir").write_text(
        '%1 = "tpu.Conv2D"(%0) : (tensor<1x8xf32>) -> tensor<1x8x!quant.uniform<u8:f32, 5.0e-02>> loc(#loc1)\n'
        '%2 = "tpu.Add"(%1) : (none) -> tensor<1x8x!quant.uniform<i8:f32, 0.5:-3>> loc(#loc2)\n'
        '#loc1 = loc("a_Relu")\n#loc2 = loc("b_Add")\n'
    )
    found = read_lowered(tmp_path / "m_tpu.mlir")
    assert found["a_Relu"].low == 0.0
    assert found["a_Relu"].high == pytest.approx(12.75)
    assert (found["b_Add"].low, found["b_Add"].high) == (-62.5, 65.0)
    (tmp_path / "t").write_text("# name threshold min max\na_Relu 4.0 0.0 5.0\nb_Add 2.0 -1.0 3.0\nbad x y z\n")
    table = read_thresholds(tmp_path / "t")
    assert table["a_Relu"].scale == pytest.approx(4 / 255)
    assert (table["b_Add"].low, table["b_Add"].high, table["b_Add"].observed) == (-2.0, 2.0, (-1.0, 3.0))
    (tmp_path / "q").write_text("# name mode\na_Relu F16\n")
    assert read_precisions(tmp_path / "q") == {"a_Relu": "F16"}


def test_what_tpu_mlir_wrote() -> None:
    halves = open_source(tool_files("tpu_mlir/digits/BF16/s0_tpu_uint16.npz"))
    plain = open_source(tool_files("tpu_mlir/digits/BF16/s0_tpu.npz"))
    for info in plain.tensors:
        np.testing.assert_array_equal(halves.read(info.name, ""), plain.read(info.name, ""))
    source = open_source(tool_files("tpu_mlir/digits/INT8"))
    assert (source.samples, runs_of(source)) == (("s0", "s1"), ("tpu", "model"))
    assert len(scales_of(source)) == 15
    with pytest.raises(BadInput, match="several quantizations"):
        open_source(tool_files("tpu_mlir/digits"))
    mixed = open_source(tool_files("faults/tpu_digits_mix_qtable"))
    assert [each.key for each in remarks_of(mixed)] == ["tensors.tpu_precisions"]


# Polygraphy.


def polygraphy_array(array: Array) -> dict[str, Any]:
    text = base64.b64encode(npy_bytes(array)).decode()
    return {"values": {"array": text, "polygraphy_class": "ndarray"}, "polygraphy_class": "LazyArray"}


def polygraphy_runs(**runs: list[Mapping[str, Array]]) -> str:
    lists = [
        [name, [{"outputs": {key: polygraphy_array(value) for key, value in each.items()}} for each in iterations]]
        for name, iterations in runs.items()
    ]
    return json.dumps({"lst": lists, "polygraphy_class": "RunResults"})


class TestPolygraphy(FormatContract):
    format = "polygraphy"
    names = ("a/conv2", "a/conv10", "fc")

    def write(self, folder: Path, tensors: Mapping[str, Array]) -> Path:
        (folder / "out.json").write_text(polygraphy_runs(runner=[tensors]))
        return folder / "out.json"

    def damage(self, path: Path, name: str) -> None:
        content = path.read_text()
        at = content.index('"array": "', content.index(json.dumps(name))) + 10
        path.write_text(f"{content[:at]}!!!!{content[at + 4 :]}")


def test_runners_are_runs_and_iterations_samples(tmp_path: Path) -> None:
    one, two = {"x": np.array([1], np.float32)}, {"x": np.array([2], np.float32)}
    (tmp_path / "out.json").write_text(polygraphy_runs(onnxrt=[one, two], trt=[two, two]))
    assert runs_of(open_source(tmp_path / "out.json")) == ("trt", "onnxrt")
    golden = open_source(tmp_path / "out.json", golden=True)
    assert (golden.samples, golden.read("x", "1")) == (("0", "1"), np.array([2], np.float32))
    (tmp_path / "in.json").write_text(json.dumps([{"x": polygraphy_array(np.array([3], np.float32))}]))
    assert open_source(tmp_path / "in.json").read("x", "") == np.array([3], np.float32)


def test_results_that_are_cut_short_are_bad_input(tmp_path: Path) -> None:
    text = polygraphy_runs(runner=[{"x": np.zeros(400, np.float32)}])
    (tmp_path / "out.json").write_text(text[: len(text) // 2])
    with pytest.raises(BadInput):
        open_source(tmp_path / "out.json", format="polygraphy")


def test_what_polygraphy_wrote() -> None:
    source = open_source(tool_files("polygraphy/digits_float.json"))
    assert (len(source.tensors), source.samples, source.ordered) == (32, ("0", "1"), True)
    fed = open_source(tool_files("polygraphy/digits_inputs.json"))
    truth = np.load(tool_files("inputs/digits.npz"))["sample.image"]
    np.testing.assert_array_equal(fed.read("image", "1"), truth[1:2])


# PyTorch's files, and msprobe.

_STORAGES = {"float32": "Float", "int64": "Long", "float16": "Half", "uint8": "Byte"}


def torch_pickle(tensors: Mapping[str, Array] | Array) -> tuple[bytes, dict[str, bytes]]:
    """The pickle of a torch archive, written step by step, and the storages beside it."""
    storages: dict[str, bytes] = {}

    def tensor(array: Array) -> bytes:
        key = str(len(storages))
        storages[f"data/{key}"] = np.ascontiguousarray(array).tobytes()
        strides = [step // array.itemsize for step in np.ascontiguousarray(array).strides] if array.ndim else []
        storage = (
            b"((X\x07\x00\x00\x00storagectorch\n"
            + f"{_STORAGES[array.dtype.name]}Storage\n".encode()
            + text(key)
            + text("cpu")
            + number(array.size)
            + b"tQ"
        )
        shape, steps = (b"(" + b"".join(map(number, each)) + b"t" for each in (array.shape, strides))
        ordered = b"ccollections\nOrderedDict\n)R"
        return (
            b"ctorch._utils\n_rebuild_tensor_v2\n"
            + storage
            + number(0)
            + shape
            + steps
            + b"\x89"
            + ordered
            + b"tR"
        )

    if isinstance(tensors, Mapping):
        pairs = b"".join(text(name) + tensor(each) for name, each in tensors.items())
        return b"\x80\x02}(" + pairs + b"u.", storages
    return b"\x80\x02" + tensor(tensors) + b".", storages


def text(value: str) -> bytes:
    return b"X" + len(value.encode()).to_bytes(4, "little") + value.encode()


def number(value: int) -> bytes:
    return b"J" + int(value).to_bytes(4, "little", signed=True)


def write_torch(path: Path, tensors: Mapping[str, Array] | Array, *, cut: str = "") -> None:
    content, storages = torch_pickle(tensors)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", content)
        for name, data in storages.items():
            archive.writestr(f"archive/{name}", data[:-1] if name == cut else data)


class TestTorchFile(FormatContract):
    format = "torch"

    def write(self, folder: Path, tensors: Mapping[str, Array]) -> Path:
        write_torch(folder / "tensors.pt", tensors)
        return folder / "tensors.pt"

    def damage(self, path: Path, name: str) -> None:
        write_torch(path, self.tensors(), cut=f"data/{self.names.index(name)}")


def test_nothing_but_tensors_is_read_of_a_pickle(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.pt", "w") as archive:
        archive.writestr("m/data.pkl", b"cos\nsystem\n(X\x02\x00\x00\x00lstR.")
    with pytest.raises(BadInput, match="nothing is ever run") as caught:
        open_source(tmp_path / "m.pt")
    assert "torch.onnx.export" in str(caught.value.fix)


def msprobe_dump(folder: Path, tensors: Mapping[str, Array], *, statistics: bool) -> Path:
    home = folder / "step0" / "rank0"
    (home / "dump_tensor_data").mkdir(parents=True)
    data = {}
    for name, array in tensors.items():
        call = name.removesuffix(".output.0")
        entry: dict[str, Any] = {"type": "torch.Tensor", "shape": list(array.shape)}
        wide = array.astype(np.float64)
        entry |= {"Max": wide.max(), "Min": wide.min(), "Mean": wide.mean(), "Norm": float(np.linalg.norm(wide))}
        if not statistics:
            entry["data_name"] = f"{name}.pt"
            write_torch(home / "dump_tensor_data" / f"{name}.pt", array)
        data[call] = {"input_args": [], "output": [entry]}
    (home / "dump.json").write_text(json.dumps({"task": "tensor", "data": data}))
    return folder


class TestMsprobe(FormatContract):
    format = "msprobe"
    names = ("Module.b.Conv2d.forward.0.output.0", "Functional.relu.0.forward.output.0", "Torch.add.0.output.0")

    def write(self, folder: Path, tensors: Mapping[str, Array]) -> Path:
        return msprobe_dump(folder, tensors, statistics=False)

    def damage(self, path: Path, name: str) -> None:
        file = path / "step0" / "rank0" / "dump_tensor_data" / f"{name}.pt"
        file.write_bytes(file.read_bytes()[:-1])


def test_statistics_stand_for_tensors(tmp_path: Path) -> None:
    values = {"Torch.add.0.output.0": np.array([3, -4], np.float32)}
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    told = open_source(msprobe_dump(tmp_path / "a", values, statistics=True))
    whole = open_source(msprobe_dump(tmp_path / "b", values, statistics=False))
    assert holds_statistics(told)
    assert not holds_statistics(whole)
    left, right = as_alike(told, whole)
    for side in (left, right):
        np.testing.assert_allclose(side.read("Torch.add.0.output.0", ""), [3, -4, -0.5, 5])


def test_a_dump_that_was_not_stopped_is_bad_input(tmp_path: Path) -> None:
    home = tmp_path / "step0" / "proc1"
    home.mkdir(parents=True)
    (home / "dump.json").write_text('{"data": {"a"')
    with pytest.raises(BadInput, match="not JSON") as caught:
        open_source(tmp_path)
    assert "stop()" in str(caught.value.fix)


def test_what_msprobe_wrote() -> None:
    truth = np.load(tool_files("msprobe/tensor_weights_and_io.npz"))
    source = open_source(tool_files("msprobe/tensor"))
    assert source.samples == ("step0", "step1")
    for place, step in enumerate(source.samples):
        np.testing.assert_array_equal(source.read("Torch.softmax.0.forward.output.0", step), truth["y"][place])
        np.testing.assert_array_equal(
            source.read("Module.block.conv1.Conv2d.forward.0.input.0", step), truth["x"][place]
        )


# TIDL, by its documented naming.


def test_traces_of_tidl(tmp_path: Path) -> None:
    values = np.arange(24, dtype=np.float32)
    name = "tidl_trace_subgraph_0_0001_0001_0001_00001_00002_00004x00003"
    (tmp_path / f"{name}_float.bin").write_bytes(values.tobytes())
    (tmp_path / f"{name}.y").write_bytes(bytes(24))
    (tmp_path / "subgraph_0_layer_info.txt").write_text("1 1 block/conv\n2 1 other\n")
    source = open_source(tmp_path)
    assert [(info.name, info.shape) for info in source.tensors] == [("block/conv", (1, 2, 3, 4))]
    np.testing.assert_array_equal(source.read("block/conv", "").ravel(), values)
    (tmp_path / f"{name}_float.bin").write_bytes(values.tobytes()[:-4])
    assert open_source(tmp_path).tensors[0].problem == "has 92 bytes, its name says 96"


# All of them: whatever the bytes are, an error is one that a user can read.


@pytest.mark.parametrize("seed", range(40))
def test_damage_anywhere_is_named(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    makers: list[FormatContract] = [
        TestRknn(),
        TestQnn(),
        TestTpuMlir(),
        TestPolygraphy(),
        TestTorchFile(),
        TestMsprobe(),
    ]
    maker = makers[seed % len(makers)]
    path = maker.write(tmp_path, maker.tensors())
    files = sorted(file for file in tmp_path.rglob("*") if file.is_file())
    file = files[int(rng.integers(len(files)))]
    content = bytearray(file.read_bytes())
    if seed % 2:
        content = content[: int(rng.integers(len(content) + 1))]
    else:
        for _ in range(8):
            content[int(rng.integers(len(content)))] = int(rng.integers(256))
    file.write_bytes(content)
    try:
        source = FORMATS[maker.format].open(path)
    except BadInput:
        return
    for info in source.tensors:
        for sample in source.samples:
            with contextlib.suppress(BadInput):
                assert source.read(info.name, sample) is not None
