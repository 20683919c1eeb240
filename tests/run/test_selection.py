import pytest

from roundoff.errors import BadInput
from roundoff.graph.shapes import Value
from roundoff.run.capture import TensorSelection, select_tensors

VALUES = [Value("image"), *(Value(name, node=f"n_{name}") for name in ("conv1", "block/relu", "conv2", "odd[0]*"))]


def names(*patterns: str) -> tuple[str, ...]:
    return select_tensors(VALUES, patterns).names


def refusal(pattern: str) -> BadInput:
    with pytest.raises(BadInput) as caught:
        select_tensors(VALUES, ["conv*", pattern], hidden={"inner": "If_3"})
    return caught.value


def test_all_without_patterns() -> None:
    assert names() == ("image", "conv1", "block/relu", "conv2", "odd[0]*")


def test_patterns_add_up_in_execution_order_and_are_counted() -> None:
    assert select_tensors(VALUES, ["*relu", "conv*", "conv1"]) == TensorSelection(
        ("conv1", "block/relu", "conv2"), (("*relu", 1), ("conv*", 2), ("conv1", 1))
    )


def test_special_characters_of_a_whole_name_are_taken_as_they_are() -> None:
    assert names("odd[0]*") == ("odd[0]*",)
    assert names("conv[12]") == ("conv1", "conv2")
    assert names("*") == names()


def test_case_matters() -> None:
    assert refusal("CONV1").fix == "did you mean 'conv1'?"


def test_a_pattern_without_a_match_is_an_error_with_the_names_there_are() -> None:
    error = refusal("*relo*")

    assert error.what == "--tensors '*relo*' matches none of the 5 tensors."
    assert error.fix == "choose one of: image, conv1, block/relu, conv2, odd[0]*"


def test_names_of_nodes_and_of_hidden_tensors_are_recognised() -> None:
    assert refusal("n_conv*").fix == "node 'n_conv1' computes tensor 'conv1'; give tensor names, not node names"
    assert refusal("inn*").fix == (
        "'inner' is computed inside node 'If_3' and cannot be seen; take that node's outputs"
    )
