"""Files at URLs: fetched once per machine, within bounds, whole, and what the suite was read with."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from roundoff.core.claims import claim
from roundoff.errors import BadInput
from roundoff.suite.evaluation import joined_scores
from roundoff.suite.fetching import ContentHashes, FetchedFiles, default_cache
from roundoff.suite.matrix import load_suite, placed
from roundoff.suite.store import UnitStore
from roundoff.suite.unit import compute, do_unit
from tests.models import conv_net
from tests.suite.zoo import SUITE, make_zoo

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed (make test-suite)")


@pytest.fixture
def far() -> Iterator[str]:
    """A URL on a file system that counts what is fetched from it."""
    root = f"/far-{os.getpid()}-{time.time_ns()}"
    fsspec.filesystem("memory").makedirs(root)
    yield f"memory:/{root}"
    fsspec.filesystem("memory").rm(root, recursive=True)


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what was fetched."""
    seen: list[str] = []
    system = type(fsspec.filesystem("memory"))  # every thread has its own
    plain = system.get_file

    def counted(self: Any, remote: str, *args: Any, **options: Any) -> Any:
        seen.append(remote.rpartition("/")[2])
        return plain(self, remote, *args, **options)

    monkeypatch.setattr(system, "get_file", counted)
    return seen


def put(url: str, content: bytes) -> None:
    with fsspec.open(url, "wb") as file:
        file.write(content)


def entries(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.name != "index")


def test_a_file_is_fetched_once_and_its_hash_is_known_without_it(
    tmp_path: Path, far: str, fetches: list[str]
) -> None:
    put(f"{far}/a.bin", b"x" * 100)
    first = FetchedFiles(tmp_path, 1000)
    digest = first.digest(f"{far}/a.bin")
    assert fetches == ["a.bin"]
    # Another process of this machine, or the next night.
    again = FetchedFiles(tmp_path, 1000)
    assert again.digest(f"{far}/a.bin") == digest
    with again.held(f"{far}/a.bin", digest) as path:
        assert path.read_bytes() == b"x" * 100
        assert path.name == "a.bin"
    assert fetches == ["a.bin"]
    put(f"{far}/a.bin", b"y" * 100)
    assert again.digest(f"{far}/a.bin") != digest
    assert fetches == ["a.bin"] * 2
    # What it held before is still there; where it is not, nothing else is passed off as it.
    with again.held(f"{far}/a.bin", digest) as path:
        assert path.read_bytes() == b"x" * 100
    with pytest.raises(BadInput, match="changed while the suite ran"), again.held(f"{far}/a.bin", "0" * 64):
        pass


def test_the_cache_is_bounded_and_what_is_in_use_stays(tmp_path: Path, far: str, fetches: list[str]) -> None:
    cache = FetchedFiles(tmp_path, 250)
    digests: dict[str, str] = {}
    for name in "abc":
        put(f"{far}/{name}", name.encode() * 100)
    with cache.held(f"{far}/a", digests.setdefault("a", cache.digest(f"{far}/a"))) as held:
        for name in "bc":
            digests[name] = cache.digest(f"{far}/{name}")
        # b is used later than a, and goes all the same.
        assert held.read_bytes() == b"a" * 100
        assert len(entries(tmp_path)) == 2
    with cache.held(f"{far}/b", digests["b"]) as path:
        assert path.read_bytes() == b"b" * 100
    assert sum(file.stat().st_size for each in entries(tmp_path) for file in each.iterdir()) <= 250
    assert fetches == ["a", "b", "c", "b"]
    # What killed processes left goes, too.
    (tmp_path / ".fetching-0123abcd").mkdir()
    (tmp_path / ".fetching-0123abcd" / "half").touch()
    put(f"{far}/d", b"d")
    cache.digest(f"{far}/d")
    assert not (tmp_path / ".fetching-0123abcd").exists()


def test_who_needs_a_file_that_another_fetches_waits_for_it(tmp_path: Path, far: str, fetches: list[str]) -> None:
    put(f"{far}/a", b"a" * 10)
    caches = [FetchedFiles(tmp_path, 1000) for _ in range(8)]
    (tmp_path / "same").write_bytes(b"a" * 10)
    digest = ContentHashes().of(tmp_path / "same")
    found: list[bytes] = []

    def use(cache: FetchedFiles) -> None:
        with cache.held(f"{far}/a", digest) as path:
            found.append(path.read_bytes())

    threads = [threading.Thread(target=use, args=(cache,)) for cache in caches]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [b"a" * 10] * 8
    assert fetches == ["a"]


def test_external_data_folders_and_lists_come_with_what_names_them(tmp_path: Path, far: str) -> None:
    near = tmp_path / "near"
    (near / "w").mkdir(parents=True)
    onnx.save(conv_net(), near / "net.onnx", save_as_external_data=True, location="w/net.data", size_threshold=0)
    np.save(near / "0.npy", np.zeros((1, 3, 8, 8), np.float32))
    (near / "list.txt").write_text("0.npy 3\n", encoding="utf-8")
    (near / "dump" / "deep").mkdir(parents=True)
    np.save(near / "dump" / "deep" / "a.npy", np.ones(3, np.float32))
    fsspec.filesystem("memory").put(f"{near}/", f"{far.removeprefix('memory:/')}/", recursive=True)
    cache, hashes = FetchedFiles(tmp_path / "cache", 10**6), ContentHashes()
    for name in ("net.onnx", "list.txt", "dump"):
        digest = cache.digest(f"{far}/{name}")
        assert digest == hashes.of(near / name), name
        with cache.held(f"{far}/{name}", digest) as path:
            assert hashes.of(path) == digest
    # Weights that changed beside a model that did not.
    before = cache.digest(f"{far}/net.onnx")
    weights = bytearray((near / "w" / "net.data").read_bytes())
    weights[3] ^= 1
    put(f"{far}/w/net.data", bytes(weights))
    assert cache.digest(f"{far}/net.onnx") != before


def test_a_name_that_leads_out_of_the_cache_is_not_followed(tmp_path: Path, far: str) -> None:
    model = conv_net()
    onnx.external_data_helper.convert_model_to_external_data(model, location="x.data", size_threshold=0)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "../../evil"
    put(f"{far}/net.onnx", model.SerializeToString())
    put(f"{far.rpartition('/')[0]}/evil", b"evil")
    FetchedFiles(tmp_path / "cache", 10**6).digest(f"{far}/net.onnx")
    assert not list(tmp_path.rglob("evil"))


def test_units_of_urls_give_what_units_of_files_give(
    tmp_path: Path, far: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROUNDOFF_SUITE_CACHE", str(tmp_path / "cache"))
    default_cache.cache_clear()
    text = SUITE + "[commands.evaluate]\nsplit = 4\n"
    near = load_suite(make_zoo(tmp_path, text)).units
    fsspec.filesystem("memory").put(f"{tmp_path}/net.onnx", f"{far.removeprefix('memory:/')}/net.onnx")
    fsspec.filesystem("memory").put(f"{tmp_path}/samples.npy", f"{far.removeprefix('memory:/')}/samples.npy")
    (tmp_path / "far.toml").write_text(
        text.replace("net.onnx", f"{far}/net.onnx").replace("samples.npy", f"{far}/samples.npy"), encoding="utf-8"
    )
    there = load_suite(tmp_path / "far.toml").units
    assert [unit.key for unit in there] == [unit.key for unit in near]
    assert there[0].options["model"] == f"{far}/net.onnx"  # what travels to a worker
    store = UnitStore(str(tmp_path / "store"))
    for unit in there:
        do_unit(unit, store.url)
    parts = [store.get(unit.key) or {} for unit in there[1:]]
    assert joined_scores(parts) == joined_scores([compute(unit) for unit in near[1:]])
    found = store.get(there[0].key) or {}
    assert str(tmp_path / "cache") not in str(found)
    assert f"{far}/net.onnx" in str(found["run"])
    default_cache.cache_clear()


def test_a_file_that_changes_while_the_suite_runs_gives_no_result(tmp_path: Path) -> None:
    (unit,) = load_suite(make_zoo(tmp_path)).units
    store = UnitStore(str(tmp_path / "store"))
    with placed(unit, default_cache(), ContentHashes()) as there:
        assert there == unit
    rng = np.random.default_rng(5)

    def swapped(given: Any) -> Any:
        np.save(tmp_path / "samples.npy", rng.normal(size=(12, 3, 8, 8)).astype(np.float32))
        return compute(given)

    for work in (swapped, compute):  # while it is at work, and before
        with pytest.raises(BadInput, match=r"samples\.npy changed while the suite ran") as refused:
            do_unit(unit, store.url, work=work)
        assert "run the suite again" in refused.value.fix
        assert store.get(unit.key) is None


def test_what_cannot_be_fetched_is_said(tmp_path: Path, far: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = FetchedFiles(tmp_path, 1000)
    for url in (f"{far}/none.npy", "nonsense://x/y.npy"):
        with pytest.raises(BadInput, match="cannot be fetched") as refused:
            cache.digest(url)
        assert url in str(refused.value)
        assert refused.value.fix
    # Half of it came.
    put(f"{far}/a.bin", b"x" * 100)
    monkeypatch.setattr(
        fsspec.filesystem("memory"), "get_file", lambda _, path, **__: Path(path).write_bytes(b"x" * 40)
    )
    with pytest.raises(BadInput, match="40 of 100 bytes"):
        cache.digest(f"{far}/a.bin")
    assert entries(tmp_path) == []
    monkeypatch.setenv("ROUNDOFF_SUITE_CACHE_BYTES", "20GB")
    default_cache.cache_clear()
    with pytest.raises(BadInput, match="no number of bytes"):
        default_cache()


def test_a_shared_claim_is_no_ones_alone(tmp_path: Path) -> None:
    first, second = claim(tmp_path, shared=True), claim(tmp_path, shared=True)
    assert first is not None
    assert second is not None
    assert claim(tmp_path) is None
    os.close(first)
    assert claim(tmp_path) is None
    os.close(second)
    alone = claim(tmp_path)
    assert alone is not None
    assert claim(tmp_path, shared=True) is None
    os.close(alone)
