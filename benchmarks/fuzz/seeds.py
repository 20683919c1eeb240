"""Valid documents to begin with, one of each kind, as our own commands or the vendors' tools write them."""

import hashlib
import io
import json
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from PIL import Image

Tree = Mapping[str, bytes]
"""A folder: what its files hold, by their paths in it."""


# Seeds: one valid document of each kind, as our own commands or the vendors' tools write them.


def small_model() -> bytes:
    """A network of five nodes."""
    from onnx import TensorProto, helper, numpy_helper

    from roundoff.graph.nodes import make_model

    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
        for name, shape in {"w": (4, 3, 3, 3), "b": (4,), "v": (5, 4)}.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flat"),
        helper.make_node("Gemm", ["f", "v"], ["y"], name="fc", transB=1),
    ]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 8, 8]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 5]),
    ]
    return bytes(make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)).SerializeToString())


def small_lite() -> bytes:
    """A .tflite file: one Conv with Relu in 8 bits, 1x4x4x2 to 1x4x4x3, scales 0.1, 0.02 and 0.05."""
    import flatbuffers

    builder = flatbuffers.Builder(1024)

    def table(count: int, **fields: tuple[str, int]) -> int:
        builder.StartObject(count)
        for name, (kind, value) in fields.items():
            slot = int(name.removeprefix("f"))
            if kind == "ref":
                builder.PrependUOffsetTRelativeSlot(slot, value, 0)
            else:
                getattr(builder, f"Prepend{kind}Slot")(slot, value, 0)
        return int(builder.EndObject())

    def tables(places: list[int]) -> int:
        builder.StartVector(4, len(places), 4)
        for place in reversed(places):
            builder.PrependUOffsetTRelative(place)
        return int(builder.EndVector())

    def numbers(values: Any, dtype: str) -> int:
        return int(builder.CreateNumpyVector(np.asarray(values, dtype)))

    weights = np.random.default_rng(0).integers(-127, 128, (3, 3, 3, 2)).astype(np.int8)
    stored = [np.zeros(0, np.uint8), weights.ravel().view(np.uint8), np.arange(3, dtype="<i4").view(np.uint8)]
    buffers = tables([table(1, f0=("ref", numbers(each, "uint8"))) for each in stored])
    made = []
    for name, shape, kind, buffer, scale in (
        ("x", (1, 4, 4, 2), 9, 0, [0.1]),
        ("w", (3, 3, 3, 2), 9, 1, [0.02, 0.01, 0.03]),
        ("b", (3,), 2, 2, [0.002, 0.001, 0.003]),
        ("y", (1, 4, 4, 3), 9, 0, [0.05]),
    ):
        parts = numbers(scale, "float32"), numbers([0] * len(scale), "int64")
        scales = table(7, f2=("ref", parts[0]), f3=("ref", parts[1]))
        places = builder.CreateString(name), numbers(shape, "int32")
        made.append(
            table(5, f0=("ref", places[1]), f1=("Int8", kind), f2=("Uint32", buffer), f3=("ref", places[0]),
                  f4=("ref", scales))
        )  # fmt: skip
    options = table(6, f1=("Int32", 1), f2=("Int32", 1), f3=("Int8", 1))
    ends = numbers([0, 1, 2], "int32"), numbers([3], "int32")
    operator = tables([table(5, f1=("ref", ends[0]), f2=("ref", ends[1]), f3=("Uint8", 1), f4=("ref", options))])
    tensors, entering, leaving = tables(made), numbers([0], "int32"), numbers([3], "int32")
    graph = tables([
        table(4, f0=("ref", tensors), f1=("ref", entering), f2=("ref", leaving), f3=("ref", operator))
    ])  # fmt: skip
    codes = tables([table(4, f0=("Int8", 3), f3=("Int32", 3))])
    builder.Finish(
        table(5, f0=("Uint32", 3), f1=("ref", codes), f2=("ref", graph), f4=("ref", buffers)),
        file_identifier=b"TFL3",
    )
    return bytes(builder.Output())


def saved(save: Callable[[io.BytesIO], object]) -> bytes:
    out = io.BytesIO()
    save(out)
    return out.getvalue()


def archive(mode: Any) -> bytes:
    def save(out: io.BytesIO) -> None:
        with tarfile.open(fileobj=out, mode=mode) as tar:
            for name in ("a.npy", "b/c.npy"):
                data = saved(lambda file: np.save(file, np.arange(6.0)))
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))

    return saved(save)


def zipped() -> bytes:
    def save(out: io.BytesIO) -> None:
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.npy", saved(lambda file: np.save(file, np.arange(6.0))))

    return saved(save)


RULES = b"""[[rule]]
node = ["/head/conv1", "conv*"]
precision = "u16"
[[rule]]
between = { start = "features", end = ["boxes", "scores"] }
precision = { activation = "u16", output = "float" }
[[rule]]
op = "Gemm"
precision = "float"
"""
COSTS = b"product_8x8 = 1.0\nproduct_16x8 = 2.0\nbyte = 0.01\n"
BUDGETS = b'max_regression = "1dB"\n[nodes]\n"head/*" = 0.5\n"a" = { loss = 0.5, at_least = 20 }\n'
PROTOTXT = b"""name: "net"
input: "data"
input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "fc" type: "InnerProduct" bottom: "conv" top: "fc" inner_product_param { num_output: 5 } }
"""
CONFIG = {
    "model_type": "ONNX",
    "npu_mode": "NPU1",
    "quant": {
        "input_configs": [
            {"tensor_name": "DEFAULT", "calibration_dataset": "d.tar", "calibration_size": 4,
             "calibration_mean": [1.0, 2.0, 3.0], "calibration_std": [1.0, 1.0, 1.0]}
        ],
        "layer_configs": [{"op_type": "Add", "data_type": "U16"}],
        "calibration_method": "MinMax",
    },
    "input_processors": [{"tensor_name": "DEFAULT", "tensor_layout": "NHWC", "src_dtype": "U8"}],
    "compiler": {"check": 0},
}  # fmt: skip
TOML = b'model_type = "ONNX"\n[quant]\ncalibration_method = "MinMax"\n'
YAML = b"""model_type: ONNX
quant:
  input_configs:
    - tensor_name: DEFAULT
      calibration_dataset: d.tar
      calibration_size: 4
  layer_configs:
    - {op_type: Add, data_type: U16}
"""
RECORD = b"""record {
  key: "conv"
  value { scale_d: 0.5 offset_d: -3 scale_w: 0.1 scale_w: 0.2 offset_w: 0 offset_w: 0 shift_bit: 1 }
}
"""
HISTORY = (
    b'{"roll_back_config":{"a":true,"b":false},"metric_eval":[true,0.5]}{"ro'
    b'll_back_config":{"a":false},"metric_eval":[false,1e-3]}'
)
TABLE = (
    b"Index,OpType,NPUDump,TensorIndex,OverFlow,CosineSimilarity\n0,Conv,conv"
    b",conv:output:0,NO,0.99\n1,Add,a,a:output:0,NaN,NaN\n"
)
STATS = (
    b"Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Valu"
    b"e,Avg Value,Count,Nan Count\nInput,0,24,float,NCHW,1x3x1x2,1.0,-1,0.5,6"
    b",0\n"
)
PROGRESS = b'{"output": "out", "title": "measuring", "done": 3, "total": 9, "elapsed_s": 4.5, "process": 1}'


def documents(folder: Path) -> dict[str, bytes]:
    """A plan, a run document and statistics of calibration, as `quantize` and `layers` write them here.

    A model and samples are left in the folder, and the quantized model as ``deploy.onnx``.
    """
    import roundoff

    (folder / "m.onnx").write_bytes(small_model())
    np.save(folder / "x.npy", np.random.default_rng(1).standard_normal((4, 3, 8, 8)).astype(np.float32))
    options: Any = {"data": folder / "x.npy", "target": "generic-int8"}
    roundoff.quantize(folder / "m.onnx", **options).save(folder / "q")
    roundoff.layers(folder / "m.onnx", **options).save(folder / "run")
    next((folder / "q").glob("*deploy*.onnx")).rename(folder / "deploy.onnx")
    return {
        "plan": (folder / "q" / "plan.json").read_bytes(),
        "calibration": (folder / "q" / "calibration.npz").read_bytes(),
        "run": (folder / "run" / "run.json").read_bytes(),
    }


ROWS = b'{"sensitivity": {"rankings": {"node": [{"score": {"subject": {"name": "conv"}}}]}}}'
RANKING = b"name,kind,sqnr_db\nconv,node,12.5\n'=fc,node,20\n"
SCORES = b"sample,top1,-loss\na,1,0.5\nb,0,0.25\n"
LAYERS = b'[["conv", 0.5], ["fc", 0.25]]'
AMCT = (
    b'{"version": 1, "batch_num": 1, "activation_offset": true, "do_fusion": true, "skip_fusion_layers": [], '
    b'"conv": {"quant_enable": true, "activation_quant_params": {"max_percentile": 0.999999, "search_range": '
    b'[0.7, 1.3], "search_step": 0.01}, "weight_quant_params": {"channel_wise": true}}}'
)
SIMPLE = b"""batch_num: 2
activation_offset: true
skip_layers: "conv"
common_config { arq_quantize { channel_wise: true } hfmg_quantize { num_of_bins: 1024 } }
override_layer_types { layer_type: "Conv" calibration_config { ifmr_quantize { asymmetric: true } } }
override_layer_configs { layer_name: "fc" calibration_config { arq_quantize { channel_wise: false } } }
"""
LOWERED = (
    b'%1 = "tpu.Conv2D"(%0) : (tensor<1x8xf32>) -> tensor<1x8x!quant.uniform<u8:f32, 5.0e-02>> loc(#loc1)\n'
    b'%2 = "tpu.Add"(%1) : (none) -> tensor<1x8x!quant.uniform<i8:f32, 0.5:-3>> loc(#loc2)\n'
    b'#loc1 = loc("a_Relu")\n#loc2 = loc("b_Add")\n'
)
THRESHOLDS = b"# name threshold min max\na_Relu 4.0 0.0 5.0\nb_Add 2.0 -1.0 3.0\nbad x y z\n"
PRECISIONS = b"# name mode\na_Relu F16\n"
CONFIG_TEXT = b"""input: "m.onnx" model_type: ONNX npu_mode: NPU1
quant { input_configs { tensor_name: "DEFAULT" calibration_dataset: "d.tar" calibration_size: 4 }
  layer_configs { op_type: "Add" data_type: U16 } calibration_method: MinMax }
"""
STAGE = b'{"layers": ["conv"], "batch_num": 1, "record_file": "r.txt", "model": "m.onnx"}'
TOPS = b'{"conv": ["conv", 0], "relu": ["conv", 1]}'
REQUEST = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "targets", "arguments": {}}}'
PROJECT = b"""model = "m.onnx"
target = "generic-int8"
[data]
path = "x.npy"
image-size = "8x8"
mean = [0.5, 0.5, 0.5]
[quantization]
set = ["op:Softmax=u16"]
[goal]
max-drop = "1%"
[limits]
max-memory = "2GB"
"""
JOURNAL = (
    b'{"format": "roundoff-sensitivity", "version": 1}\n{"key": "ab", "shape": [2], "values": [1.5, "nan"]}\n'
)
AIMET = tuple(
    json.dumps(each).encode()
    for each in (
        {
            "version": "0.6.1",
            "activation_encodings": {"c": [
                {"bitwidth": 8, "dtype": "int", "is_symmetric": "False", "max": 1.5, "min": -0.5, "offset": -64,
                 "scale": 0.0078},
            ]},
            "param_encodings": {"w": [
                {"bitwidth": 8, "dtype": "int", "is_symmetric": "True", "max": 1.0, "min": -1.0, "offset": -128,
                 "scale": 0.0078},
            ]},
        },
        {
            "version": "1.0.0",
            "activation_encodings": [
                {"name": "c", "bw": 8, "dtype": "INT", "enc_type": "PER_TENSOR", "is_sym": False, "offset": [-64],
                 "scale": [0.0078]},
            ],
            "param_encodings": [
                {"name": "w", "bw": 8, "dtype": "INT", "enc_type": "PER_CHANNEL", "is_sym": True,
                 "offset": [-128] * 4, "scale": [0.1, 0.2, 0.3, 0.4]},
            ],
        },
    )
)  # fmt: skip


def sealed(body: bytes) -> bytes:
    """A document of a suite's store: behind a line with its hash."""
    return hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def tree(write: Callable[[Path], object]) -> dict[str, bytes]:
    """What a function writes into an empty folder."""
    with tempfile.TemporaryDirectory() as name:
        write(Path(name))
        files = sorted(path for path in Path(name).rglob("*") if path.is_file())
        return {path.relative_to(name).as_posix(): path.read_bytes() for path in files}


def picture(kind: str) -> bytes:
    """A picture of 8 x 8 pixels."""
    pixels = np.random.default_rng(5).integers(0, 256, (8, 8, 3)).astype(np.uint8)
    return saved(lambda out: Image.fromarray(pixels).save(out, kind))


def external_model(folder: Path) -> None:
    """A network whose weights lie beside it."""
    proto = onnx.ModelProto.FromString(small_model())
    onnx.save(proto, folder / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)


def caffe_net(folder: Path) -> None:
    """A net of Caffe with its weights."""
    from tests.graph.caffe.nets import NetText

    rng = np.random.default_rng(6)
    weights = [rng.standard_normal(shape).astype(np.float32) for shape in ((4, 3, 3, 3), (4,))]
    net = NetText()
    net.add(
        "Convolution", "conv", "data", params="convolution_param { num_output: 4 kernel_size: 3 }", blobs=weights
    )
    net.add("ReLU", "relu", "conv", "conv").write(folder)


def search_journal(folder: Path) -> None:
    """The journal of a search."""
    from roundoff.search.store import TrialJournal

    journal = TrialJournal(folder / "journal.sqlite", {"model": "ab"})
    number = journal.recipe("k", "{}")
    journal.add_chunk("k", 0, np.arange(3.0), seconds=float(number))
    journal.add_fact("f", {"a": [1, 2.5, None]})
    journal.close()


def constants(folder: Path) -> None:
    """Constants beside a configuration of Pulsar2."""
    np.save(folder / "a.npy", np.arange(6, dtype=np.float32))
    (folder / "b.txt").write_text("1.5, -2 3e4\n")
    np.arange(6, dtype="<f4").tofile(folder / "c.bin")


def list_of_samples(folder: Path) -> None:
    """Samples, and the list that names them."""
    for name in ("a", "b"):
        np.save(folder / f"{name}.npy", np.zeros((1, 3, 8, 8), np.float32))
    (folder / "samples.txt").write_text("# two\na.npy\nb.npy\n")


def raw_with_manifest(folder: Path) -> None:
    """Raw tensors and the table that says what they are."""
    np.arange(6, dtype=np.float32).tofile(folder / "a.bin")
    np.array([True, False]).tofile(folder / "b.bin")
    (folder / "manifest.csv").write_text("name,dtype,shape,file\na,float32,2x3,a.bin\nb,bool,2,\n")


def rknn(folder: Path) -> None:
    """What accuracy_analysis writes."""
    from tests.tensors.test_tools import write_snapshot

    values = {"x": np.arange(6, dtype=np.float32), "a/b": np.arange(6, dtype=np.float32) * 2}
    write_snapshot(folder, {"golden": values, "simulator": values})
    (folder / "runtime").mkdir()
    (folder / "runtime" / "x.txt").write_text("1.5\n-2\n0\n1\n2\n3\n")
    (folder / "error_analysis.txt").write_text("[Input] x      1.00000 | 0.00000   1.00000 | 0.00000\n")
    (folder / "net.quantization.cfg").write_text(
        "custom_quantize_layers: {}\nquantize_parameters:\n    a/b:\n        qtype: asym\n        dtype: int8\n"
        "        min:\n        -   -1.0\n        max:\n        -   4.1\n        scale:\n        -   0.02\n"
        "        zero_point:\n        -   -78\n    x:\n        dtype: float32\n        min: [0.0]\n"
    )


def qnn(folder: Path) -> None:
    """What qnn-net-run writes, beside what the converter wrote."""
    from tests.tensors.test_tools import coded

    coded(folder, values=(np.arange(12) - 4) * 0.5)
    np.array([1, 2], np.float32).tofile(folder / "in.txt.raw")
    (folder / "input_list.txt").write_text("# inputs\nimage:=in.txt.raw\n")


def tpu_mlir(folder: Path) -> None:
    """What model_runner.py writes, with the lowered graph and the tables."""
    values = np.array([1.5, -2.0, 0.25], np.float32)
    halves = (values.view(np.uint32) >> 16).astype(np.uint16)
    for run in ("top", "tpu"):
        np.savez(folder / f"s3_{run}.npz", x=values, y_Relu=values if run == "top" else halves)
    (folder / "m_tpu.mlir").write_text(
        '%1 = "tpu.Conv2D"(%0) : (tensor<1x3xf32>) -> tensor<1x3x!quant.uniform<u8:f32, 5.0e-02>> loc(#loc1)\n'
        '#loc1 = loc("y_Relu")\n'
    )
    (folder / "m_cali_table").write_text("# name threshold min max\ny_Relu 4.0 0.0 5.0\n")
    (folder / "m_qtable").write_text("# name mode\ny_Relu F16\n")


def polygraphy(folder: Path) -> None:
    """What polygraphy run writes."""
    from tests.tensors.test_tools import polygraphy_runs

    one = {"x": np.array([1, 2], np.float32)}
    (folder / "out.json").write_text(polygraphy_runs(onnxrt=[one, one], trt=[one, one]))


def torch_file(folder: Path) -> None:
    """What torch.save writes of tensors."""
    from tests.tensors.test_tools import write_torch

    write_torch(folder / "t.pt", {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.arange(3)})


def msprobe(folder: Path) -> None:
    """What msprobe dumps: tensors of a step."""
    from tests.tensors.test_tools import msprobe_dump

    msprobe_dump(folder, {"Torch.add.0.output.0": np.array([3, -4], np.float32)}, statistics=False)


def msprobe_statistics(folder: Path) -> None:
    """What msprobe dumps: statistics."""
    from tests.tensors.test_tools import msprobe_dump

    msprobe_dump(folder, {"Torch.add.0.output.0": np.array([3, -4], np.float32)}, statistics=True)


def tidl(folder: Path) -> None:
    """What TIDL traces."""
    name = "tidl_trace_subgraph_0_0001_0001_0001_00001_00002_00004x00003"
    np.arange(24, dtype=np.float32).tofile(folder / f"{name}_float.bin")
    (folder / "subgraph_0_layer_info.txt").write_text("1 1 block/conv\n2 1 other\n")


def ascend_npy(folder: Path) -> None:
    """Golden data under the vendor's names, of which one was too long for the disk."""
    for name in ("conv.0.1600000000000000.npy", "relu.0.1600000000000001.npy", "123.npy"):
        np.save(folder / name, np.arange(6, dtype=np.float32))
    (folder / "mapping.csv").write_text("123.npy,fc.0.1600000000000002.npy\n")


def ascend_dump(folder: Path) -> None:
    """Dumps of a chip, with statistics and a record of long names."""
    from tests.ascend_dumps import item, small_dump, write_dump, write_dumps

    shaped = [item(np.ones((2, 2), np.float32))]
    write_dump(folder / "Op.sliced.8.1.1600000000000008", shaped, attribute='{"thread": 1, "slices": [[0, 1]]}')
    write_dumps(folder, {"conv": np.arange(6, dtype=np.float32).reshape(1, 6), "fc": np.ones((2, 2), np.float16)})
    small_dump(folder / "Op.small.9.1.1600000000000009", np.arange(4, dtype=np.float32))
    (folder / "mapping.csv").write_text("456,Op.long.3.1.1600000000000005\n")
    (folder / "456").write_bytes((folder / "Op.small.9.1.1600000000000009").read_bytes())
    (folder / "Op.stat.4.1.1600000000000006.output.0.ND.csv").write_bytes(STATS)


def ascend_sides(folder: Path) -> None:
    """A comparison: the chip's dump, golden data, and the description of the compiled model."""
    from tests.vendors.ascend.networks import write_sides

    write_sides(folder / "s")


def named_list(folder: Path) -> None:
    """Arrays and a list that names them, without runs."""
    np.save(folder / "a_b.npy", np.arange(6, dtype=np.float32))
    np.save(folder / "c.npy", np.arange(3, dtype=np.float32))
    (folder / "map_name_to_file.txt").write_text("layer_name  file_name\n----\na/b   a_b.npy\nc   c.npy\n")


def codes_and_scales(folder: Path, *, suffix: str) -> None:
    """Codes, and a file that says what they stand for."""
    for name in ("a", "b"):
        np.save(folder / f"{name}.npy", np.arange(6, dtype=np.int8))
    rows = {"a": {"scale": 0.5, "zero_point": 3}, "b": {"scale": 0.25, "zero_point": -1}}
    table = "name,scale,zero_point\n" + "".join(
        f"{name},{row['scale']},{row['zero_point']}\n" for name, row in rows.items()
    )
    (folder / f"scales.{suffix}").write_text(json.dumps({"tensors": rows}) if suffix == "json" else table)


def manifest(folder: Path) -> None:
    """Arrays and a manifest."""
    np.save(folder / "a.npy", np.arange(6, dtype=np.float32))
    entry = {"name": "x/a", "file": "a.npy", "dtype": "float32", "shape": [6], "node": "n", "sample": "s0"}
    (folder / "manifest.json").write_text(json.dumps({"samples": ["s0"], "tensors": [entry]}))


def vendor_build(folder: Path, kind: str) -> None:
    """What `pulsar2 build` reads: a configuration, a model, samples and a constant."""
    values = np.random.default_rng(7).standard_normal((1, 3, 8, 8)).astype(np.float32)
    (folder / "m.onnx").write_bytes(small_model())
    (folder / "d").mkdir()
    for name in ("0", "1"):
        if kind == "NumpyObject":
            np.save(folder / "d" / f"{name}.npy", np.array({"x": values}, dtype=object), allow_pickle=True)
        else:
            values.tofile(folder / "d" / f"{name}.bin")
    asked = {
        "tensor_name": "DEFAULT",
        "calibration_dataset": "d",
        "calibration_size": 2,
        "calibration_format": kind,
    }
    config = {"input": "m.onnx", "output_dir": "out", "target_hardware": "AX650", "model_type": "ONNX",
              "input_shapes": "x:1x3x8x8", "quant": {"input_configs": [asked]}}  # fmt: skip
    (folder / "p.json").write_text(json.dumps(config))


def vendor_calibration(folder: Path) -> None:
    """What `amct calibration` reads: a model, a configuration and batches in raw files."""
    (folder / "m.onnx").write_bytes(small_model())
    (folder / "c.cfg").write_text("batch_num: 1\nactivation_offset: true\n")
    (folder / "bins").mkdir()
    np.random.default_rng(7).standard_normal((1, 3, 8, 8)).astype("<f4").tofile(folder / "bins" / "0.bin")


def openvino(folder: Path) -> None:
    """An IR with its weights."""
    from tests.graph.test_openvino import small_ir

    small_ir(folder)


def suite(folder: Path) -> None:
    """A suite with its model and samples."""
    from tests.suite.zoo import make_zoo

    make_zoo(folder, samples=2)
