import json
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from roundoff.core.quantizers import QuantSpec
from roundoff.errors import BadInput
from roundoff.quantize.calibration.calibration import Calibration
from roundoff.quantize.calibration.files import load_calibration, save_calibration
from tests.contracts.calibration import skewed
from tests.quantize.calibration.observing import observed
from tests.quantize.calibration.test_observer import assert_equal


@cache
def example() -> Calibration:
    observations = {
        "small": observed(skewed(0, 100)),
        "große/Schicht:0": observed(np.concatenate([skewed(seed, 40_000) for seed in range(2)])),
        "channels": observed(skewed(3, 90_000).reshape(2, 3, -1), axis=1),
        "few channels": observed(skewed(4, 60).reshape(3, 20), axis=0),
        "Relu": observed(np.abs(skewed(5, 70_000))),
        "empty": observed(np.empty((0, 3), np.float32)),
        "damaged": observed(np.array([np.nan, 1.0, np.inf], np.float32)),
        "zeros": observed(np.zeros(70_000, np.float32)),
    }
    return Calibration(observations, 12, "histogram")


def damage(path: Path, **changes: object) -> None:
    """Write the file again with other members; None leaves one out, a dict changes the table of contents."""
    with np.load(path) as archive:
        members = dict(archive)
    for name, change in changes.items():
        if change is None:
            del members[name]
        elif isinstance(change, dict):
            content = json.loads(members[name].tobytes()) | change
            members[name] = np.frombuffer(json.dumps(content).encode(), np.uint8)
        else:
            members[name] = np.asarray(change)
    np.savez(path, **members)


def test_what_was_saved_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "calibration.npz"
    save_calibration(example(), path, model_hash="abc")
    loaded = load_calibration(path, model_hash="abc")
    assert (loaded.samples, loaded.detail) == (12, "histogram")
    assert list(loaded.observations) == list(example().observations)
    for name, each in example().observations.items():
        assert_equal(each, loaded.observations[name])
    spec = QuantSpec(8, True, False)
    for method in ("minmax", "mse", "entropy", "hfmg"):
        for name in loaded.observations:
            assert loaded.range([name], spec, method) == example().range([name], spec, method)
    assert loaded.merge(loaded).samples == 24


def test_the_same_observation_gives_the_same_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_calibration(example(), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_ranges_only(tmp_path: Path) -> None:
    seen = Calibration({"a": observed(skewed(0))}, 1, "range")
    save_calibration(seen, tmp_path / "c.npz")
    assert load_calibration(tmp_path / "c.npz").detail == "range"


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    save_calibration(example(), path)
    with np.load(path, allow_pickle=False) as archive:
        assert sorted(archive.files) == ["about", "counts", "elements", "exponents", "high", "low"]
    damage(path, low=np.array([{"a": 1}], dtype=object))
    with pytest.raises(BadInput, match="pickle"):
        load_calibration(path)


def test_another_model(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    save_calibration(example(), path, model_hash="abc")
    with pytest.raises(BadInput, match="another model") as caught:
        load_calibration(path, model_hash="def")
    assert caught.value.fix == "observe the samples again, without this file"
    assert load_calibration(path).samples == 12


def test_missing_or_foreign_file(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="does not exist"):
        load_calibration(tmp_path / "nowhere.npz")
    (tmp_path / "text").write_text("hello")
    (tmp_path / "nothing").touch()
    np.savez(tmp_path / "foreign.npz", a=np.zeros(3))
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("about.npy", "not an array")
    for name in ("text", "nothing", "foreign.npz", "other.zip"):
        with pytest.raises(BadInput, match="is not a usable calibration file") as caught:
            load_calibration(tmp_path / name)
        assert caught.value.fix == "observe the samples again, without this file"
    with pytest.raises(BadInput, match="is a folder"):
        load_calibration(tmp_path)


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9, 0.999])
def test_truncated_file(tmp_path: Path, keep: float) -> None:
    path = tmp_path / "c.npz"
    save_calibration(example(), path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(BadInput, match="is not a usable calibration file"):
        load_calibration(path)


def test_no_flipped_byte_goes_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    save_calibration(Calibration({"a": observed(skewed(0, 50))}, 1, "histogram"), path)
    content = path.read_bytes()
    whole = load_calibration(path)
    for place in range(0, len(content), 29):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :])
        try:
            found = load_calibration(path)
        except BadInput:
            continue
        assert_equal(found.observations["a"], whole.observations["a"])  # a byte that says nothing


ENTRY = {"name": "a", "axis": None, "rank": 0, "rows": 1, "count": 50, "nans": 0, "infs": 0, "elements": 50}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"about": None}, "it has no member 'about'"),
        ({"counts": None}, "it has no member 'counts'"),
        ({"about": {"version": 99}}, "its layout has the version 99"),
        ({"about": {"format": "else"}}, "it was not written by a calibration"),
        ({"about": {"samples": "many"}}, "damaged at samples"),
        ({"about": {"detail": "all"}}, "damaged at detail"),
        ({"about": {"tensors": [ENTRY | {"count": -1}]}}, "what it says of tensor 'a' cannot be"),
        ({"about": {"tensors": [ENTRY | {"rows": 2}]}}, "what it says of tensor 'a' cannot be"),
        ({"about": {"tensors": [ENTRY | {"grid": [40, 3], "sides": 1}]}}, "what it says of tensor 'a' cannot be"),
        ({"about": {"tensors": []}}, "holds more than its table of contents says"),
        ({"about": {"tensors": [ENTRY, ENTRY]}}, "it lists a tensor twice"),
        ({"about": {"tensors": [ENTRY, ENTRY | {"name": "b"}]}}, "ends too early"),
        ({"about": np.frombuffer(b"{", np.uint8)}, "its table of contents is damaged"),
        ({"low": np.zeros((1, 1))}, "'low' is float64 of 2 axes"),
        ({"low": np.array([np.nan])}, "numbers of tensor 'a' contradict"),
        ({"elements": np.full(50, np.nan, np.float32)}, "numbers of tensor 'a' contradict"),
    ],
    ids=str,
)
def test_contradictions(tmp_path: Path, change: dict[str, object], problem: str) -> None:
    path = tmp_path / "c.npz"
    save_calibration(Calibration({"a": observed(skewed(0, 50))}, 1, "histogram"), path)
    damage(path, **change)
    with pytest.raises(BadInput, match="is not a usable calibration file") as caught:
        load_calibration(path)
    assert problem in caught.value.what


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="could not be written"):
        save_calibration(example(), tmp_path / "file" / "c.npz")
