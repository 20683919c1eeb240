"""Suites whose files and store lie on servers of this machine; with the packages of `make test-suite`."""

import os
import socket
import struct
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from roundoff.suite.store import UnitStore
from tests.suite.zoo import SUITE, make_zoo

LOOPBACK = socket.inet_ntoa(struct.pack(">I", socket.INADDR_LOOPBACK))
ROOT = Path(__file__).resolve().parents[2]


class Served(SimpleHTTPRequestHandler):
    """Files of a folder; counts what is asked for."""

    got: ClassVar[Counter[str]] = Counter()

    def do_GET(self) -> None:
        type(self).got[self.path] += 1
        super().do_GET()

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    pytest.importorskip("aiohttp", reason="aiohttp is not installed (make test-suite)")
    (tmp_path / "web").mkdir()
    Served.got.clear()
    server = ThreadingHTTPServer((LOOPBACK, 0), partial(Served, directory=str(tmp_path / "web")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://{LOOPBACK}:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def s3() -> Iterator[Mapping[str, str]]:
    """What the environment of a process says of an S3 server that is here, and has the bucket 'zoo'."""
    pytest.importorskip("s3fs", reason="s3fs is not installed (make test-suite)")
    moto = pytest.importorskip("moto.server", reason="moto is not installed (make test-suite)")
    import boto3  # type: ignore[import-not-found,unused-ignore]

    server = moto.ThreadedMotoServer(ip_address=LOOPBACK, port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    words = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=f"http://{host}:{port}", **words).create_bucket(Bucket="zoo")
    yield {"FSSPEC_S3_ENDPOINT_URL": f"http://{host}:{port}", **{f"FSSPEC_S3_{k}": "x" for k in ("KEY", "SECRET")}}
    server.stop()


def roundoff(folder: Path, *words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """The command, in a process of its own, as its workers are."""
    paths = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    about = {**os.environ, "PYTHONPATH": paths, "ROUNDOFF_SUITE_CACHE": str(folder / "cache"), **environment}
    command = [sys.executable, "-m", "roundoff", *words]
    return subprocess.run(command, cwd=folder, env=about, capture_output=True, text=True, check=False)


def held(cache: Path) -> int:
    """Bytes of all that the cache holds."""
    return sum(file.stat().st_size for file in cache.rglob("*") if file.is_file() and file.parent.name != "index")


def test_workers_fetch_each_file_once_and_keep_within_bounds(tmp_path: Path, web: str) -> None:
    text = SUITE.replace('data = "samples.npy"', f'data = "{web}/samples.npy"').replace("[commands.layers]", "")
    models = [f"[models.net{n}]\nmodel = '{web}/net{n}.onnx'\ndata = '{web}/samples.npy'\n" for n in range(3)]
    text = text.replace("net.onnx", f"{web}/net0.onnx") + "".join(models)
    file = make_zoo(tmp_path / "web", text + "[commands.layers]\n[commands.evaluate]\nsplit = 3\n")
    file.rename(tmp_path / "suite.toml")
    for number in range(3):
        content = (tmp_path / "web" / "net.onnx").read_bytes()
        (tmp_path / "web" / f"net{number}.onnx").write_bytes(content.replace(b"First", b"Fir%dt" % number))
    done = roundoff(tmp_path, "suite", "run", "suite.toml", "--workers", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    names = ["/net0.onnx", "/net1.onnx", "/net2.onnx", "/samples.npy"]
    assert {name: Served.got[name] for name in names} == dict.fromkeys(names, 1)
    # Planned again, and nothing is fetched again.
    assert roundoff(tmp_path, "suite", "status", "suite.toml").returncode == 0
    assert sum(Served.got.values()) == 4
    # Where not all of it can be kept, all of it is done all the same.
    sizes = [(tmp_path / "web" / name[1:]).stat().st_size for name in names]
    bytes_ = str(sizes[0] + sizes[3] + 100)
    done = roundoff(
        tmp_path, "suite", "run", "suite.toml", "--workers", "1", "--store", "small",
        ROUNDOFF_SUITE_CACHE=str(tmp_path / "small cache"), ROUNDOFF_SUITE_CACHE_BYTES=bytes_,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert held(tmp_path / "small cache") <= int(bytes_)
    keys = [key for key, _ in UnitStore(str(tmp_path / "store")).unit_keys()]
    stores = [UnitStore(str(tmp_path / name)) for name in ("store", "small")]
    assert len(keys) == 9  # the first two models are the same
    assert all(stores[0].raw(key) == stores[1].raw(key) for key in keys)


def test_a_server_that_is_not_there_is_said(tmp_path: Path, web: str) -> None:
    file = make_zoo(tmp_path, SUITE.replace("net.onnx", f"{web}/none.onnx"))
    said = roundoff(tmp_path, "suite", "plan", str(file))
    assert said.returncode == 2
    assert f"{web}/none.onnx cannot be fetched" in " ".join(said.stderr.split())
    assert "Traceback" not in said.stderr
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        nobody = f"http://{LOOPBACK}:{probe.getsockname()[1]}"
    pytest.importorskip("s3fs", reason="s3fs is not installed (make test-suite)")
    file = make_zoo(tmp_path, SUITE.replace('"store"', '"s3://zoo/store"'))
    keys = {f"FSSPEC_S3_{name}": "x" for name in ("KEY", "SECRET")}
    for words in (("run", "--workers", "1"), ("gate",)):
        said = roundoff(tmp_path, "suite", words[0], str(file), *words[1:], FSSPEC_S3_ENDPOINT_URL=nobody, **keys)
        assert said.returncode == 2, said.stdout
        assert "The store s3://zoo/store does not answer" in " ".join(said.stderr.split())
        assert "fix:" in said.stderr
        assert "Traceback" not in said.stderr


def test_a_suite_on_s3_gives_the_bytes_of_one_in_a_folder(
    tmp_path: Path, s3: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    import fsspec

    fsspec.config.set_conf_env(fsspec.config.conf)
    far = fsspec.filesystem("s3", skip_instance_cache=True)
    text = SUITE.replace("samples.npy", "s3://zoo/in/samples.npy").replace("net.onnx", "s3://zoo/in/net.onnx")
    file = make_zoo(tmp_path, text + "[commands.evaluate]\nsplit = 4\n")
    for name in ("net.onnx", "samples.npy"):
        far.put(str(tmp_path / name), f"zoo/in/{name}")
    here = roundoff(tmp_path, "suite", "run", str(file), "--workers", "1", **s3)
    assert here.returncode == 0, here.stderr
    there = roundoff(tmp_path, "suite", "run", str(file), "--store", "s3://zoo/store", "--workers", "2", **s3)
    assert there.returncode == 0, there.stderr
    local, remote = UnitStore(str(tmp_path / "store")), UnitStore("s3://zoo/store")
    keys = [key for key, _ in local.unit_keys()]
    assert len(keys) == 3
    assert [local.raw(key) for key in keys] == [remote.raw(key) for key in keys]
    # Weights that were replaced there are another model.
    changed = np.load(tmp_path / "samples.npy") + 1
    np.save(tmp_path / "samples.npy", changed)
    far.put(str(tmp_path / "samples.npy"), "zoo/in/samples.npy")
    status = roundoff(tmp_path, "suite", "status", str(file), "--store", "s3://zoo/store", **s3)
    assert status.returncode == 1
    assert "2 of 2 units to do" in status.stdout
    gone = roundoff(tmp_path, "suite", "gc", "s3://zoo/store", "--suite", "zoo", **s3)
    assert "1 run and 3 units removed" in gone.stdout
    assert list(remote.unit_keys()) == []
