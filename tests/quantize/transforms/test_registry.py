"""Names, options and nodes of steps; undoing."""

import numpy as np
import pytest

from roundoff.core.plan import Step
from roundoff.errors import BadInput
from roundoff.messages.message import verbatim
from roundoff.quantize import steps as registry
from roundoff.quantize.step_report import Participation
from roundoff.quantize.steps import (
    StepKind,
    StepOption,
    StepOutcome,
    Transformed,
    TransformJob,
    all_transforms,
    apply_transform,
    options_from,
    transform_names,
)
from tests.quantize.transforms.nets import Net, context_for, step


def small() -> Net:
    net = Net()
    net.add("Conv", ["x", net.uneven("w0", 4, 3, 1, 1)], "first")
    net.add("Conv", ["first", net.normal("w1", 4, 4, 1, 1)], "out")
    return net


def test_the_names() -> None:
    assert set(transform_names()) == {
        "clamp_mask", "equalize", "explicit_bias", "block_weights", "smooth",
        "fold_skip", "split_concat", "split_global_pool",
    }  # fmt: skip
    assert all(each.summary.endswith(".") for each in all_transforms())


@pytest.mark.parametrize(
    ("wanted", "what", "fix"),
    [
        (step("smoth"), "There is no transform 'smoth'.", "did you mean 'smooth'?"),
        (step("smooth", alfa=1), "smooth has no option 'alfa'.", "did you mean 'alpha'?"),
        (
            step("explicit_bias", x=1),
            "explicit_bias has no option 'x'.",
            "explicit_bias has no options, leave it out",
        ),
        (step("smooth", alpha=2.0), "The option alpha is 2.0;", "give a number from 0 to 1, or auto"),
        (step("smooth", alpha="x"), "The option alpha is 'x';", "give a number from 0 to 1, or auto"),
        (step("smooth", insert="perhaps"), "The option insert is 'perhaps';", "give true or false"),
        (step("equalize", iterations=1.5), "The option iterations is 1.5;", "give a whole number from 1 to 10000"),
        (step("equalize", clip="none"), "The option clip is 'none';", "give split or observed or keep"),
        (Step("smooth", nodes=("firts",)), "has no node 'firts' once it is prepared", "did you mean 'first'?"),
    ],
)
def test_what_does_not_exist_is_named(wanted: Step, what: str, fix: str) -> None:
    model = small().model({"x": (1, 3, 4, 4)}, ["out"])
    with pytest.raises(BadInput) as caught:
        apply_transform(wanted, model, context_for(model))
    assert what in caught.value.what
    assert caught.value.fix == fix


@pytest.mark.parametrize(
    ("option", "given", "expected"),
    [
        (StepOption(False, ""), "yes", True),
        (StepOption(True, ""), "Off", False),
        (StepOption(0.5, ""), "0.25", 0.25),
        (StepOption(0.5, ""), 1, 1.0),
        (StepOption(3, ""), "7", 7),
        (StepOption(0.5, "", words=("auto",)), "auto", "auto"),
    ],
)
def test_text_is_read_as_what_the_option_is(option: StepOption, given: object, expected: object) -> None:
    found = options_from(Step("any", (("key", given),)), {"key": option})["key"]  # type: ignore[arg-type]
    assert (found, type(found)) == (expected, type(expected))


def test_a_change_that_shows_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small().model({"x": (1, 3, 4, 4)}, ["out"])

    def spoil(job: TransformJob) -> Transformed:
        net = small()
        net.weights[0].raw_data = (np.frombuffer(net.weights[0].raw_data, np.float32) * 1.01).tobytes()
        spoilt = net.model({"x": (1, 3, 4, 4)}, ["out"])
        return StepOutcome(spoilt, (Participation("first", "writer", verbatim("spoilt")),), ())

    monkeypatch.setitem(registry.TRANSFORMS, "spoil", StepKind("spoil", "Spoils.", {}, spoil))
    done = apply_transform(step("spoil"), model, context_for(model))
    assert done.model is model
    assert done.taken == ()
    assert str(done.notes[0]) == "spoil was undone, because it changed what the float model computes"
    assert "differs from the original's" in str(done.notes[1])


def test_explicit_biases_are_zeros_where_there_were_none() -> None:
    net = small()
    net.add("MatMul", ["out", net.normal("w2", 4, 2)], "product")
    model = net.model({"x": (1, 3, 4, 4)}, ["product"])
    done = apply_transform(step("explicit_bias"), model, context_for(model))
    assert [each.node for each in done.taken] == ["first", "out", "product"]
    assert [node.op_type for node in done.model.proto.graph.node] == ["Conv", "Conv", "MatMul", "Add"]
    assert [len(node.input) for node in done.model.proto.graph.node] == [3, 3, 2, 2]
    assert "bit for bit" in str(done.notes[-1])
    again = apply_transform(step("explicit_bias"), done.model, context_for(model))
    assert (again.taken, again.model) == ((), done.model)
