"""Ctrl-C ends a run that would take for ever."""

import signal
import threading
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from roundoff.run.capture import LiveSource
from roundoff.run.session import Session, interruptible, open_session
from tests.models import conv_net, loaded, value, wrapped
from tests.run.samples import MemorySamples

IMAGE = np.ones((1, 3, 8, 8), np.float32)


def endless(folder: Path) -> Session:
    """A model whose only node repeats 2**62 times."""
    scalar = {"index": TensorProto.INT64, "go": TensorProto.BOOL}
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Neg", ["a"], ["b"])],
        "body",
        [*(value(name, (), kind) for name, kind in scalar.items()), value("a", (2,))],
        [value("on", (), TensorProto.BOOL), value("b", (2,))],
    )
    counts = [
        numpy_helper.from_array(np.array(2**62), "times"),
        numpy_helper.from_array(np.array(True), "start"),
    ]
    loop = helper.make_node("Loop", ["times", "start", "x"], ["y"], body=body)
    return open_session(loaded(wrapped([loop], [value("x", (2,))], [value("y", (2,))], counts), folder))


def test_an_interrupt_ends_a_run_inside_one_node(tmp_path: Path) -> None:
    session = endless(tmp_path)
    press = threading.Timer(0.2, signal.raise_signal, [signal.SIGINT])
    press.start()
    with pytest.raises(KeyboardInterrupt):
        session.run({"x": np.ones(2, np.float32)})
    press.join()


def test_work_on_another_thread_is_done_there() -> None:
    threads = []
    worker = threading.Thread(target=lambda: threads.append(interruptible(threading.get_ident, stop=lambda: None)))
    worker.start()
    worker.join()
    assert threads == [worker.ident]
    assert interruptible(threading.get_ident, stop=lambda: None) != threading.get_ident()


def test_an_interrupted_source_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = LiveSource(loaded(conv_net(), tmp_path), MemorySamples([{"image": IMAGE}]))
    closed = []
    monkeypatch.setattr(source, "close", lambda: closed.append(True))

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        source.read("logits", "s0")
    assert closed == [True]


def test_closing_twice_does_no_harm(tmp_path: Path) -> None:
    source = LiveSource(loaded(conv_net(), tmp_path), MemorySamples([{"image": IMAGE}]))
    before = source.read("logits", "s0")
    source.close()
    source.close()
    assert np.isfinite(before).all()
