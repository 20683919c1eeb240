"""The parts of transformers are recognised in every form that exporters write, and in no CNN."""

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from roundoff.graph.load import load_model
from roundoff.graph.preparation.steps import prepare
from roundoff.graph.transformers import find_parts
from tests.graph.transformer_nets import Form, feeds, transformer
from tests.models import IMAGE, conv_net, loaded, residual, value, weight, wrapped

SHARED = Path(__file__).parents[2].parent / "shared" / "models"
INFINITE = float("-inf")

FORMS = {
    "bert-old": Form("multiplied", norm="spelled"),
    "bert-tensorflow": Form("multiplied", norm="tensorflow"),
    "bert-hf5": Form("where", norm="fused"),
    "bert-1e4": Form("multiplied", value=-1e4),
    "sdpa-inf": Form("where", value=INFINITE, scale="roots", guarded=True),
    "causal": Form("causal", scale="mul", pre_norm=True),
    "t5": Form("mixed", norm="rms", scale="none", pre_norm=True),
    "selected": Form("selected", value=-1e9),
    "two-masks": Form("two", scale="mul"),
    "fed": Form("fed"),
    "llama": Form("causal", norm="rms", scale="mul", gelu="swish", pre_norm=True, rotary=True, shared_keys=True),
    "llama-cache": Form(
        "none", norm="rms", gelu="swish", pre_norm=True, rotary=True, shared_keys=True, cached=True
    ),
    "vit": Form("none", pre_norm=True, images=True, gelu="tanh"),
    "encoder": Form("expanded", value=INFINITE, scale="roots"),
    "lowered": Form("lowered", value=-1e9),
    "logarithm": Form("logarithm"),
    "gpt2-tensorflow": Form("subtracted", value=-1e10, pre_norm=True),
    "deberta": Form("flattened"),
    "swin2": Form("none", scale="heads", images=True),
    "shape-scale": Form("where", scale="shape"),
    "jax": Form("where", softmax="spelled", norm="spelled"),
    "jax-causal": Form("causal", softmax="spelled", pre_norm=True),
    "masked-powers": Form("none", softmax="masked", images=True),
    "rms-fused": Form("none", norm="rms_fused", pre_norm=True),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("prepared", [False, True], ids=["as-is", "prepared"])
def test_every_part_is_counted(name: str, prepared: bool) -> None:
    form = FORMS[name]
    model = transformer(form)
    found = find_parts(prepare(model).model if prepared else model)
    assert len(found.attentions) == form.layers
    norms = 2 * form.layers + (1 if form.pre_norm or not form.images else 0)
    assert len(found.norms) == norms
    assert {norm.name for norm in found.norms} == {"rmsnorm" if form.norm.startswith("rms") else "layernorm"}
    gains = {node.name for node in model.proto.graph.node if any(name.startswith("gain") for name in node.input)}
    assert gains <= {name for norm in found.norms for name in norm.nodes}
    assert len(found.activations) == form.layers
    assert len(found.residual_adds) == 2 * form.layers
    assert len(found.rotary) == (2 * form.layers if form.rotary else 0)
    assert len(found.caches) == (2 * form.layers if form.cached else 0)
    words = not form.images
    assert len(found.embeddings) == (0 if not words else 1 if form.rotary else 2)
    # Of words with positions, or of patches with them.
    assert len(found.embedding_adds) == (0 if form.rotary else 1)


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("bert-old", ["mask"]),
        ("bert-hf5", ["mask"]),
        ("bert-1e4", ["mask"]),
        ("sdpa-inf", ["mask"]),
        ("causal", ["mask"]),
        ("t5", ["mask"]),
        ("selected", ["mask"]),
        ("two-masks", ["mask", "mask"]),
        ("fed", ["unknown"]),
        ("vit", []),
        ("encoder", ["mask"]),
        ("lowered", ["unknown"]),
        ("logarithm", ["unknown"]),
        ("gpt2-tensorflow", ["mask"]),
        ("deberta", ["bias", "mask"]),
        ("jax", ["mask"]),
        ("jax-causal", ["mask"]),
        ("masked-powers", []),
    ],
)
def test_what_is_added_to_scores(name: str, kinds: list[str]) -> None:
    for part in find_parts(transformer(FORMS[name])).attentions:
        assert [each.kind for each in part.operands] == kinds
        assert all(each.selected == (name == "selected") for each in part.operands)
        assert all(each.subtracted == (name == "gpt2-tensorflow") for each in part.operands)


def test_a_learned_bias_is_no_mask() -> None:
    (first, _) = find_parts(transformer(Form("mixed", value=-20.0))).attentions
    assert [each.kind for each in first.operands] == ["bias"]


def test_whole_numbers_are_plumbing() -> None:
    model = transformer(FORMS["llama"])
    plumbing = find_parts(model).plumbing
    ops = {node.op_type for node in model.proto.graph.node if node.name in plumbing}
    assert {"Shape", "Range"} <= ops
    assert not ops & {"MatMul", "Softmax", "Add"}


def test_the_stream_asks_for_norms_or_attention() -> None:
    found = find_parts(transformer(FORMS["vit"]))
    assert set(found.residual_adds) < set(found.stream)
    assert all(name in found.stream for norm in found.norms for name in norm.nodes)


@pytest.mark.parametrize("name", FORMS)
def test_the_forms_run(name: str) -> None:
    """What is recognised is a network that can be run, not a drawing of one."""
    import onnxruntime as ort

    if name == "rms-fused":
        pytest.skip("this onnxruntime may not know the operation yet")
    model = transformer(FORMS[name])
    session = ort.InferenceSession(model.proto.SerializeToString())
    for feed in feeds(model, 2):
        assert np.isfinite(session.run(None, feed)[0]).all()


@pytest.mark.parametrize(
    ("file", "attentions", "norms"),
    [("vittrack/*.onnx", 3, 7), ("mobilenet_v1_0.25_224/*.onnx", 0, 0)],
)
def test_real_networks(file: str, attentions: int, norms: int | None) -> None:
    paths = sorted(SHARED.glob(file))
    if not paths:
        pytest.skip(f"{file} is not on this machine")
    found = find_parts(load_model(paths[0]))
    assert len(found.attentions) == attentions
    assert norms is None or len(found.norms) == norms


def test_squeeze_and_excite_is_no_norm_and_no_attention(tmp_path: Path) -> None:
    node = helper.make_node
    nodes = [
        node("Conv", ["image", "w1"], ["a"], name="stem", pads=[1] * 4),
        node("ReduceMean", ["a"], ["mean"], name="squeeze", axes=[2, 3]),
        node("Conv", ["mean", "w2"], ["b"], name="excite"),
        node("Sigmoid", ["b"], ["gate"], name="gate"),
        node("Mul", ["a", "gate"], ["gated"], name="scale"),
        node("Add", ["gated", "image"], ["sum"], name="add"),
        node("GlobalAveragePool", ["sum"], ["pooled"], name="pool"),
        node("Flatten", ["pooled"], ["flat"], name="flat"),
        node("Gemm", ["flat", "w3"], ["logits"], name="head"),
        node("Softmax", ["logits"], ["classes"], name="classes"),
    ]
    weights = [weight("w1", 3, 3, 3, 3), weight("w2", 3, 3, 1, 1), weight("w3", 3, 5)]
    excited = wrapped(nodes, [value("image", IMAGE)], [value("classes")], weights)
    for proto in (excited, conv_net(), residual()):
        found = find_parts(loaded(proto, tmp_path))
        assert not found.attentions
        assert not found.norms
        assert not found.stream
