"""What a sweep changes."""

from roundoff.studies.partial.study import named_subjects
from tests.studies.layers.support import demo_network


def test_names_keep_their_order_and_come_once() -> None:
    quantized, _ = demo_network()
    found = named_subjects(quantized, ["logits", "stem/conv", "logits"])
    assert [subject.name for subject in found] == ["logits", "stem/conv"]
    assert found[1].quantizers == ("q:image", "q:stem/conv:weight")


def test_the_operation_is_known_where_one_node_is_meant() -> None:
    quantized, _ = demo_network()
    names = ["stem/conv", "q:stem/conv:weight", "tensor:image", "weight"]
    assert [subject.op_type for subject in named_subjects(quantized, names)] == ["Conv", "Conv", "Conv", ""]
