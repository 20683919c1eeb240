"""Who does pieces of work: processes of this machine, or a cluster; both behind `concurrent.futures.Executor`.

What is shipped are functions of modules and small values, such as paths and hashes; never a session. Every local
process works on one piece at a time, so that whoever ends it is known: a piece that ends its process is tried
again in a new one, and given up after some tries while all others go on.
"""

import contextlib
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Any

from roundoff.errors import MissingExtra, RoundoffError
from roundoff.messages.message import english
from roundoff.messages.numbers import duration_text
from roundoff.run.session import available_threads

TRIES = 3
"""So often a piece may lose its worker."""

LOCAL = "local"
"""In place of the address of a scheduler: start a cluster on this machine."""

# Threads of libraries would fight over the cores that other workers have; what a piece itself asks for, it gets.
_QUIET = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class PieceFailed(RoundoffError):
    """A piece of work that its worker could not finish.

    Args:
        what: What happened.
        fix: What to do.
        kind: ``killed`` or ``time``.
    """

    exit_code = 4

    def __init__(self, what: str, /, *, fix: str, kind: str) -> None:
        super().__init__(what, fix=fix)
        self.kind = kind


def piece_killed(tries: int) -> PieceFailed:
    """It ended its worker each time."""
    what = english("Its worker was ended {tries} times while it ran.", tries=tries)
    fix = english("run it alone and watch its memory; give it less with max_memory")
    return PieceFailed(what, fix=fix, kind="killed")


def piece_late(limit_s: float) -> PieceFailed:
    """It took longer than it may."""
    what = english("It took longer than {limit}.", limit=duration_text(limit_s))
    return PieceFailed(what, fix=english("allow more with --time-limit, or take fewer samples"), kind="time")


@dataclass(slots=True)
class _WorkPiece:
    future: "Future[Any]"
    function: Callable[..., Any]
    args: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)


class LocalWorkers(Executor):
    """Processes of this machine, each with a piece at a time.

    Args:
        workers: How many; as many as there are cores by default.
        tries: So often a piece may lose its worker, or fail to read or write, before it is given up.
        limit_s: Seconds that a piece may take; its worker is ended then, and it is not tried again.
    """

    def __init__(self, workers: int | None = None, *, tries: int = TRIES, limit_s: float | None = None) -> None:
        self.workers = workers or available_threads()
        self._tries, self._limit_s = tries, limit_s
        self._waiting: queue.SimpleQueue[_WorkPiece | None] = queue.SimpleQueue()
        self._closed = False
        self._slots = [threading.Thread(target=self._serve, daemon=True) for _ in range(self.workers)]
        for slot in self._slots:
            slot.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Have a function of a module called in a worker."""
        if self._closed:
            raise RuntimeError("the workers were sent home")
        future: Future[Any] = Future()
        self._waiting.put(_WorkPiece(future, fn, args, kwargs))
        return future

    def share(self, value: Any) -> Any:
        """What stands for a value in the arguments of several pieces."""
        return value

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Send the workers home, once they are done with what was submitted."""
        self._closed = True
        if cancel_futures:
            with contextlib.suppress(queue.Empty):
                while (piece := self._waiting.get_nowait()) is not None:
                    piece.future.cancel()
        for _ in self._slots:
            self._waiting.put(None)
        if wait:
            for slot in self._slots:
                slot.join()

    def _serve(self) -> None:
        worker: _Worker | None = None
        while (piece := self._waiting.get()) is not None:
            if piece.future.set_running_or_notify_cancel():
                worker = self._do(piece, worker)
        if worker is not None:
            worker.close()

    def _do(self, piece: _WorkPiece, worker: "_Worker | None") -> "_Worker | None":
        """Get a piece done; gives the worker that is there afterwards."""
        failed: BaseException = piece_killed(self._tries)
        for _ in range(self._tries):
            try:
                if worker is None or not worker.alive:  # one that was ended while it waited costs no try
                    _end(worker)
                    worker = _Worker()
                found = worker.call(piece, self._limit_s)
            except BrokenExecutor:
                _end(worker)
                worker, failed = None, piece_killed(self._tries)
            except OSError as error:  # of a disk or a network, which may be there again
                failed = error
            except BaseException as error:  # noqa: BLE001  whatever it is, it is the piece's own
                late = isinstance(error, PieceFailed) and error.kind == "time"
                if late:
                    _end(worker)
                piece.future.set_exception(error)
                return None if late else worker
            else:
                piece.future.set_result(found)
                return worker
        piece.future.set_exception(failed)
        return worker


class _Worker:
    """A process, and who it is."""

    def __init__(self) -> None:
        # Never a copy of this process: threads of onnxruntime do not survive that.
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, mp_context=context, initializer=_begin)
        self._process = self._pool.submit(os.getpid).result()
        self._child = next((each for each in multiprocessing.active_children() if each.pid == self._process), None)

    @property
    def alive(self) -> bool:
        return self._child is None or self._child.is_alive()

    def call(self, piece: _WorkPiece, limit_s: float | None) -> Any:
        future = self._pool.submit(piece.function, *piece.args, **piece.options)
        try:
            return future.result(timeout=limit_s)
        except TimeoutError:
            if future.done() or limit_s is None:  # the piece's own
                raise
            raise piece_late(limit_s) from None

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            os.kill(self._process, getattr(signal, "SIGKILL", signal.SIGTERM))
        self.close()

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


def _end(worker: _Worker | None) -> None:
    if worker is not None:
        worker.kill()


def _begin() -> None:
    """What a worker does first: be quiet on Ctrl-C, which is its owner's affair, and leave when that is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update({name: value for name, value in _QUIET.items() if name not in os.environ})
    owner = multiprocessing.parent_process()
    if owner is not None:
        threading.Thread(target=_leave_after, args=(owner.sentinel,), daemon=True).start()


def _leave_after(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


# Many machines ---------------------------------------------------------------------------------------------------


class DaskWorkers(Executor):
    """Workers of a Dask cluster.

    Args:
        address: Of its scheduler; ``local`` to start a cluster on this machine.
        workers: Of a cluster that is started here.
        tries: So often a piece may lose its worker, or fail, before it is given up.

    Raises:
        MissingExtra: `distributed` is not installed.
        PieceFailed: There is no scheduler at the address.
    """

    def __init__(self, address: str, *, workers: int | None = None, tries: int = TRIES) -> None:
        try:
            import distributed
        except ImportError as error:
            raise MissingExtra(english("A cluster"), package="distributed", extra="dask") from error
        self._tries, self._cluster = tries, None
        if address == LOCAL:
            self._cluster = distributed.LocalCluster(
                n_workers=workers or available_threads(),
                threads_per_worker=1,
                dashboard_address=None,
                silence_logs=50,
            )
        try:
            self._client = distributed.Client(self._cluster or address, set_as_default=False, timeout="20s")
        except (OSError, ValueError) as error:
            what = english("There is no scheduler at {address}: {error}.", address=address, error=error)
            fix = english("start one: dask scheduler; then dask worker ADDRESS --nthreads 1 on each machine")
            raise PieceFailed(what, fix=fix, kind="address") from error
        self._futures: set[Any] = set()

    @property
    def workers(self) -> int:
        """Threads of all workers."""
        return max(1, int(sum(self._client.nthreads().values())))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Have a function called in a worker; the keyword `resources` says what it needs of one."""
        given: Future[Any] = Future()
        given.set_running_or_notify_cancel()
        needs = kwargs.pop("resources", None)
        future = self._client.submit(fn, *args, pure=False, retries=self._tries - 1, resources=needs, **kwargs)
        # Whoever forgets a future of Dask's gives up its work.
        self._futures.add(future)

        def done(found: Any) -> None:
            self._futures.discard(found)
            self._pass_on(found, given)

        future.add_done_callback(done)
        return given

    def share(self, value: Any) -> Any:
        """What stands for a value in the arguments of several pieces: it travels to each worker once."""
        return self._client.scatter(value, hash=False)

    def _pass_on(self, found: Any, given: "Future[Any]") -> None:
        from distributed.scheduler import KilledWorker

        try:
            given.set_result(found.result())
        except KilledWorker:
            given.set_exception(piece_killed(self._tries))
        except BaseException as error:  # noqa: BLE001  whatever it is, it is the piece's own
            lost = found.status in ("lost", "cancelled")
            given.set_exception(ConnectionError(str(error)) if lost else error)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster; end it, where it was started here."""
        if cancel_futures:
            for future in list(self._futures):
                future.cancel()
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()


@contextlib.contextmanager
def open_workers(
    workers: int | None = None, *, dask: str | None = None, tries: int = TRIES, limit_s: float | None = None
) -> "Iterator[LocalWorkers | DaskWorkers]":
    """Workers, sent home in the end; at once where it ends by an error.

    Args:
        workers: How many of this machine.
        dask: Address of a scheduler; ``local`` to start a cluster on this machine; None for processes.
        tries: So often a piece may lose its worker before it is given up.
        limit_s: Seconds that a piece may take in processes of this machine.
    """
    found: LocalWorkers | DaskWorkers
    if dask is None:
        found = LocalWorkers(workers, tries=tries, limit_s=limit_s)
    else:
        found = DaskWorkers(dask, workers=workers, tries=tries)
    try:
        yield found
    except BaseException:
        found.shutdown(wait=False, cancel_futures=True)
        raise
    found.shutdown()
