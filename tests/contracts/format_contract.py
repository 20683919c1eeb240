"""What every tensor format promises; subclass `FormatContract` to hold a new one to it.

class TestMyFormat(FormatContract):
    format = "mine"

    def write(self, folder, tensors):
        ...
        return folder

    def damage(self, path, name):
        ...
"""

import tracemalloc
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.tensors import FORMATS, open_source


class FormatContract(ABC):
    """Tests that a format must pass.

    Attributes:
        format: Its name in `FORMATS`.
        names: Names its files can carry by themselves, in natural order.
    """

    format: str
    names: tuple[str, ...] = ("conv2", "conv10", "fc")

    @abstractmethod
    def write(self, folder: Path, tensors: Mapping[str, Array]) -> Path:
        """Write the tensors, in the order given, into an empty folder; tell what the user would open."""

    @abstractmethod
    def damage(self, path: Path, name: str) -> None:
        """Damage one tensor of what `write` returned so that it cannot be read, and the others can."""

    def tensors(self) -> dict[str, Array]:
        """The truth."""
        rng = np.random.default_rng(7)
        arrays = [rng.normal(size=(1, 2, 3)), rng.integers(-9, 9, (4,)), np.float64(2.5)]
        types = (np.float32, np.int64, np.float16)
        return {
            name: np.asarray(array, dtype) for name, array, dtype in zip(self.names, arrays, types, strict=True)
        }

    def test_sniff_scores_its_own_and_nothing_else(self, tmp_path: Path) -> None:
        (tmp_path / "own").mkdir()
        (tmp_path / "empty").mkdir()
        (tmp_path / "notes.txt").write_text("nothing here")
        mine = FORMATS[self.format]
        assert 0 < mine.sniff(self.write(tmp_path / "own", self.tensors())) <= 100
        for other in ("empty", "notes.txt", "missing"):
            assert mine.sniff(tmp_path / other) == 0

    def test_is_recognised(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, self.tensors())
        assert {info.name for info in open_source(path).tensors} == set(self.names)

    def test_lists_every_tensor_with_its_header(self, tmp_path: Path) -> None:
        truth = self.tensors()
        path = self.write(tmp_path, truth)
        source = open_source(path, format=self.format)
        assert source.label == str(path)
        assert source.samples == ("",)
        assert tuple(info.name for info in source.tensors) == self.names
        for info in source.tensors:
            assert (info.dtype, info.shape) == (truth[info.name].dtype.name, truth[info.name].shape)
            assert info.problem == ""

    def test_reads_the_truth_again_and_again(self, tmp_path: Path) -> None:
        truth = self.tensors()
        source = open_source(self.write(tmp_path, truth), format=self.format)
        for _ in range(2):
            for name, array in truth.items():
                values = source.read(name, "")
                assert values.dtype == array.dtype
                np.testing.assert_array_equal(values, array)

    def test_listing_reads_no_values(self, tmp_path: Path) -> None:
        big = dict.fromkeys(self.names, np.zeros((4, 256, 1024), np.float32))
        path = self.write(tmp_path, big)
        tracemalloc.start()
        open_source(path, format=self.format)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < big[self.names[0]].nbytes / 4

    def test_unknown_tensor_is_bad_input(self, tmp_path: Path) -> None:
        source = open_source(self.write(tmp_path, self.tensors()), format=self.format)
        with pytest.raises(BadInput, match="has no tensor") as caught:
            source.read(f"{self.names[0]}x", "")
        assert caught.value.fix == f"did you mean {self.names[0]!r}?"

    def test_unknown_sample_is_bad_input(self, tmp_path: Path) -> None:
        source = open_source(self.write(tmp_path, self.tensors()), format=self.format)
        with pytest.raises(BadInput, match="has no sample 'nowhere'"):
            source.read(self.names[0], "nowhere")

    def test_a_damaged_tensor_is_one_row_with_a_problem(self, tmp_path: Path) -> None:
        truth = self.tensors()
        path = self.write(tmp_path, truth)
        bad, *good = self.names
        self.damage(path, bad)
        source = open_source(path, format=self.format)
        infos = {info.name: info for info in source.tensors}
        assert infos[bad].problem
        with pytest.raises(BadInput, match="cannot be read from") as caught:
            source.read(bad, "")
        assert infos[bad].problem in caught.value.what
        assert str(tmp_path) in caught.value.what
        for name in good:
            assert not infos[name].problem
            np.testing.assert_array_equal(source.read(name, ""), truth[name])
