"""What is off when a unit is in float."""

from dataclasses import replace

from roundoff.core.quantizers import Consumer, Quantizer
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.studies.layers.experiments import UnitParts, switched_on
from tests.studies.layers.support import demo_network, quantizer_of


def tensors(quantized: QuantizedModel, names: frozenset[str]) -> set[str]:
    return {each.tensor for each in quantized.quantizers if each.name in names}


def test_a_unit_has_its_weights_and_what_it_writes_and_not_what_it_reads() -> None:
    quantized, _ = demo_network()
    parts = UnitParts(quantized, {}).of("block2/relu", "block2/pointwise")
    assert tensors(quantized, parts.result) == {"block2/relu"}
    assert "block2/pointwise/weight" in tensors(quantized, parts.weights)
    assert not any(name in tensors(quantized, parts.all) for name in ("block1/relu", "block2/depthwise_relu6"))
    assert parts.rule("block2/pointwise") == "block2/pointwise=weight=float"


def test_an_input_of_the_network_has_nothing_but_its_quantizer() -> None:
    quantized, _ = demo_network()
    parts = UnitParts(quantized, {}).of("image", "")
    assert (tensors(quantized, parts.all), parts.inside) == ({"image"}, frozenset())


def test_what_is_made_of_a_tensor_is_in_float_with_it() -> None:
    quantized, _ = demo_network()
    chain = {"b": ("stem/relu",), "block1/relu": ("b",)}
    parts = UnitParts(quantized, chain).of("stem/relu", "stem/conv")
    assert tensors(quantized, parts.result) == {"stem/relu", "block1/relu"}


def test_a_copy_for_one_reader_belongs_to_the_tensor_and_to_the_reader() -> None:
    quantized, _ = demo_network()
    first = quantizer_of(quantized, "stem/relu")
    reader = first.consumers[0].node
    copy = replace(first, name="again", after=first.name, consumers=(first.consumers[0],))
    others = tuple(each for each in quantized.quantizers if each is not first)
    changed = replace(quantized, quantizers=(*others, replace(first, consumers=first.consumers[1:]), copy))
    parts = UnitParts(changed, {})
    assert parts.of("anything", reader).copies == {"again"}
    assert parts.of("anything", reader).rule(reader) == f"{reader}=float"
    assert "again" in parts.of("stem/relu", "stem/conv").result


def _quantizer(name: str, kind: str, position: int) -> Quantizer:
    quantized, _ = demo_network()
    some = quantizer_of(quantized, "stem/relu")
    return replace(some, name=name, tensor=name, kind=kind, consumers=(Consumer("conv", position),))  # type: ignore[arg-type]


def test_a_bias_goes_with_the_input_or_the_weight_it_has_its_scale_from() -> None:
    everything = [_quantizer("x", "activation", 0), _quantizer("w", "weight", 1), _quantizer("b", "bias", 2)]
    for off, left in (((), "xwb"), (("x",), "w"), (("w",), "x"), (("b",), "xw")):
        assert [each.name for each in switched_on(everything, off)] == list(left)
