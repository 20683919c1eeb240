"""What may be given as model, samples, labels, evaluator and dumps; and what is said when it may not."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import roundoff
from roundoff.core.tensors import Array
from roundoff.demo import load_split, model_path
from roundoff.graph.caffe.convert import Imported
from tests.graph.caffe.nets import NetText
from tests.models import two_inputs

CHIP = "generic-int8"
IMAGES: Array = load_split("test")[0][:3]
LABELS: Array = load_split("test")[1][:3]


@pytest.fixture(scope="module")
def expected() -> Any:
    """The result with everything in files."""
    return roundoff.layers(model_path(), data=model_path().parent / "samples.npy", target=CHIP, samples=3).result


class Dataset:
    """Samples that are made when they are asked for."""

    def __init__(self, arrays: Array) -> None:
        self.arrays, self.asked = arrays, 0

    def __len__(self) -> int:
        return len(self.arrays)

    def __getitem__(self, index: int) -> dict[str, Array]:
        self.asked += 1
        return {"image": self.arrays[index]}


def feeds(arrays: Array) -> Iterator[Array]:
    yield from arrays


FIRST = np.load(model_path().parent / "samples.npy")[:3]
FORMS: dict[str, Callable[[], Any]] = {
    "an array": lambda: FIRST,
    "float64, as numpy makes it": lambda: FIRST.astype(np.float64),
    "an array by input": lambda: {"image": FIRST},
    "a list of samples": lambda: list(FIRST),
    "samples with their batch axis": lambda: [each[None] for each in FIRST],
    "dictionaries": lambda: [{"image": each} for each in FIRST],
    "tuples": lambda: [(each,) for each in FIRST],
    "a generator": lambda: feeds(FIRST),
    "a data set": lambda: Dataset(FIRST),
    "samples of ours": lambda: roundoff.ArraySamples({"image": FIRST}),
    "numbers": FIRST.tolist,
}


@pytest.mark.parametrize("form", FORMS)
def test_samples_in_any_form_give_the_same_result(form: str, expected: Any) -> None:
    found = roundoff.layers(model_path(), data=FORMS[form](), target=CHIP, samples=3)
    assert [row.local for row in found.result.rows] == [row.local for row in expected.rows]
    (data,) = (each for each in found.document.inputs if each.role == "data")
    assert data.path == "(array)"
    assert data.size_bytes == FIRST.nbytes


def test_samples_in_a_path_by_input(expected: Any) -> None:
    found = roundoff.layers(
        model_path(), data={"image": model_path().parent / "samples.npy"}, target=CHIP, samples=3
    )
    assert found.result.rows == expected.rows


def test_arrays_are_known_by_their_values() -> None:
    def digest(array: Array) -> str:
        return roundoff.outliers(model_path(), data=array).document.inputs[1].sha256

    assert digest(FIRST) == digest(FIRST.copy())
    assert digest(FIRST) != digest(FIRST + 1)


def test_a_model_in_memory(expected: Any) -> None:
    proto = onnx.load(model_path())
    for given in (proto, roundoff.load_model(model_path()), str(model_path())):
        found = roundoff.layers(given, data=FIRST, target=CHIP)
        assert [row.local for row in found.result.rows] == [row.local for row in expected.rows]
    assert roundoff.layers(proto, data=FIRST, target=CHIP).document.inputs[0].path == "(ModelProto)"


def test_a_quantized_model_in_any_form(tmp_path: Path) -> None:
    made = roundoff.quantize(model_path(), data=FIRST, target=CHIP)
    made.save(tmp_path / "run")
    forms = [tmp_path / "run", tmp_path / "run" / "digits_fake_quant_model.onnx", made.quantized]
    forms.append(onnx.load(tmp_path / "run" / "digits_fake_quant_model.onnx"))
    scores = [
        roundoff.samples(None if number else model_path(), quantized=form, data=FIRST).result.samples
        for number, form in enumerate(forms)
    ]
    assert [each.sample for each in scores[0]] == [each.sample for each in scores[1]]
    assert all(len(each) == len(FIRST) for each in scores)


def test_a_caffe_pair(tmp_path: Path) -> None:
    net, weights = NetText({"data": (1, 2, 3, 3)}).add("ReLU", "relu", "data").write(tmp_path)
    found = roundoff.convert((net, weights), tmp_path / "net.onnx")
    assert isinstance(found.result, Imported)
    assert found.result.model.proto.graph.node


def test_labels_and_evaluators_in_memory(tmp_path: Path) -> None:
    np.save(tmp_path / "labels.npy", LABELS)
    by_file = roundoff.partial(model_path(), data=IMAGES, target=CHIP, top=1, labels=tmp_path / "labels.npy")
    for labels in (LABELS, LABELS.tolist()):
        found = roundoff.partial(model_path(), data=IMAGES, target=CHIP, top=1, labels=labels)
        assert found.result == by_file.result

    def right(run: Any, samples: Any) -> float:
        return float(
            np.mean([run(feed)["logits"].argmax() == label for feed, label in zip(samples, LABELS, strict=True)])
        )

    found = roundoff.partial(model_path(), data=IMAGES, target=CHIP, top=1, evaluator=right)
    assert found.result.score == "right"
    assert found.result.float_score == by_file.result.float_score
    tuned = roundoff.tune(model_path(), data=IMAGES, target=CHIP, evaluator=right, max_trials=1)
    assert tuned.result.metric == "right"


def test_dictionaries_of_arrays_are_compared() -> None:
    one = {"a": np.arange(4.0), "b": np.ones(3)}
    assert roundoff.compare(one, one).good
    worse = roundoff.compare(one, {**one, "b": np.zeros(3)}, threshold="cosine=0.99")
    assert not worse.good
    assert [row.reference for row in worse.result.rows if not row.passed] == ["b"]
    assert len(worse.rows()) == 2


def test_the_comparison_of_sources_is_what_it_was() -> None:
    model = roundoff.load_model(model_path())
    source = roundoff.LiveSource(model, roundoff.ArraySamples({"image": FIRST}))
    pairing = roundoff.pair_tensors(source, source)
    found = roundoff.compare(source, source, pairing, settings=roundoff.CompareSettings())
    assert isinstance(found, roundoff.Comparison)
    assert found.state == "pass"


def test_dumps_in_memory() -> None:
    model = roundoff.load_model(model_path())
    source = roundoff.LiveSource(model, roundoff.ArraySamples({"image": FIRST[:1]}))
    dumps = {info.name: source.read(info.name, "0") for info in source.tensors}
    assert roundoff.diagnose(model_path(), data=FIRST[:1], dumps=dumps).result.kind == "healthy"
    dumps["block3/relu"] = dumps["block3/relu"] * 0.5
    found = roundoff.diagnose(model_path(), data=FIRST[:1], dumps=dumps)
    assert not found.good
    assert {row["node"].split()[0] for row in found.rows() if row["proven"]} == {"block3/relu"}
    with pytest.raises(roundoff.BadInput, match="not in the model"):
        found.fix()


# Bad input: the same errors as on the command line, with what to do.

BAD: dict[str, tuple[Callable[[], object], str, str]] = {
    "no samples": (
        lambda: roundoff.layers(model_path(), target=CHIP),
        "The model needs samples and none were given.",
        "add data= PATH",
    ),
    "a missing file": (
        lambda: roundoff.layers("nowhere.onnx", data=FIRST, target=CHIP),
        "nowhere.onnx does not exist",
        "",
    ),
    "missing data": (
        lambda: roundoff.layers(model_path(), data="none.npy", target=CHIP),
        "none.npy does not exist",
        "",
    ),
    "a number for a model": (
        lambda: roundoff.layers(3, data=FIRST, target=CHIP),
        "The model is of type int",
        "path",
    ),
    "a number for data": (
        lambda: roundoff.layers(model_path(), data=3, target=CHIP),
        "The data is of type int",
        "",
    ),
    "bytes": (lambda: roundoff.layers(model_path(), data=b"abc", target=CHIP), "The data is of type bytes", ""),
    "text in arrays": (
        lambda: roundoff.layers(model_path(), data=np.array(["a", "b"]), target=CHIP),
        "which are no numbers",
        "float32",
    ),
    "an empty dictionary": (
        lambda: roundoff.layers(model_path(), data={}, target=CHIP),
        "The data is an empty dictionary",
        "'image'",
    ),
    "an empty generator": (
        lambda: roundoff.layers(model_path(), data=iter(()), target=CHIP),
        "none were given",
        "",
    ),
    "another input": (
        lambda: roundoff.layers(model_path(), data={"imge": FIRST}, target=CHIP),
        "The model has no input 'imge'",
        "did you mean 'image'?",
    ),
    "another shape": (
        lambda: roundoff.layers(model_path(), data=np.zeros((2, 1, 9, 9), np.float32), target=CHIP),
        "expected float32",
        "",
    ),
    "a later sample of another shape": (
        lambda: roundoff.layers(model_path(), data=[FIRST[0], FIRST[1][:, :5]], target=CHIP),
        "Sample 1, input 'image',",
        "",
    ),
    "no rows": (lambda: roundoff.layers(model_path(), data=FIRST[:0], target=CHIP), "holds no samples", ""),
    "integers for floats": (
        lambda: roundoff.layers(model_path(), data=FIRST.astype(np.uint8), target=CHIP),
        "expected float32",
        "",
    ),
    "paths and arrays": (
        lambda: roundoff.layers(model_path(), data={"image": FIRST, "b": "x.npy"}, target=CHIP),
        "mixes paths and arrays",
        "",
    ),
    "both": (
        lambda: roundoff.layers(model_path(), data=FIRST, target=CHIP, quantized="q.onnx"),
        "Both quantized= and target= were given",
        "leave one of them out",
    ),
    "neither": (
        lambda: roundoff.layers(model_path(), data=FIRST),
        "Neither a quantized model nor a chip",
        "add quantized= FILE or target= NAME",
    ),
    "an unknown chip": (lambda: roundoff.layers(model_path(), data=FIRST, target="generic"), "generic", ""),
    "no chip at all": (lambda: roundoff.quantize(model_path(), data=FIRST), "No chip", "add target= NAME"),
    "a chip of another type": (
        lambda: roundoff.quantize(model_path(), data=FIRST, target=8),
        "of type int",
        "name",
    ),
    "a misspelt keyword": (
        lambda: roundoff.layers(model_path(), dta=FIRST, target=CHIP),  # type: ignore[call-arg]
        "takes no argument 'dta'",
        "did you mean 'data'?",
    ),
    "a keyword of another function": (
        lambda: roundoff.export_settings("run", target=CHIP),  # type: ignore[call-arg]
        "roundoff.export_settings() takes no argument 'target'",
        "choose one of: source, dialect, model",
    ),
    "a side too few": (
        lambda: roundoff.diff("before"),  # type: ignore[call-arg]
        "roundoff.diff(): missing a required argument: 'after'",
        "it takes: before, after",
    ),
    "by place what has a name": (
        lambda: roundoff.layers(model_path(), FIRST, target=CHIP),  # type: ignore[call-arg]
        "roundoff.layers(): too many positional arguments",
        "it takes: model",
    ),
    "a misspelt metric": (
        lambda: roundoff.accumulate(model_path(), data=FIRST, target=CHIP, metric="cosin"),
        "cosin",
        "did you mean 'cosine'?",
    ),
    "an option without effect": (
        lambda: roundoff.layers(model_path(), data=FIRST, target=CHIP, image_color="bgr"),
        "image_color= says how files are read, but the samples are in memory",
        "leave image_color= out",
    ),
    "too many threads": (
        lambda: roundoff.layers(model_path(), data=FIRST, target=CHIP, threads=0),
        "threads= 0 is no number of threads",
        "",
    ),
    "memory in words": (
        lambda: roundoff.layers(model_path(), data=FIRST, target=CHIP, max_memory="much"),
        "much",
        "",
    ),
    "samples in words": (
        lambda: roundoff.layers(model_path(), data=FIRST, target=CHIP, samples="all"),  # type: ignore[arg-type]
        "samples= is of type str",
        "",
    ),
    "negative samples": (
        lambda: roundoff.layers(model_path(), data=FIRST, target=CHIP, samples=-1),
        "-1 samples are none at all",
        "give samples= a number from 1 on",
    ),
    "labels that are none": (
        lambda: roundoff.partial(model_path(), data=FIRST, target=CHIP, labels=[0.5, 1.5, 2.0]),
        "labels are whole numbers",
        "",
    ),
    "negative labels": (
        lambda: roundoff.partial(model_path(), data=FIRST, target=CHIP, labels=[0, -1, 2]),
        "-1, which is not a class number",
        "",
    ),
    "a number for an evaluator": (
        lambda: roundoff.diagnose(model_path(), data=FIRST, target=CHIP, evaluator=3),  # type: ignore[arg-type]
        "The evaluator is of type int",
        "evaluate(run, samples)",
    ),
    "an evaluator that fails": (
        lambda: roundoff.partial(model_path(), data=FIRST, target=CHIP, evaluator=lambda run, samples: 1 / 0),
        "ZeroDivisionError",
        "",
    ),
    "nothing to diagnose": (
        lambda: roundoff.diagnose(model_path(), data=FIRST),
        "neither a quantized model nor dumps",
        "add quantized= FILE, target= NAME or dumps= DIR",
    ),
    "dumps of another type": (lambda: roundoff.diagnose(model_path(), data=FIRST, dumps=3), "The dumps are", ""),
    "empty dumps": (lambda: roundoff.diagnose(model_path(), data=FIRST, dumps={}), "empty dictionary", ""),
    "sides of another type": (lambda: roundoff.compare(3, 4), "A side of the comparison is of type int", ""),
    "an empty side": (lambda: roundoff.compare({}, {"a": FIRST}), "empty dictionary", ""),
    "nothing in common": (lambda: roundoff.compare({"a": np.ones(3)}, {"b": np.zeros(4)}), "", ""),
    "no stage": (roundoff.check_io, "nothing to check", "preprocessed="),
    "a stage of one side": (lambda: roundoff.check_io(output=[FIRST]), "two are needed", ""),
    "a run that is none": (lambda: roundoff.diff(3, 4), "A run is of type int", ""),
    "a missing run": (lambda: roundoff.gate("nowhere", "no"), "does not exist", ""),
    "no such step": (
        lambda: roundoff.transform(model_path(), "smoth", data=FIRST, target=CHIP),
        "smoth",
        "smooth",
    ),
    "no such strategy": (
        lambda: roundoff.tune(model_path(), data=FIRST, target=CHIP, strategy="gredy"),
        "There is no strategy 'gredy'",
        "greedy",
    ),
    "a rule that is none": (
        lambda: roundoff.quantize(model_path(), data=FIRST, target=CHIP, set=[3]),
        "set= is of type list",
        "conv1",
    ),
    "no number": (
        lambda: roundoff.quantize(model_path(), data=FIRST, target=CHIP, calibration_option=["percentile=x"]),
        "calibration_option= 'percentile=x' is not of the form",
        "",
    ),
    "no sizes": (
        lambda: roundoff.check_io(preprocessed=[FIRST, FIRST], shape="2x-12"),
        "shape= is '2x-12', which is no list of sizes",
        "give sizes, as in (224, 224)",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_told_with_what_to_do(case: str) -> None:
    call, what, fix = BAD[case]
    with pytest.raises(roundoff.RoundoffError) as caught:
        call()
    assert what in caught.value.what
    assert fix in caught.value.fix
    assert caught.value.fix
    assert "--" not in caught.value.what + caught.value.fix
    assert str(caught.value) == f"{caught.value.what}\nfix: {caught.value.fix}"


def test_one_array_for_two_inputs() -> None:
    with pytest.raises(roundoff.BadInput, match="is one array, but the model has 2 inputs"):
        roundoff.outliers(two_inputs(), data=np.zeros((2, 3), np.float32))


def test_options_are_spelled_as_they_are_typed_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    from roundoff.cli import main

    assert main(["layers", str(model_path()), "--target", CHIP]) == 2
    assert "add --data PATH" in capsys.readouterr().err
