"""Suites under fire: kills, races, a store on S3, a scheduler that goes away; what they cost and gain.

``python -m benchmarks suite`` runs all of them, ``python -m benchmarks.suite NAME ...`` some: overhead, speed,
kills, race, s3, scheduler, scale. Servers
listen on the loopback address alone; those that need a package which is not installed say so and are left out.
"""

import contextlib
import hashlib
import importlib
import multiprocessing
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from roundoff import demo
from roundoff.suite.fetching import ContentHashes
from roundoff.suite.matrix import SuiteUnit, load_suite
from roundoff.suite.store import UnitStore
from roundoff.suite.unit import RunLimits, compute, run_units

_LOOPBACK = socket.inet_ntoa(struct.pack(">I", socket.INADDR_LOOPBACK))
TINY, MOST_MS = 10_000, 3.0
KILLS, RACERS = 10, 20
LEAST_SPEED_UP, MOST_OVERHEAD = 1.7, 0.05
EVALUATED = 64_000


# What workers call; by the module's own name, so that any process finds it.


def nothing(unit: SuiteUnit) -> dict[str, Any]:
    return {"key": unit.key, "exit_code": 0, "figures": {}}


def noted(unit: SuiteUnit) -> dict[str, Any]:
    """A unit that takes a moment, and leaves a mark whenever it is begun."""
    marks = Path(str(unit.options["marks"]))
    (marks / f"{unit.key}-{time.time_ns()}-{os.getpid()}").touch()
    time.sleep(float(unit.options["seconds"]))
    return nothing(unit)


def _units(count: int, **options: Any) -> list[SuiteUnit]:
    keys = (hashlib.sha256(f"unit {number}".encode()).hexdigest() for number in range(count))
    return [SuiteUnit(f"unit {at}", "layers", "m", "", options, key=key) for at, key in enumerate(keys)]


def _bytes(store: UnitStore, units: list[SuiteUnit]) -> str:
    return hashlib.sha256(b"".join(store.raw(unit.key) or b"missing" for unit in units)).hexdigest()


def _mine() -> Any:
    return importlib.import_module("benchmarks.suite")


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="suite-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def overhead() -> bool:
    """10,000 units that do nothing: what a unit costs beside its work."""
    with _folder() as folder:
        units = _units(TINY)
        store = UnitStore(str(folder / "store"))
        began = time.monotonic()
        states = run_units(units, store, RunLimits(workers=1), work=_mine().nothing)
        first = (time.monotonic() - began) / TINY * 1e3
        began = time.monotonic()
        again = run_units(units, store, RunLimits(workers=1), work=_mine().nothing)
        second = (time.monotonic() - began) / TINY * 1e3
    done = all(each.state == "done" for each in states) and all(each.state == "known" for each in again)
    print(f"{TINY} units: {first:.2f} ms each; {second:.2f} ms each to find out that they are done", flush=True)
    return done and first < MOST_MS


def _evaluation(folder: Path, *, samples: int, split: int) -> Path:
    import numpy as np

    shutil.copy(demo.model_path(), folder / "digits.onnx")
    images, labels = demo.load_split("test")
    many = -(-samples // len(images))
    np.save(folder / "images.npy", np.concatenate([images] * many)[:samples])
    np.save(folder / "labels.npy", np.concatenate([labels] * many)[:samples])
    np.save(folder / "calibration.npy", images[:32])
    file = folder / "suite.toml"
    file.write_text(
        f'name = "speed"\ntargets = ["generic-int8"]\n[models.digits]\nmodel = "digits.onnx"\n'
        f'data = "calibration.npy"\neval_data = "images.npy"\nlabels = "labels.npy"\n'
        f"[commands.evaluate]\nsplit = {split}\n",
        encoding="utf-8",
    )
    return file


_LOOP = """
import sys
from pathlib import Path
from roundoff.suite.matrix import load_suite
from roundoff.suite.unit import compute
for unit in load_suite(Path(sys.argv[1])).units:
    compute(unit)
"""


def _spent(words: list[str]) -> tuple[float, float, list[float]]:
    """Seconds by the clock, CPU seconds of a command with all it starts, and those of each process it starts."""
    began = time.monotonic()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    ticks, busy = os.sysconf("SC_CLK_TCK"), {}
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.2):
            with contextlib.suppress(OSError):
                threads = Path(f"/proc/{process.pid}/task").glob("*/children")
                for child in " ".join(each.read_text() for each in threads).split():
                    fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
                    busy[child] = (int(fields[11]) + int(fields[12])) / ticks

    threading.Thread(target=look, daemon=True).start()
    _, status, used = os.wait4(process.pid, 0)
    over.set()
    process.returncode = status
    if status:
        raise RuntimeError(f"{words} ended with {status}")
    return time.monotonic() - began, used.ru_utime + used.ru_stime, sorted(busy.values())


def speed() -> bool:
    """An evaluation with one worker and with two, and against a plain loop: same bytes, how much time?

    Others may use the machine, too: what is judged are CPU seconds, of all processes for what a suite costs, and
    of the busiest one for what two workers gain. Seconds by the clock are printed with the load.
    """
    with _folder() as folder:
        file = _evaluation(folder, samples=EVALUATED, split=EVALUATED // 16)
        units = list(load_suite(file).units)
        spent = {"loop": _spent([sys.executable, "-c", _LOOP, str(file)])}
        digests = set()
        for workers in (1, 2, 4):
            store = str(folder / f"with {workers}")
            words = [sys.executable, "-m", "roundoff", "suite", "run", str(file), "--store", store]
            spent[f"{workers}"] = _spent([*words, "--workers", f"{workers}"])
            digests.add(_bytes(UnitStore(store), units))
    clock, cpu, _ = zip(*spent.values(), strict=True)
    main, longest = cpu[2] - sum(spent["2"][2]), spent["2"][2][-1]
    more, fast = cpu[1] / cpu[0] - 1, cpu[1] / (main + longest)
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    for name, figures in (("CPU seconds", cpu), (f"seconds at a {load}", clock)):
        said = ", ".join(
            f"{who} {each:.1f}" for who, each in zip(("loop", "one", "two", "four"), figures, strict=True)
        )
        print(f"{len(units)} units, {name}: {said}", flush=True)
    print(
        f"one worker costs {more:+.1%}; two are {fast:.2f} times as fast by the CPU seconds of the busiest "
        f"({clock[1] / clock[2]:.2f} by the clock); same bytes: {len(digests) == 1}",
        flush=True,
    )
    return len(digests) == 1 and fast >= LEAST_SPEED_UP and more < MOST_OVERHEAD


def kills() -> bool:
    """Workers are killed with -9 at random, ten times: the same bytes, and at most their own units done again."""
    with _folder() as folder:
        (folder / "marks").mkdir()
        (folder / "quiet").mkdir()
        units = _units(60, marks=str(folder / "marks"), seconds=0.2)
        killed = 0
        store = UnitStore(str(folder / "store"))
        found: list[Any] = []
        limits = RunLimits(workers=2)
        run = threading.Thread(target=lambda: found.extend(run_units(units, store, limits, work=_mine().noted)))
        run.start()
        chance = random.Random(7)  # noqa: S311 - when to kill
        while run.is_alive() and killed < KILLS:
            time.sleep(chance.uniform(0.2, 0.7))
            children = multiprocessing.active_children()
            if children:
                os.kill(chance.choice(children).pid or 0, signal.SIGKILL)
                killed += 1
        run.join()
        begun = len(list((folder / "marks").iterdir()))
        quiet = UnitStore(str(folder / "undisturbed"))
        run_units(units, quiet, RunLimits(workers=2), work=_mine().nothing)
        same = _bytes(store, units) == _bytes(quiet, units)
    failed = sum(each.state != "done" for each in found)
    print(
        f"{killed} kills: {begun - len(units)} units begun again, {failed} failed, same bytes: {same}", flush=True
    )
    return same and not failed and killed == KILLS and begun - len(units) <= killed


_RACER = """
import sys
from benchmarks.suite import _units, nothing
from roundoff.suite.unit import do_unit
for unit in _units(200):
    do_unit(unit, sys.argv[1], work=nothing)
"""


def race() -> bool:
    """Twenty processes do the same 200 units in one store at the same time."""
    with _folder() as folder:
        words = [sys.executable, "-c", _RACER, str(folder / "store")]
        racers = [subprocess.Popen(words) for _ in range(RACERS)]
        codes = {each.wait() for each in racers}
        units, store = _units(200), UnitStore(str(folder / "store"))
        whole = all(store.get(unit.key) == nothing(unit) for unit in units)
        files = sum(path.is_file() for path in (folder / "store").rglob("*"))
    print(f"{RACERS} processes: exit codes {codes}, all whole: {whole}, {files} files for 200 units", flush=True)
    return codes == {0} and whole and files == len(units)


def s3() -> bool:
    """A store on a server that speaks S3, from a package."""
    try:
        import s3fs  # type: ignore[import-not-found,unused-ignore]
        from moto.server import ThreadedMotoServer  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        print(f"left out: {error}; pip install 'roundoff[test-suite]'", flush=True)
        return True
    import logging

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address=_LOOPBACK, port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    about = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
    os.environ.update(
        {**about, "FSSPEC_S3_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ENDPOINT_URL": f"http://{host}:{port}"}
    )
    try:
        s3fs.S3FileSystem(endpoint_url=f"http://{host}:{port}").mkdir("zoo")
        units, store = _units(40), UnitStore("s3://zoo/store")
        states = run_units(units, store, RunLimits(workers=2), work=_mine().nothing)
        again = run_units(units, UnitStore("s3://zoo/store"), RunLimits(workers=1), work=_mine().nothing)
        store._objects.replace(f"units/{units[0].key[:2]}/{units[0].key}.json", b"damaged")
        mended = run_units(units, store, RunLimits(workers=1), work=_mine().nothing)
        absent = store.put(units[1].key, {"other": 1})
        store.add_run("zoo", [{"key": unit.key} for unit in units])
        gone = store.collect(suite="zoo")
        left = len(list(store.unit_keys()))
    finally:
        server.stop()
    good = [sum(each.state == "done" for each in part) for part in (states, again, mended)]
    print(
        f"S3: done {good[0]}, then {good[1]}, after damage {good[2]}; put where one is: {absent}; "
        f"{len(gone[1])} collected, {left} left",
        flush=True,
    )
    return good == [40, 0, 1] and not absent and len(gone[1]) == 40 and left == 0


def scheduler() -> bool:  # noqa: PLR0915 - a story of two schedulers
    """A Dask scheduler is killed in the middle, and another one takes its place."""
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        print(f"left out: {error}; pip install 'roundoff[test-suite]'", flush=True)
        return True
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        port = probe.getsockname()[1]
    address = f"tcp://{_LOOPBACK}:{port}"
    processes: list[subprocess.Popen[bytes]] = []

    def start() -> list[subprocess.Popen[bytes]]:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        dask = [
            sys.executable,
            "-m",
            "distributed.cli.dask_scheduler",
            "--host",
            _LOOPBACK,
            "--port",
            str(port),
            "--no-dashboard",
        ]
        worker = [
            sys.executable,
            "-m",
            "distributed.cli.dask_worker",
            address,
            "--nthreads",
            "1",
            "--no-dashboard",
        ]
        found = [subprocess.Popen(dask, **quiet), subprocess.Popen([*worker, "--host", _LOOPBACK], **quiet)]  # type: ignore[call-overload]
        processes.extend(found)
        return found

    with _folder() as folder:
        (folder / "marks").mkdir()
        units = _units(40, marks=str(folder / "marks"), seconds=0.2)
        found: list[Any] = []
        store = UnitStore(str(folder / "store"))
        first = start()
        limits = RunLimits(dask=address)
        run = threading.Thread(target=lambda: found.extend(run_units(units, store, limits, work=_mine().noted)))
        try:
            run.start()
            while len(list((folder / "marks").iterdir())) < 10 and run.is_alive():
                time.sleep(0.1)
            for each in first:
                each.kill()
                each.wait()
            start()
            run.join(240)
            alive = run.is_alive()
        finally:
            for each in processes:
                each.kill()
        begun = len(list((folder / "marks").iterdir()))
        quiet = UnitStore(str(folder / "undisturbed"))
        run_units(units, quiet, RunLimits(workers=1), work=_mine().nothing)
        same = _bytes(store, units) == _bytes(quiet, units)
    done = sum(each.state in ("done", "known") for each in found)
    again = begun - len(units)
    print(f"scheduler killed: {done} of {len(units)} done, {again} begun again, same bytes: {same}", flush=True)
    return not alive and same and done == len(units) and begun - len(units) <= 2


# A zoo to reckon with: models on chips, each with an evaluation of so many samples in ranges of so many.
ZOO_MODELS, ZOO_CHIPS, ZOO_WORKERS, ZOO_SAMPLES, ZOO_RANGE = 1_000, 4, 100, 50_000, 5_000
# Of a model, which a worker gets over its network; what that brings, of 1 Gbit/s; how often S3 is asked whether a
# unit is done, how long it takes to answer, and how many questions are asked at a time.
MODEL_BYTES, NETWORK_BYTES_S, ANSWERS, ANSWER_S, HANDS = 100e6, 110e6, 2, 0.05, 16
_SCALED = """
targets = ["generic-int8"]
[options]
samples = 16
[models.net]
model = "net.onnx"
data = "images.npy"
[commands.layers]
[commands.diagnose]
[commands.evaluate]
samples = 64
"""


def _unit_costs(folder: Path) -> dict[str, float]:
    """CPU seconds of a unit of each command, of a sample of an evaluation, and of a byte that is hashed."""
    import numpy as np

    from benchmarks.models import save_mobilenet_v2

    save_mobilenet_v2(folder / "net.onnx", 224)
    rng = np.random.default_rng(0)
    images = rng.normal(size=(64, 3, 7, 7)).repeat(32, 2).repeat(32, 3) + rng.normal(size=(64, 3, 224, 224)) / 4
    np.save(folder / "images.npy", images.astype(np.float32))
    (folder / "suite.toml").write_text(_SCALED, encoding="utf-8")
    found = {}
    for unit in load_suite(folder / "suite.toml").units:
        began = time.process_time()
        compute(unit)
        found[unit.command] = time.process_time() - began
    ranged = replace(unit, span=(0, 32))  # quantized already: what is left are its samples
    began = time.process_time()
    compute(ranged)
    found["sample"] = (time.process_time() - began) / 32
    found["opening"] = found["evaluate"] - 64 * found["sample"]
    began = time.process_time()
    ContentHashes().of(folder / "images.npy")
    found["byte"] = (time.process_time() - began) / (folder / "images.npy").stat().st_size
    units = _units(2_000)
    began = time.process_time()
    run_units(units, UnitStore(str(folder / "store")), RunLimits(workers=1), work=_mine().nothing)
    found["unit"] = (time.process_time() - began) / len(units)  # of whoever hands them out
    return found


def scale() -> bool:
    """What 1,000 models on 100 workers come to, by the costs of units that are measured here; the slowest part."""
    with _folder() as folder:
        cost = _unit_costs(folder)
    cells, ranges = ZOO_MODELS * ZOO_CHIPS, -(-ZOO_SAMPLES // ZOO_RANGE)
    units = cells * (2 + ranges)
    spread = {
        "layers": cells * cost["layers"],
        "diagnose": cells * cost["diagnose"],
        "evaluate": cells * (ranges * cost["opening"] + ZOO_SAMPLES * cost["sample"]),
        # At worst every worker fetches every model.
        "fetching": ZOO_MODELS * ZOO_WORKERS * MODEL_BYTES / NETWORK_BYTES_S,
    }
    alone = {
        "handing out units": units * cost["unit"],
        "hashing models": ZOO_MODELS * MODEL_BYTES * cost["byte"],
        "asking S3 what is done": units * ANSWERS * ANSWER_S / HANDS,
    }
    print(
        f"layers {cost['layers']:.1f} s, diagnose {cost['diagnose']:.1f} s, evaluate {cost['opening']:.1f} s and "
        f"{cost['sample'] * 1e3:.1f} ms a sample, hashing {1e-6 / cost['byte']:.0f} MB/s, handing out "
        f"{cost['unit'] * 1e3:.2f} ms a unit, all in CPU seconds; {units} units",
        flush=True,
    )
    whole = {name: seconds / ZOO_WORKERS for name, seconds in spread.items()} | alone
    for name, seconds in whole.items():
        work = f"{spread[name] / 3600:.1f} h of work, " if name in spread else "in one place, "
        print(f"| {name} | {work}{seconds / 60:.1f} min |", flush=True)
    slowest = max(whole, key=lambda name: whole[name])
    full = sum(spread[name] for name in ("layers", "diagnose", "evaluate")) / units / cost["unit"]
    print(f"the slowest part: {slowest}; {full:.0f} workers would keep whoever hands out units busy", flush=True)
    return True


PROOFS: Mapping[str, Callable[[], bool]] = {
    "overhead": overhead, "speed": speed, "kills": kills, "race": race, "s3": s3, "scheduler": scheduler,
    "scale": scale,
}  # fmt: skip


def main() -> int:
    names = [word for word in sys.argv[1:] if word in PROOFS] or list(PROOFS)
    missed = []
    for name in names:
        print(f"-- {name}", flush=True)
        if not PROOFS[name]():
            missed.append(name)
    print(f"missed: {', '.join(missed)}" if missed else "met", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
