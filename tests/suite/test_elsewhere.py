"""Rankings and searches whose pieces others do: the result of one process, bit by bit."""

import contextlib
import json
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import roundoff
from roundoff.api.outcome import Outcome
from roundoff.core.document import to_json
from roundoff.run import executors
from tests.suite.zoo import make_zoo


class Here:
    """Three workers that are this process."""

    workers = 3

    def __init__(self) -> None:
        self.pieces = 0

    def share(self, value: Any) -> Any:
        return value

    def submit(self, function: Any, *args: Any) -> "Future[Any]":
        self.pieces += 1
        future: Future[Any] = Future()
        future.set_result(function(*args))
        return future


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Here:
    workers = Here()

    @contextlib.contextmanager
    def opened(**_: Any) -> Iterator[Here]:
        yield workers

    monkeypatch.setattr(executors, "open_workers", opened)
    return workers


def content(outcome: Outcome[Any]) -> Any:
    def timeless(found: Any) -> Any:
        if isinstance(found, dict):
            return {key: timeless(each) for key, each in found.items() if key != "seconds"}
        return [timeless(each) for each in found] if isinstance(found, list) else found

    return timeless({**json.loads(to_json(outcome.document)), "environment": None})


def test_nodes_of_a_ranking_are_measured_elsewhere(tmp_path: Path, cluster: Here) -> None:
    make_zoo(tmp_path, samples=20)
    options: dict[str, Any] = {"target": "generic-int8", "data": tmp_path / "samples.npy", "threads": 1, "top": 1}
    plain = roundoff.sensitivity(tmp_path / "net.onnx", **options)
    assert content(roundoff.sensitivity(tmp_path / "net.onnx", dask="there", **options)) == content(plain)
    assert cluster.pieces > 2
    with pytest.raises(roundoff.BadInput, match="from files"):
        roundoff.sensitivity(
            tmp_path / "net.onnx", dask="there", **{**options, "data": np.zeros((2, 3, 8, 8), "f4")}
        )


@pytest.mark.parametrize("labels", [False, True])
def test_samples_of_a_search_are_measured_elsewhere(tmp_path: Path, cluster: Here, labels: bool) -> None:
    make_zoo(tmp_path, samples=70)
    options: dict[str, Any] = {"target": "generic-int8", "data": tmp_path / "samples.npy", "max_trials": 2}
    if labels:
        np.save(tmp_path / "labels.npy", np.arange(70) % 5)
        options["labels"] = tmp_path / "labels.npy"
    plain = roundoff.tune(tmp_path / "net.onnx", **options)
    assert content(roundoff.tune(tmp_path / "net.onnx", dask="there", **options)) == content(plain)
    assert cluster.pieces > 1


@pytest.mark.parametrize("labels", [False, True])
def test_samples_of_a_sweep_are_run_elsewhere(tmp_path: Path, cluster: Here, labels: bool) -> None:
    make_zoo(tmp_path, samples=70)
    options: dict[str, Any] = {"target": "generic-int8", "data": tmp_path / "samples.npy", "top": 3}
    if labels:
        np.save(tmp_path / "labels.npy", np.arange(70) % 5)
        options["labels"] = tmp_path / "labels.npy"
    plain = roundoff.partial(tmp_path / "net.onnx", **options)
    assert content(roundoff.partial(tmp_path / "net.onnx", dask="there", **options)) == content(plain)
    assert cluster.pieces > 1


@pytest.mark.parametrize("method", ["minmax", "entropy"])
def test_samples_of_a_calibration_are_observed_elsewhere(tmp_path: Path, cluster: Here, method: str) -> None:
    make_zoo(tmp_path, samples=23)
    options: dict[str, Any] = {"target": "generic-int8", "data": tmp_path / "samples.npy", "calibration": method}
    plain = roundoff.quantize(tmp_path / "net.onnx", **options)
    there = roundoff.quantize(tmp_path / "net.onnx", dask="there", **options)
    assert cluster.pieces > 1
    assert content(there) == content(plain)
    for name, each in plain.result.calibration.observations.items():
        other = there.result.calibration.observations[name]
        assert (each.count, each.low.tolist(), each.high.tolist()) == (
            other.count,
            other.low.tolist(),
            other.high.tolist(),
        )
    folders = [tmp_path / "a", tmp_path / "b"]
    for outcome, folder in zip((plain, there), folders, strict=True):
        outcome.save(folder)
    models = [sorted(each.read_bytes() for each in folder.glob("*.onnx")) for folder in folders]
    assert models[0] == models[1]
