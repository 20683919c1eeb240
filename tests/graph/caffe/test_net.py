"""Nets as text: old forms, phases, inputs, blobs in place, layers that are dropped, and what is refused."""

import contextlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.core.tensors import Array
from roundoff.core.text_proto import TextEntry, TextMessage, parse_text_proto
from roundoff.errors import BadInput
from roundoff.graph.caffe import conversion as registry
from roundoff.graph.caffe.conversion import LayerJob, layer_types, register_layer
from roundoff.graph.caffe.convert import Imported, import_caffe
from roundoff.graph.caffe.net import blob_message, read_net, read_prototxt
from roundoff.graph.caffe.wire import encode, text_table
from tests.graph.caffe.nets import NetText, run_all, values, weights_bytes

Blobs = tuple[str, list[Array]]
DATA = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 8 dim: 8 } } }\n'


def converted(folder: Path, text: str, **blobs: Blobs) -> Imported:
    (folder / "net.prototxt").write_text(text)
    (folder / "net.caffemodel").write_bytes(weights_bytes(blobs))
    return import_caffe(folder / "net.prototxt", folder / "net.caffemodel")


def refused(folder: Path, text: str, **blobs: Blobs) -> str:
    with pytest.raises(BadInput) as caught:
        converted(folder, text, **blobs)
    return str(caught.value)


# Old forms.

NEW = """
input: "data"
input_shape { dim: 1 dim: 3 dim: 8 dim: 8 }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 pad: 1 } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool"
  pooling_param { pool: AVE kernel_size: 2 stride: 2 } }
layer { name: "norm" type: "LRN" bottom: "pool" top: "norm" lrn_param { local_size: 3 alpha: 0.5 } }
layer { name: "drop" type: "Dropout" bottom: "norm" top: "norm" dropout_param { dropout_ratio: 0.3 } }
layer { name: "fc" type: "InnerProduct" bottom: "norm" top: "fc" inner_product_param { num_output: 5 } }
layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }
"""
V1 = """
input: "data"
input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8
layers { name: "conv" type: CONVOLUTION bottom: "data" top: "conv" blobs_lr: 1 blobs_lr: 2 weight_decay: 1
  convolution_param { num_output: 4 kernel_size: 3 pad: 1 } }
layers { name: "relu" type: RELU bottom: "conv" top: "conv" }
layers { name: "pool" type: POOLING bottom: "conv" top: "pool"
  pooling_param { pool: AVE kernel_size: 2 stride: 2 } }
layers { name: "norm" type: LRN bottom: "pool" top: "norm" lrn_param { local_size: 3 alpha: 0.5 } }
layers { name: "drop" type: DROPOUT bottom: "norm" top: "norm" dropout_param { dropout_ratio: 0.3 } }
layers { name: "fc" type: INNER_PRODUCT bottom: "norm" top: "fc" inner_product_param { num_output: 5 } }
layers { name: "prob" type: SOFTMAX bottom: "fc" top: "prob" }
"""
V0 = """
input: "data"
input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8
layers { layer { name: "pad" type: "padding" pad: 1 } bottom: "data" top: "padded" }
layers { layer { name: "conv" type: "conv" num_output: 4 kernelsize: 3 blobs_lr: 1. }
  bottom: "padded" top: "conv" }
layers { layer { name: "relu" type: "relu" } bottom: "conv" top: "conv" }
layers { layer { name: "pool" type: "pool" pool: AVE kernelsize: 2 stride: 2 } bottom: "conv" top: "pool" }
layers { layer { name: "norm" type: "lrn" local_size: 3 alpha: 0.5 } bottom: "pool" top: "norm" }
layers { layer { name: "drop" type: "dropout" dropout_ratio: 0.3 } bottom: "norm" top: "norm" }
layers { layer { name: "fc" type: "innerproduct" num_output: 5 } bottom: "norm" top: "fc" }
layers { layer { name: "prob" type: "softmax" } bottom: "fc" top: "prob" }
"""


@pytest.mark.parametrize("text", [V1, V0], ids=["V1", "V0"])
def test_old_forms_compute_what_the_new_one_does(text: str, tmp_path: Path) -> None:
    blobs = {
        "conv": ("Convolution", [values(4, 3, 3, 3), values(4, seed=1)]),
        "fc": ("InnerProduct", [values(5, 64, seed=2), values(5, seed=3)]),
    }
    data = {"data": values(1, 3, 8, 8, seed=4)}
    wanted = run_all(converted(tmp_path, NEW, **blobs).model, data)
    found = run_all(converted(tmp_path, text, **blobs).model, data)
    assert found.keys() == wanted.keys()
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (V1 + DATA, "in the old form"),
        (V0.replace('type: "lrn"', 'type: "lrm"'), "did you mean 'lrn'"),
        (V0.replace('type: "relu" }', 'type: "relu" num_output: 3 }'), "'num_output' means nothing"),
        (V0.replace('type: "conv"', 'type: "relu"').replace("num_output: 4 kernelsize: 3", ""), "padding layer"),
        (V1.replace("type: RELU", "type: RELO"), "takes one of NONE, ABSVAL"),
        (NEW.replace("dim: 8 }\n", "dim: 8 } input_shape { dim: 1 }\n"), "has 1 inputs, but 2 shapes"),
        (V1.replace("input_dim: 1 ", ""), "3 values of input_dim"),
    ],
)
def test_wrong_old_forms_are_refused(text: str, told: str, tmp_path: Path) -> None:
    assert told in refused(tmp_path, text)


FORKED = """
input: "data"
input_dim: 1 input_dim: 3 input_dim: 9 input_dim: 7
layers { name: "conv" type: CONVOLUTION bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 pad: 1 stride: 2 } }
layers { name: "prelu" type: PRELU bottom: "conv" top: "conv" prelu_param { channel_shared: true } }
layers { name: "up" type: DECONVOLUTION bottom: "conv" top: "up"
  convolution_param { num_output: 2 kernel_size: 4 stride: 2 } }
layers { name: "crop" type: CROP bottom: "up" bottom: "data" top: "score" }
"""


def test_types_that_forks_added_to_the_old_form_are_known_by_their_names(tmp_path: Path) -> None:
    """As the first FCN and DeepLab nets have them; in their files such a type is a number of the fork's own."""
    conv, slope, up = (values(4, 3, 3, 3), values(4, seed=1)), values(1, seed=2), values(4, 2, 4, 4, seed=3)
    stored = {"conv": (4, conv), "prelu": (4711, (slope,)), "up": (39, (up, values(2, seed=4))), "crop": (40, ())}
    entries = [
        TextEntry("layers", TextMessage((
            TextEntry("name", name), TextEntry("type", kind),
            *(TextEntry("blobs", blob_message(blob)) for blob in blobs),
        )))
        for name, (kind, blobs) in stored.items()
    ]  # fmt: skip
    (tmp_path / "net.prototxt").write_text(FORKED)
    (tmp_path / "net.caffemodel").write_bytes(b"".join(encode(TextMessage(tuple(entries)), "NetParameter")))
    found = run_all(
        import_caffe(tmp_path / "net.prototxt", tmp_path / "net.caffemodel").model,
        {"data": (data := values(1, 3, 9, 7, seed=5))},
    )
    net = NetText({"data": (1, 3, 9, 7)})
    net.add(
        "Convolution",
        "conv",
        "data",
        "",
        "convolution_param { num_output: 4 kernel_size: 3 pad: 1 stride: 2 }",
        conv,
    )
    net.add("PReLU", "prelu", "conv", "conv", "prelu_param { channel_shared: true }", [slope])
    net.add(
        "Deconvolution", "up", "conv", "", "convolution_param { num_output: 2 kernel_size: 4 stride: 2 }",
        [up, values(2, seed=4)],
    )  # fmt: skip
    net.add("Crop", "crop", ["up", "data"], "score")
    wanted = run_all(net.load(tmp_path).model, {"data": data})
    assert found["score"].shape == (1, 2, 9, 7)
    assert np.array_equal(found["score"], wanted["score"])


# Phases, inputs, dropped layers.

TRAIN_AND_TEST = """
layer { name: "train" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  transform_param { crop_size: 8 mirror: true } data_param { source: "x" batch_size: 64 backend: LMDB } }
layer { name: "test" type: "Data" top: "data" top: "label" include { phase: TEST }
  transform_param { crop_size: 8 } data_param { source: "y" batch_size: 10 backend: LMDB } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "noise" type: "Dropout" bottom: "conv" top: "conv" exclude { phase: TEST } }
layer { name: "staged" type: "ReLU" bottom: "conv" top: "conv" include { stage: "deploy" } }
layer { name: "accuracy" type: "Accuracy" bottom: "conv" bottom: "label" top: "accuracy" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "conv" bottom: "label" top: "loss" }
layer { name: "scaled" type: "Power" bottom: "loss" top: "scaled" }
"""


def test_training_is_left_out_and_listed(tmp_path: Path) -> None:
    imported = converted(tmp_path, TRAIN_AND_TEST, conv=("Convolution", [values(4, 2, 3, 3), values(4)]))
    graph = imported.model.proto.graph
    assert [node.name for node in graph.node] == ["conv"]
    assert [value.name for value in graph.output] == ["conv"]
    dims = [dim.dim_value or dim.dim_param for dim in graph.input[0].type.tensor_type.shape.dim]
    assert dims == ["N", 2, 8, 8]  # the channels are those of the first weights
    assert {dropped.name: dropped.why for dropped in imported.dropped} == {
        "train": "belongs to another phase",
        "noise": "belongs to another phase",
        "staged": "belongs to another phase",
        "accuracy": "serves training or scoring",
        "loss": "serves training or scoring",
        "scaled": "reads 'loss' of a dropped layer",
        "label": "is read by no layer that runs",
    }


def test_what_forks_train_with_is_left_out_and_what_they_read_are_inputs(tmp_path: Path) -> None:
    text = """default_forward_type: FLOAT16
    layer { name: "d" type: "VideoData" top: "data" top: "label" video_data_param { source: "x" } }
    layer { name: "relu" type: "ReLU" bottom: "data" top: "relu" forward_type: FLOAT }
    layer { name: "focal" type: "FocalLoss" bottom: "relu" bottom: "label" top: "focal" loss_weight: 2 }
    layer { name: "own" type: "Python" bottom: "relu" bottom: "label" top: "own"
            python_param { module: "m" layer: "RankLossLayer" } }
    layer { name: "file" type: "MatWrite" bottom: "relu" mat_write_param { prefix: "x" } }"""
    assert "(VideoData) does not say how large its blob 'data' is" in refused(tmp_path, text)
    path = tmp_path / "net.prototxt"
    imported = import_caffe(path, None, shapes={"data": (2, 3, 4, 6, 6)})
    assert [node.name for node in imported.model.proto.graph.node] == ["relu"]
    assert [value.name for value in imported.model.proto.graph.input] == ["data"]
    assert [each.name for each in imported.dropped] == ["focal", "own", "file", "label"]


def test_stages_and_levels_follow_the_state_of_the_net(tmp_path: Path) -> None:
    text = 'state { level: 2 stage: "deploy" }\n' + DATA
    text += 'layer { name: "a" type: "ReLU" bottom: "data" top: "a" include { stage: "deploy" min_level: 2 } }\n'
    text += 'layer { name: "b" type: "ReLU" bottom: "a" top: "b" include { max_level: 1 } }\n'
    text += 'layer { name: "c" type: "ReLU" bottom: "a" top: "c" exclude { not_stage: "other" } }\n'
    imported = converted(tmp_path, text)
    assert [node.name for node in imported.model.proto.graph.node] == ["a"]


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        ('type: "MemoryData" memory_data_param { batch_size: 2 channels: 3 height: 8 width: 9 }', ["N", 3, 8, 9]),
        ('type: "DummyData" dummy_data_param { shape { dim: 2 dim: 1 dim: 8 dim: 9 } }', ["N", 1, 8, 9]),
        ('type: "DummyData" dummy_data_param { num: 2 channels: 3 height: 8 width: 9 }', ["N", 3, 8, 9]),
        ('type: "ImageData" image_data_param { source: "x" new_height: 6 new_width: 7 }', ["N", 3, 6, 7]),
    ],
)
def test_layers_that_bring_data_become_inputs(layer: str, shape: list[int | str], tmp_path: Path) -> None:
    text = f'layer {{ name: "d" top: "data" {layer} }}\n'
    text += 'layer { name: "relu" type: "ReLU" bottom: "data" top: "relu" }'
    graph = converted(tmp_path, text).model.proto.graph
    assert [dim.dim_value or dim.dim_param for dim in graph.input[0].type.tensor_type.shape.dim] == shape


# Blobs in place.


def test_every_version_of_a_blob_has_a_name(tmp_path: Path) -> None:
    net = NetText().add("Power", "double", "data", params="power_param { scale: 2 }")
    net.add("ReLU", "relu", "double", "double").add(
        "Power", "shift", "double", "double", "power_param { shift: 1 }"
    )
    data = values(1, 3, 8, 8)
    found = run_all(net.load(tmp_path).model, {"data": data})
    assert list(found) == ["double", "double#double", "double#relu"]
    assert np.array_equal(found["double#double"], data * 2)
    assert np.array_equal(found["double#relu"], np.maximum(data * 2, 0))
    assert np.array_equal(found["double"], np.maximum(data * 2, 0) + 1)


def test_an_input_changed_in_place_is_fed_by_its_name(tmp_path: Path) -> None:
    net = NetText().add("Power", "scale", "data", "data", "power_param { scale: 2 }").add("ReLU", "relu", "data")
    data = values(1, 3, 8, 8)
    found = run_all(net.load(tmp_path).model, {"data": data})
    assert np.array_equal(found["data#scale"], data * 2)
    assert np.array_equal(found["relu"], np.maximum(data * 2, 0))


def test_names_of_steps_get_out_of_the_way(tmp_path: Path) -> None:
    net = NetText().add("Scale", "s", "data", "s", "scale_param { bias_term: true }", [values(3), values(3)])
    net.add("ReLU", "s/scaled", "s").add("ReLU", "s/bias", "s/scaled")
    model = net.load(tmp_path).model
    types = {node.name: node.op_type for node in model.proto.graph.node}
    assert (types["s"], types["s/scaled"], types["s/bias"]) == ("Add", "Relu", "Relu")
    assert {"s", "s/scaled", "s/bias"} <= run_all(model, {"data": values(1, 3, 8, 8)}).keys()


# What is refused.

CONV = ('layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"\n'
        "  convolution_param { num_output: 4 kernel_size: 3 } }\n")  # fmt: skip
GOOD = [values(4, 3, 3, 3), values(4)]
WIDE = [values(4, 3, 9, 9), values(4)]
RANDOM = ('layer { name: "p" type: "Pooling" bottom: "data" top: "p"\n'
          "  pooling_param { pool: STOCHASTIC kernel_size: 2 } }")  # fmt: skip
BOTH = 'layer { name: "a" type: "ReLU" include { phase: TEST } exclude { phase: TEST } }'


@pytest.mark.parametrize(
    ("text", "blobs", "told"),
    [
        (DATA + CONV, {}, "needs blob 0, but"),
        (DATA + CONV, {"other": ("Convolution", GOOD)}, "has none for it"),
        (DATA + CONV, {"conv": ("Convolution", GOOD[:1])}, "needs blob 1, but"),
        (DATA + CONV, {"conv": ("Convolution", [values(4, 2, 3, 3), values(4)])}, "in the shape 4x3x3x3, but in"),
        (DATA + CONV.replace('"data"', '"dota"'), {}, "line 2: layer 'conv' reads blob 'dota'"),
        (DATA + CONV.replace("Convolution", "Convolutoin"), {}, "did you mean 'Convolution'?"),
        (DATA + CONV.replace("kernel_size", "kernel_sise"), {}, "line 3: ConvolutionParameter has no field"),
        (DATA + CONV.replace("num_output: 4", ""), {"conv": ("Convolution", GOOD)}, "needs 'num_output'"),
        (DATA + CONV.replace("kernel_size: 3", "kernel_size: 9"), {"conv": ("Convolution", WIDE)}, "1x4x0x0"),
        (DATA + CONV.replace("num_output: 4", "num_output: 4 pad: -1"), {"conv": ("C", GOOD)}, "below zero"),
        (DATA + 'layer { name: "u" type: "Upsample" bottom: "data" bottom: "data" top: "u"\n'
         "  upsample_param { upsample_h: 9999999999 upsample_w: 9999999999 } }", {}, "beyond 64 bits"),
        (DATA + CONV + CONV, {"conv": ("Convolution", GOOD)}, "which another layer writes already"),
        (DATA, {}, "computes nothing"),
        (DATA.replace("dim: 8", ""), {}, "computes nothing"),
        (DATA.replace("dim: 1", "dim: 0") + CONV, {}, "does not say how large its blob 'data' is"),
        ('layer { name: "x" }', {}, "has no type"),
        (DATA.replace("dim: 8 dim: 8", "dim: 99999999 dim: 99999999")
         + 'layer { name: "r" type: "ReLU" bottom: "data" top: "r" }', {}, "would compute a blob of the shape"),
        ("layer {" * 100, {}, "nested more than 64 deep"),
        (DATA + RANDOM, {}, "at random"),
        ("layer { " + "top: 'x' " * ((1 << 17) + 1) + "}", {}, "absurdly many"),
        (BOTH, {}, "rules to include"),
    ],
    ids=range(21),
)  # fmt: skip
def test_bad_nets_are_refused(text: str, blobs: dict[str, Blobs], told: str, tmp_path: Path) -> None:
    assert told in refused(tmp_path, text, **blobs)


def test_an_unknown_layer_names_itself_its_line_and_what_is_known(tmp_path: Path) -> None:
    text = refused(tmp_path, DATA + 'layer { name: "mine" type: "FancyLayer" bottom: "data" top: "mine" }')
    assert "line 2: layer 'mine' is of the type 'FancyLayer'" in text
    assert all(kind in text for kind in layer_types())
    assert "register_layer" in text


def test_files_that_are_no_nets_are_refused(tmp_path: Path) -> None:
    prototxt, caffemodel = NetText().add("ReLU", "relu", "data").write(tmp_path)
    for content, told in ((b"", "is empty"), (b"\xff\xfe\x00", "is not text"), (b"hello", "no field 'hello'")):
        (tmp_path / "bad.prototxt").write_bytes(content)
        with pytest.raises(BadInput, match=told):
            read_net(tmp_path / "bad.prototxt", caffemodel)
    for content, told in ((b"", "is empty"), (DATA.encode(), "damaged"), (b"\x0a\x03net", "holds no layers")):
        (tmp_path / "bad.caffemodel").write_bytes(content)
        with pytest.raises(BadInput, match=told):
            read_net(prototxt, tmp_path / "bad.caffemodel")
    with pytest.raises(BadInput, match="does not exist"):
        read_net(prototxt, tmp_path / "missing.caffemodel")


def test_a_blob_of_another_size_than_it_says_is_refused(tmp_path: Path) -> None:
    prototxt, caffemodel = NetText().add("PReLU", "p", "data", blobs=[values(3)]).write(tmp_path)
    caffemodel.write_bytes(caffemodel.read_bytes().replace(b"\x08\x03", b"\x08\x7f"))
    with pytest.raises(BadInput, match="blob 0 of layer 'p' has the shape 127, but 3 values are stored"):
        read_net(prototxt, caffemodel)


# One's own layers.


def test_users_register_layers_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_OWN", {})

    def triple(job: LayerJob) -> None:
        own = job.layer.message.message("triple_param") or TextMessage()
        factor = job.floats(own.get("factor", 3), "factor")
        job.top("Mul", [job.bottoms[0].name, factor], job.bottoms[0].shape)

    register_layer("Triple", triple)
    net = NetText().add("Triple", "t", "data", params="triple_param { factor: 4.5 }")
    data = values(1, 3, 8, 8)
    assert np.array_equal(run_all(net.load(tmp_path).model, {"data": data})["t"], data * np.float32(4.5))


def test_every_layer_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "formats" / "caffe.md").read_text("utf-8")
    assert [kind for kind in layer_types() if f"`{kind}`" not in page] == []


def test_layers_of_one_name_are_noted(tmp_path: Path) -> None:
    net = NetText().add("ReLU", "relu", "data", "a").add("ReLU", "relu", "a", "b")
    imported = net.load(tmp_path)
    assert [node.name for node in imported.model.proto.graph.node] == ["relu", "relu_2"]
    assert "2 layers are called 'relu'; all but the first got another name" in imported.notes


def test_unknown_parameters_are_noted(tmp_path: Path) -> None:
    net = NetText().add("ReLU", "relu", "data", params="fancy_param { x: 1 }")
    assert any("'fancy_param'" in note for note in net.load(tmp_path).notes)


# Any text.

words = st.sampled_from(["layer", "{", "}", ":", "name", '"a"', "1", "-3", "1e9", "[", "]", ",", "type", "<", ">",
                         "top", "bottom", "input", "input_dim", "layers", "shape", "dim", "#", "\n", "'", "TEST",
                         "include", "phase", "blobs", "data", "pooling_param", "0x", "\\"])  # fmt: skip


@given(st.one_of(st.text(max_size=80), st.lists(words, max_size=40).map(" ".join)))
@settings(max_examples=500)
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(BadInput):
        parse_text_proto(text, text_table("NetParameter"), what="net.prototxt")


@given(data=st.data())
@settings(max_examples=150)
def test_a_damaged_net_is_converted_or_refused(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lines = NEW.split(" ")
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(lines) - 1))
        lines[place] = data.draw(st.one_of(st.just(""), words, st.sampled_from(lines)))
    folder = tmp_path_factory.mktemp("net")
    (folder / "net.prototxt").write_text(" ".join(lines))
    try:
        import_caffe(folder / "net.prototxt", None)
        read_prototxt(folder / "net.prototxt")
    except BadInput:
        pass
