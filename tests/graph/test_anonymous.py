"""A model under other names computes the same, and says nothing else."""

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from roundoff.errors import BadInput
from roundoff.graph.anonymous import anonymized, texts_of
from roundoff.graph.load import model_from_proto
from roundoff.run.session import open_session
from tests.models import conv_net, value, with_if, wrapped


def outspoken() -> object:
    proto = conv_net("SecretBatch")
    proto.producer_name, proto.doc_string = "SecretMaker", "SecretDoc"
    proto.metadata_props.add(key="SecretKey", value="SecretValue")
    proto.graph.name, proto.graph.doc_string = "SecretGraph", "SecretGraphDoc"
    for node in proto.graph.node:
        node.doc_string = "SecretNodeDoc"
    for tensor in proto.graph.initializer:
        tensor.doc_string = "SecretTensorDoc"
    proto.graph.input[0].doc_string = "SecretInputDoc"
    proto.opset_import.add(domain="secret.domain", version=1)
    return proto


def test_nothing_of_the_author_is_left() -> None:
    model = model_from_proto(outspoken(), path=Path("secret.onnx"))
    said = set(texts_of(model))
    assert {"SecretMaker", "SecretDoc", "SecretValue", "SecretNodeDoc", "image", "Conv1", "SecretBatch"} <= said
    found = anonymized(model)
    content = found.model.proto.SerializeToString()
    assert b"ecret" not in content
    for name in ("image", "relu1", "pooled", "Classifier", "w1", "logits"):
        assert name.encode() not in content or len(name) < 4, name
    assert found.tensors["image"] == "input_0"
    assert found.tensors["logits"] == "output_0"
    assert found.nodes["Conv1"] == "Conv_0"
    assert found.others == {"SecretBatch": "d0"}


@pytest.mark.parametrize("make", [lambda: conv_net(1), with_if])
def test_it_computes_the_same(make: object) -> None:
    model = model_from_proto(make(), path=Path("net.onnx"))  # type: ignore[operator]
    found = anonymized(model)
    random = np.random.default_rng(0)
    feed = {}
    for each in model.proto.graph.input:
        kind = each.type.tensor_type
        shape = [dim.dim_value or 2 for dim in kind.shape.dim]
        values = random.standard_normal(shape).astype(np.float32)
        feed[each.name] = values > 0 if kind.elem_type == TensorProto.BOOL else values
    renamed = {found.tensors[name]: array for name, array in feed.items()}
    for ours, theirs in zip(open_session(model).run(feed), open_session(found.model).run(renamed), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_operations_of_ones_own_are_refused() -> None:
    node = helper.make_node("Secret", ["x"], ["y"], domain="mine")
    proto = wrapped([node], [value("x", (1, 2))], [value("y")], domains={"mine": 1})
    with pytest.raises(BadInput, match="operations of the domain 'mine', whose names would tell"):
        anonymized(model_from_proto(proto, path=Path("net.onnx")))
