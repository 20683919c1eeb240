import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.graph.shapes import values
from roundoff.messages.numbers import parse_size
from roundoff.run import budget as memory
from roundoff.run.budget import PROGRAM_BYTES, Planner, available_memory, split_passes, useful_threads
from roundoff.run.session import available_threads
from tests.models import conv_net, loaded

MIB = 2**20
SHAPES = {"image": (100, 3, 8, 8)}


@given(st.lists(st.integers(0, 100), max_size=30), st.integers(1, 150))
def test_passes_keep_the_order_and_the_limit(sizes: list[int], room: int) -> None:
    named = {str(index): size for index, size in enumerate(sizes)}

    passes = split_passes(named, room)

    assert [name for names in passes for name in names] == list(named)
    assert all(names for names in passes)
    assert all(sum(named[name] for name in names) <= room or len(names) == 1 for names in passes)
    # Two neighbours that fit together would have been one.
    for first, second in itertools.pairwise(passes):
        assert sum(named[name] for name in first) + named[second[0]] > room


def planner(model: Model, limit: int) -> Planner:
    everything = values(model, SHAPES)
    captured = [value.name for value in everything if value.node]
    return Planner(model, everything, captured=captured, shapes=SHAPES, limit=limit)


@pytest.mark.parametrize(("rows", "threads"), [(1, 1), (100_000, 0)])
def test_nodes_that_compute_little_have_one_thread(rows: int, threads: int, tmp_path: Path) -> None:
    model = loaded(conv_net(), tmp_path)

    assert useful_threads(model, values(model, {"image": (rows, 3, 8, 8)})) == (threads or available_threads())


def test_tensors_of_unknown_size_may_be_large(tmp_path: Path) -> None:
    model = loaded(conv_net(), tmp_path)
    everything = [replace(value, shape=None) for value in values(model, SHAPES)]

    assert useful_threads(model, everything) == available_threads()


def test_one_pass_when_there_is_room(tmp_path: Path) -> None:
    plan = planner(loaded(conv_net("N"), tmp_path), 1024 * MIB).plan(SHAPES)

    assert len(plan.passes) == 1
    assert PROGRAM_BYTES < plan.memory_bytes < PROGRAM_BYTES + 2 * MIB
    assert plan.sessions > 1
    assert plan.ahead


def test_little_room_means_more_passes_and_one_session(tmp_path: Path) -> None:
    model = loaded(conv_net("N"), tmp_path)
    # conv1 to relu2 have 102,400 bytes each; twice that is scratch.
    limit = PROGRAM_BYTES + 4 * model.weight_bytes + 2 * 102_400 + 2 * 102_400

    plan = planner(model, limit).plan(SHAPES)

    assert plan.passes == (("conv1", "relu1"), ("conv2", "relu2"), ("pooled", "flat", "logits"))
    assert plan.memory_bytes <= limit
    assert plan.sessions == 1
    assert not plan.ahead


def test_larger_samples_are_split_further(tmp_path: Path) -> None:
    model = loaded(conv_net("N"), tmp_path)
    planned = planner(model, PROGRAM_BYTES + 4 * model.weight_bytes + 6 * 102_400)

    assert len(planned.plan(SHAPES).passes) == 2
    assert len(planned.plan({"image": (150, 3, 8, 8)}).passes) == 3
    assert planned.plan(SHAPES) is planned.plan(dict(SHAPES))


def test_a_budget_below_the_largest_tensor_is_refused_with_one_that_works(tmp_path: Path) -> None:
    model = loaded(conv_net("N"), tmp_path)

    with pytest.raises(BadInput) as caught:
        planner(model, 100 * MIB).plan(SHAPES)

    assert caught.value.what == "Capturing tensor 'conv1' takes about 136 MB of memory; the budget is 105 MB."
    wanted = caught.value.fix.split("'")[1]
    assert caught.value.fix.startswith("give --max-memory '136 MB' or more")
    planner(model, parse_size(wanted)).plan(SHAPES)


def test_memory_is_most_of_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    assert available_memory() > 0
    monkeypatch.setattr(memory, "_free_on_machine", lambda: 1000)
    monkeypatch.setattr(memory, "_free_in_container", lambda: None)
    assert available_memory() == 800
    monkeypatch.setattr(memory, "_free_in_container", lambda: 500)
    assert available_memory() == 400
    monkeypatch.setattr(memory, "_free_on_machine", lambda: None)
    monkeypatch.setattr(memory, "_free_in_container", lambda: None)
    assert available_memory() == 4 * 2**30


def test_a_container_s_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"/sys/fs/cgroup/memory.max": "1000\n", "/sys/fs/cgroup/memory.current": "400\n"}
    monkeypatch.setattr(Path, "read_text", lambda self, encoding: files[str(self)])
    assert memory._free_in_container() == 600
    files["/sys/fs/cgroup/memory.max"] = "max\n"
    assert memory._free_in_container() is None
