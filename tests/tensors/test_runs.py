"""Several runs in one folder: the golden copy is never taken for what is to be judged."""

from pathlib import Path

import numpy as np
import pytest

import roundoff
from roundoff import demo
from roundoff.core.tensors import TensorInfo
from roundoff.errors import BadInput
from roundoff.tensors import open_source
from roundoff.tensors.stored import MappingSource, StoredSource, runs_of, split_batch
from roundoff.tensors.writer import open_writer


def write(folder: Path, value: float, *names: str) -> None:
    folder.mkdir(parents=True)
    for name in names:
        np.save(folder / f"{name}.npy", np.full((1, 4), value, np.float32))


def test_the_run_that_is_not_the_golden_copy_is_taken(tmp_path: Path) -> None:
    write(tmp_path / "golden" / "npy", 1.0, "a", "b")
    write(tmp_path / "simulator" / "npy", 2.0, "a", "b")
    source = open_source(tmp_path)
    assert isinstance(source, StoredSource)
    assert source.runs == ("simulator", "golden")
    assert [info.name for info in source.tensors] == ["a", "b"]
    assert float(source.read("a", "").max()) == 2.0
    golden = open_source(tmp_path / "golden")
    assert float(golden.read(golden.tensors[0].name, "").max()) == 1.0


def test_the_chip_comes_before_its_simulator(tmp_path: Path) -> None:
    for value, run in enumerate(("golden", "simulator", "runtime")):
        write(tmp_path / run, value, "a", "b")
    source = open_source(tmp_path)
    assert isinstance(source, StoredSource)
    assert source.runs[0] == "runtime"


def test_folders_of_other_tensors_are_no_runs(tmp_path: Path) -> None:
    write(tmp_path / "float", 1.0, "a", "b")
    write(tmp_path / "int8", 2.0, "c", "d")
    source = open_source(tmp_path)
    assert isinstance(source, StoredSource)
    assert source.runs == ()
    assert len(source.tensors) == 4


def test_a_run_is_chosen_by_its_name(tmp_path: Path) -> None:
    for value, run in enumerate(("golden", "board v1", "board v2")):
        write(tmp_path / run, value, "a", "b")
    chosen = open_source(tmp_path, run="board v2")
    assert runs_of(chosen)[0] == "board v2"
    assert float(chosen.read("a", "").max()) == 2.0
    with pytest.raises(BadInput, match="holds no run 'board v3'") as refused:
        open_source(tmp_path, run="board v3")
    assert "board v" in refused.value.fix
    with pytest.raises(BadInput, match="holds no run"):
        open_source(tmp_path / "golden" / "a.npy", run="golden")


def test_the_golden_copy_is_taken_where_it_is_the_reference(tmp_path: Path) -> None:
    write(tmp_path / "golden", 1.0, "a", "b")
    write(tmp_path / "rk3588", 2.0, "a", "b")
    assert float(open_source(tmp_path, golden=True).read("a", "").max()) == 1.0
    assert float(open_source(tmp_path).read("a", "").max()) == 2.0


def test_samples_hold_runs_and_runs_hold_samples(tmp_path: Path) -> None:
    for number in range(2):
        write(tmp_path / "one" / f"s{number}" / "golden" / "npy", number, "a", "b")
        write(tmp_path / "one" / f"s{number}" / "simulator" / "npy", number + 10, "a", "b")
        write(tmp_path / "other" / "golden" / f"Result_{number}", number, "a", "b")
        write(tmp_path / "other" / "npu" / f"Result_{number}", number + 10, "a", "b")
    for folder, samples in (("one", ("s0", "s1")), ("other", ("Result_0", "Result_1"))):
        source = open_source(tmp_path / folder)
        assert source.samples == samples
        assert [info.name for info in source.tensors] == ["a", "b"]
        assert [float(source.read("b", sample).max()) for sample in samples] == [10.0, 11.0]


def test_archives_and_dumps_with_manifests_are_runs(tmp_path: Path) -> None:
    for value, run in ((1.0, "golden"), (2.0, "simulator")):
        arrays = {"a": np.full(4, value), "b": np.full(4, value)}
        (tmp_path / "packed").mkdir(exist_ok=True)
        np.savez(tmp_path / "packed" / f"{run}.npz", a=arrays["a"], b=arrays["b"])
        with open_writer(tmp_path / "listed" / run, "npy", samples=("",)) as writer:
            writer.begin_sample("")
            for name, array in arrays.items():
                writer.write(TensorInfo(name, "float64", (4,)), array)
    for folder in ("packed", "listed"):
        source = open_source(tmp_path / folder)
        assert runs_of(source) == ("simulator", "golden"), folder
        assert float(source.read("a", source.samples[0]).max()) == 2.0
        assert float(open_source(tmp_path / folder, run="golden").read("a", source.samples[0]).max()) == 1.0


def test_converting_keeps_every_run(tmp_path: Path) -> None:
    write(tmp_path / "in" / "golden", 1.0, "a", "b")
    write(tmp_path / "in" / "simulator", 2.0, "a", "b")
    roundoff.convert(tmp_path / "in", tmp_path / "out")
    assert len(list((tmp_path / "out").rglob("*.npy"))) == 4


def test_samples_in_one_tensor_are_told_apart(tmp_path: Path) -> None:
    folder = demo.model_path().parent
    images = np.load(folder / "samples.npy")[:3]
    np.save(tmp_path / "x.npy", images)
    model = roundoff.load_model(demo.model_path())
    fed = roundoff.open_samples(tmp_path / "x.npy", roundoff.inputs(model))
    source = roundoff.LiveSource(model, fed)
    arrays = {
        info.name: np.concatenate([source.read(info.name, sample) for sample in source.samples])
        for info in source.tensors
    }
    found = roundoff.compare(demo.model_path(), arrays, data=tmp_path / "x.npy", threshold="max_abs_error=0")
    assert (found.result.state, len(found.result.samples)) == ("pass", 3)
    assert "split along the first axis" in " ".join(map(str, found.result.notes))
    diagnosed = roundoff.diagnose(demo.model_path(), data=tmp_path / "x.npy", dumps=arrays)
    assert diagnosed.result.kind == "healthy"
    assert "split along the first axis" in " ".join(map(str, diagnosed.result.notes))
    swapped = {name: array[::-1] for name, array in arrays.items()}
    found = roundoff.compare(demo.model_path(), swapped, data=tmp_path / "x.npy")
    assert found.result.state == "fail"


@pytest.mark.parametrize("moved", [False, True], ids=["channels first", "channels last"])
def test_batches_whose_sizes_are_those_of_other_tensors_are_told_by_their_axes(moved: bool) -> None:
    """Four samples of 16 x 16 x 16 are as large as one of 16 x 32 x 32."""
    shapes = {"a": (1, 16, 32, 32), "b": (1, 16, 16, 16), "c": (1, 16, 8, 8), "d": (1, 4)}
    infos = [TensorInfo(name, "float32", shape) for name, shape in shapes.items()]
    rng = np.random.default_rng(0)
    whole = {name: rng.standard_normal((4, *shape[1:])).astype(np.float32) for name, shape in shapes.items()}
    if moved:
        whole = {name: np.moveaxis(x, 1, -1) if x.ndim == 4 else x for name, x in whole.items()}
    samples = ("s0", "s1", "s2", "s3")
    split = split_batch(MappingSource(whole), infos, samples)
    assert split.samples == samples
    for name, array in whole.items():
        for at, sample in enumerate(samples):
            assert np.array_equal(split.read(name, sample), array[at : at + 1])
    single = MappingSource({name: array[:1] for name, array in whole.items()})
    assert split_batch(single, infos, samples) is single


def test_golden_copies_are_known_by_the_names_of_their_files(tmp_path: Path) -> None:
    write(tmp_path / "dump", 2.0, "conv.0", "relu", "only_here")
    for name in ("conv.0.golden", "relu.golden"):
        np.save(tmp_path / "dump" / f"{name}.npy", np.ones((1, 4), np.float32))
    source = open_source(tmp_path / "dump")
    assert runs_of(source) == ("unmarked", "golden")
    assert [info.name for info in source.tensors] == ["conv.0", "only_here", "relu"]
    assert float(source.read("relu", "").max()) == 2.0
    golden = open_source(tmp_path / "dump", run="golden")
    assert [info.name for info in golden.tensors] == ["conv.0", "relu"]
    assert float(golden.read("relu", "").max()) == 1.0
    with pytest.raises(BadInput, match="holds no run 'other'"):
        open_source(tmp_path / "dump", run="other")


def test_both_runs_may_be_marked(tmp_path: Path) -> None:
    write(tmp_path / "dump", 2.0, "a_npu", "b_npu", "a_ref", "b_ref")
    source = open_source(tmp_path / "dump")
    assert runs_of(source) == ("npu", "ref")
    assert [info.name for info in source.tensors] == ["a", "b"]


def test_a_tensor_called_so_is_no_golden_copy(tmp_path: Path) -> None:
    write(tmp_path / "dump", 2.0, "a", "b", "c", "d_ref")
    source = open_source(tmp_path / "dump")
    assert runs_of(source) == ()
    assert len(source.tensors) == 4


def test_runs_may_be_told_by_the_first_words_of_files_or_by_what_computed_them(tmp_path: Path) -> None:
    write(tmp_path / "first", 2.0, "npu_a", "npu_b", "cpu_a", "cpu_b")
    assert runs_of(open_source(tmp_path / "first")) == ("npu", "cpu")
    for value, run in enumerate(("pytorch", "chip")):
        write(tmp_path / "second" / run, value, "a", "b")
    chosen = open_source(tmp_path / "second")
    assert runs_of(chosen) == ("chip", "pytorch")
    assert float(chosen.read("a", "").max()) == 1.0


def test_runs_of_names_that_tell_nothing_are_refused(tmp_path: Path) -> None:
    for value, run in enumerate(("v1", "v2")):
        write(tmp_path / run, value, "a", "b", "c")
    with pytest.raises(BadInput, match="holds the same tensors 2 times: v1, v2") as refused:
        open_source(tmp_path)
    assert "--run v2" in refused.value.fix
    assert float(open_source(tmp_path, run="v2").read("a", "").max()) == 1.0
    assert len(open_source(tmp_path, every_run=True).tensors) == 6
    # Something beside them, other sizes, or few tensors: folders of layers.
    write(tmp_path / "stem", 1.0, "z")
    assert len(open_source(tmp_path).tensors) == 7
    np.save(tmp_path / "stem" / "z.npy", np.zeros(3, np.float32))
    for layer, size in (("conv1", 4), ("conv2", 8)):
        (tmp_path / "layers" / layer).mkdir(parents=True)
        for name in ("input", "weight", "output"):
            np.save(tmp_path / "layers" / layer / f"{name}.npy", np.zeros(size, np.float32))
    assert len(open_source(tmp_path / "layers").tensors) == 6


@pytest.mark.parametrize("more", [(), (1,)], ids=["joined", "stacked"])
def test_samples_in_one_tensor_may_be_flat_or_in_blocks(more: tuple[int, ...]) -> None:
    shapes = {"a": (1, 6, 8, 8), "b": (1, 12, 4, 4), "c": (1, 10)}
    infos = [TensorInfo(name, "float32", shape) for name, shape in shapes.items()]
    blocked = {"a": (1, 8, 8, 8), "b": (2, 4, 4, 8), "c": (10,)}
    rng = np.random.default_rng(0)
    whole = {name: rng.standard_normal((4, *more, *shape)).astype(np.float32) for name, shape in blocked.items()}
    samples = ("s0", "s1", "s2", "s3")
    split = split_batch(MappingSource(whole), infos, samples)
    assert split.samples == samples
    for name, array in whole.items():
        # What was stacked loses the axis again.
        assert split.read(name, "s2").shape == next(info.shape for info in split.tensors if info.name == name)
        assert np.array_equal(split.read(name, "s2"), array[2] if more else array[2:3])


def test_a_list_of_layers_and_files_names_tensors_in_their_order(tmp_path: Path) -> None:
    for sample in ("s0", "s1"):
        for value, run in enumerate(("golden", "simulator")):
            write(tmp_path / sample / run / "npy", value, "a_b", "a_b_1", "last")
        lines = ("layer_name file_name", "-" * 24, "z/last    last.txt", "a/b    a_b.txt", "a_b    a_b_1.txt  ")
        (tmp_path / sample / "map_name_to_file.txt").write_text("\n".join(lines))
    for path in (tmp_path, tmp_path / "s0", tmp_path / "s1" / "simulator"):
        source = open_source(path)
        assert [info.name for info in source.tensors] == ["z/last", "a/b", "a_b"]
        assert source.ordered
        assert float(source.read("a_b", source.samples[-1]).max()) == 1.0
    assert open_source(tmp_path).samples == ("s0", "s1")
    (tmp_path / "s0" / "simulator" / "npy" / "extra.npy").write_bytes(
        (tmp_path / "s0" / "simulator" / "npy" / "last.npy").read_bytes()
    )
    more = open_source(tmp_path / "s0")
    assert [info.name for info in more.tensors] == ["z/last", "a/b", "a_b", "extra"]
    assert not more.ordered
