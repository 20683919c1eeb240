"""Calibration samples that an evaluator feeds by itself."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.search.evaluators import FedSamples, fed_samples
from tests.models import conv_net, loaded

FILE = Path("mine.py")
IMAGES = np.random.default_rng(0).standard_normal((6, 1, 3, 8, 8)).astype(np.float32)


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return loaded(conv_net("N"), tmp_path)


def from_path(file: str) -> Any:
    return ort.InferenceSession(file)


def from_bytes(file: str) -> Any:
    return ort.InferenceSession(path_or_bytes=Path(file).read_bytes(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("opened", [from_path, from_bytes])
def test_what_a_session_is_fed_is_kept(model: Model, opened: Callable[[str], Any]) -> None:
    def calibration(file: str) -> None:
        session, other, buffer = opened(file), ort.InferenceSession(model.path), np.empty_like(IMAGES[0])
        for image in IMAGES:
            # One array for all of them, as a fast reader has it.
            buffer[:] = image
            values = session.run(None, {"image": buffer})
            assert np.array_equal(values[0], other.run(None, {"image": image})[0])
        session.run(output_names=None, input_feed={"image": IMAGES[0]})

    found = fed_samples(calibration, model, path=FILE)
    assert len(found.names) == len(set(found.names)) == 7
    assert all(np.array_equal(found.feed(index)["image"], image) for index, image in enumerate(IMAGES))
    # Sessions that are opened afterwards are nobody's concern.
    assert "run" not in vars(ort.InferenceSession(model.path))


def test_runs_that_fail_do_not_count_and_no_more_than_asked_for_do(model: Model) -> None:
    def calibration(file: str) -> None:
        session = ort.InferenceSession(file)
        with pytest.raises(Exception, match="wrong"):
            session.run(None, {"wrong": IMAGES[0]})
        for image in IMAGES:
            session.run(None, {"image": image})

    found = fed_samples(calibration, model, path=FILE, most=2)
    assert len(found.names) == 2


def test_the_digest_tells_what_was_fed() -> None:
    def digest(*feeds: dict[str, Any]) -> str:
        samples = FedSamples("somebody")
        for feed in feeds:
            samples.add(feed)
        return samples.digest

    one, two = np.array([1, 2], np.float32), np.array([1, 3], np.float32)
    assert digest({"a": one, "b": two}) == digest({"b": two, "a": one})
    different = [digest({"a": one}), digest({"a": two}), digest({"b": one}), digest({"a": one}, {"a": one})]
    different.append(digest({"a": one.reshape(1, 2)}))
    assert len(set(different)) == 5


@pytest.mark.parametrize(
    ("calibration", "message"),
    [
        (lambda file: None, r"calibration\(\) in mine.py did not run the model"),
        (ort.InferenceSession, "did not run the model"),
        (lambda file: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_an_evaluator_that_feeds_nothing_is_an_error(
    model: Model, calibration: Callable[[str], Any], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        fed_samples(calibration, model, path=FILE)
    assert "run" not in vars(ort.InferenceSession(model.path))
