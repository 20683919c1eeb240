"""Who does pieces of work: processes of this machine, or a cluster; both behind `concurrent.futures.Executor`.

What is shipped are functions of modules and small values, such as paths and hashes; never a session. Every local
process works on one piece at a time, so that whoever ends it is known: a piece that ends its process is tried
again in a new one, and given up after some tries while all others go on.
"""

import contextlib
import logging
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Any

from roundoff.errors import BadInput, MissingExtra, RoundoffError
from roundoff.messages.message import english
from roundoff.messages.numbers import duration_text
from roundoff.run.session import available_threads

TRIES = 3
"""So often a piece may lose its worker."""

# So often in a row a worker may end before it begins.
_STARTS = 10

LOCAL = "local"
"""In place of the address of a scheduler: start a cluster on this machine."""

# Threads of libraries would fight over the cores that other workers have; what a piece itself asks for, it gets.
_QUIET = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class PieceFailed(RoundoffError):
    """A piece of work that its worker could not finish.

    Args:
        what: What happened.
        fix: What to do.
        kind: ``killed``, ``time``, ``start`` or ``address``.
    """

    exit_code = 4

    def __init__(self, what: str, /, *, fix: str, kind: str) -> None:
        super().__init__(what, fix=fix)
        self.kind = kind
        if kind == "address":
            self.exit_code = BadInput.exit_code


def piece_killed(tries: int) -> PieceFailed:
    """It ended its worker each time."""
    what = english("Its worker was ended {tries} {tries:time|times} while it ran.", tries=tries)
    fix = english("run it alone and watch its memory; give it less with max_memory")
    return PieceFailed(what, fix=fix, kind="killed")


def piece_late(limit_s: float) -> PieceFailed:
    """It took longer than it may."""
    what = english("It took longer than {limit}.", limit=duration_text(limit_s))
    return PieceFailed(what, fix=english("allow more with --time-limit, or take fewer samples"), kind="time")


def workers_failed() -> PieceFailed:
    """They end before they begin."""
    what = english("Workers are ended before they begin to work: {tries} times in a row.", tries=_STARTS)
    return PieceFailed(
        what, fix=english("see what ends them, such as a lack of memory; try fewer --workers"), kind="start"
    )


def _may_pass(error: BaseException) -> bool:
    """Whether a disk, a network or a store may be there again a moment later."""
    return isinstance(error, OSError) or bool(getattr(error, "passing", False))


@dataclass(slots=True, eq=False)
class _WorkPiece:
    future: "Future[Any]"
    function: Callable[..., Any]
    args: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)
    # So often its worker was lost, or it could not read or write.
    lost: int = 0


class LocalWorkers(Executor):
    """Processes of this machine, each with a piece at a time.

    A piece that lost its worker is tried again after all others that wait: whoever ends workers at random does not
    meet the same piece again and again.

    Args:
        workers: How many; as many as there are cores by default.
        tries: So often a piece may lose its worker, or fail to read or write, before it is given up.
        limit_s: Seconds that a piece may take; its worker is ended then, and it is not tried again.
    """

    def __init__(self, workers: int | None = None, *, tries: int = TRIES, limit_s: float | None = None) -> None:
        self.workers = workers or available_threads()
        self._tries, self._limit_s = tries, limit_s
        self._waiting: deque[_WorkPiece] = deque()
        self._again: deque[_WorkPiece] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._slots = [threading.Thread(target=self._serve, daemon=True) for _ in range(self.workers)]
        for slot in self._slots:
            slot.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Have a function of a module called in a worker."""
        if self._closed:
            raise RuntimeError("the workers were sent home")
        future: Future[Any] = Future()
        self._queue(self._waiting, _WorkPiece(future, fn, args, kwargs))
        return future

    def _queue(self, where: deque[_WorkPiece], piece: _WorkPiece) -> None:
        with self._changed:
            where.append(piece)
            self._changed.notify()

    def share(self, value: Any) -> Any:
        """What stands for a value in the arguments of several pieces."""
        return value

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Send the workers home, once they are done with what was submitted."""
        with self._changed:
            self._closed = True
            if cancel_futures:
                for piece in self._waiting:
                    piece.future.cancel()
                self._waiting.clear()
                self._again.clear()
            self._changed.notify_all()
        if wait:
            for slot in self._slots:
                slot.join()

    def _serve(self) -> None:
        worker: _Worker | None = None
        while (piece := self._next()) is not None:
            if piece.lost or piece.future.set_running_or_notify_cancel():
                worker = self._do(piece, worker)
        if worker is not None:
            worker.close()

    def _next(self) -> _WorkPiece | None:
        """What to do; None when everybody is sent home."""
        with self._changed:
            while not self._waiting and not self._again and not self._closed:
                self._changed.wait()
            queue = self._waiting or self._again
            return queue.popleft() if queue else None

    def _do(self, piece: _WorkPiece, worker: "_Worker | None") -> "_Worker | None":
        """Try to get a piece done; gives the worker that is there afterwards."""
        try:
            if worker is None or not worker.alive:  # one that was ended while it waited costs no try
                _end(worker)
                worker = _started()
            found = worker.call(piece, self._limit_s)
        except BrokenExecutor:
            _end(worker)
            self._lose(piece, piece_killed(piece.lost + 1))
            return None
        except BaseException as error:  # noqa: BLE001  whatever it is, it is the piece's own
            if _may_pass(error):
                self._lose(piece, error)
                return worker
            late = isinstance(error, PieceFailed) and error.kind == "time"
            if late:
                _end(worker)
            piece.future.set_exception(error)
            return None if late else worker
        piece.future.set_result(found)
        return worker

    def _lose(self, piece: _WorkPiece, error: BaseException) -> None:
        """Try a piece again later, or give it up."""
        piece.lost += 1
        if piece.lost < self._tries:
            self._queue(self._again, piece)
        else:
            piece.future.set_exception(error)


def _started() -> "_Worker":
    """A worker that is there. Whoever ends it before it has a piece ends no piece."""
    for _ in range(_STARTS):
        with contextlib.suppress(BrokenExecutor):
            return _Worker()
    raise workers_failed()


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

    Dask suspects every piece that a worker had when it ended. One that it gives up is tried again when nothing
    else is under way, so that none is given up for another's sake.

    Args:
        address: Of its scheduler; ``local`` to start a cluster on this machine.
        workers: Of a cluster that is started here.
        tries: So often a piece may lose its worker, or fail to read or write, before it is given up; a scheduler
            of others counts `distributed.scheduler.allowed-failures` and one more at a time.

    Raises:
        MissingExtra: `distributed` is not installed.
        PieceFailed: There is no scheduler at the address.
    """

    def __init__(self, address: str, *, workers: int | None = None, tries: int = TRIES) -> None:
        try:
            import dask
            import distributed
        except ImportError as error:
            raise MissingExtra(english("A cluster"), package="distributed", extra="dask") from error
        self._tries, self._cluster = tries, None
        if address == LOCAL:
            with dask.config.set({"distributed.scheduler.allowed-failures": 0}):
                self._cluster = distributed.LocalCluster(
                    n_workers=workers or available_threads(),
                    threads_per_worker=1,
                    dashboard_address=None,
                    silence_logs=50,
                )
        # A scheduler that goes away is said by whoever asked, not by stack traces of the library.
        for name in ("distributed", "distributed.client"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        try:
            self._client = distributed.Client(self._cluster or address, set_as_default=False, timeout="20s")
        except (OSError, ValueError) as error:
            what = english("There is no scheduler at {address}: {error}.", address=address, error=error)
            fix = english("start one: dask scheduler; then dask worker ADDRESS --nthreads 1 on each machine")
            raise PieceFailed(what, fix=fix, kind="address") from error
        self._running: dict[_WorkPiece, Any] = {}
        self._suspects: deque[_WorkPiece] = deque()
        self._changed = threading.Lock()

    @property
    def workers(self) -> int:
        """Threads of all workers."""
        return max(1, int(sum(self._client.nthreads().values())))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Have a function called in a worker; the keyword `resources` says what it needs of one."""
        given: Future[Any] = Future()
        given.set_running_or_notify_cancel()
        with self._changed:
            self._begin(_WorkPiece(given, fn, args, kwargs))
        return given

    def _begin(self, piece: _WorkPiece) -> None:
        future = self._client.submit(piece.function, *piece.args, pure=False, **piece.options)
        # Whoever forgets a future of Dask's gives up its work.
        self._running[piece] = future

        def done(found: Any) -> None:
            self._pass_on(piece, found)

        future.add_done_callback(done)

    def share(self, value: Any) -> Any:
        """What stands for a value in the arguments of several pieces: it travels to each worker once."""
        # As a piece of its own, which is done again where its worker ends; scattered values are gone then.
        return self._client.submit(_itself, value, pure=False)

    def _pass_on(self, piece: _WorkPiece, found: Any) -> None:
        from distributed.scheduler import KilledWorker

        try:
            value = found.result()
        except BaseException as error:  # noqa: BLE001  whatever it is, it is the piece's own
            if found.status in ("lost", "cancelled"):
                self._end(piece, ConnectionError(str(error)))
            elif isinstance(error, KilledWorker):
                alone = piece.lost > 0
                piece.lost += int(error.allowed_failures) + 1
                self._end(piece, piece_killed(piece.lost) if alone and piece.lost >= self._tries else None)
            elif _may_pass(error):
                piece.lost += 1
                self._end(piece, error if piece.lost >= self._tries else None)
            else:
                self._end(piece, error)
        else:
            self._end(piece, None, value, done=True)

    def _end(
        self, piece: _WorkPiece, error: BaseException | None, value: Any = None, *, done: bool = False
    ) -> None:
        """Tell what a piece came to, or try it again when nothing else is under way."""
        with self._changed:
            self._running.pop(piece, None)
            if error is None and not done:
                self._suspects.append(piece)
            if self._suspects and not self._running:
                self._begin(self._suspects.popleft())
        if error is not None:
            piece.future.set_exception(error)
        elif done:
            piece.future.set_result(value)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster; end it, where it was started here."""
        if cancel_futures:
            for future in list(self._running.values()):
                future.cancel()
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()


def _itself(value: Any) -> Any:
    return value


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
