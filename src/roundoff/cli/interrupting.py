"""Ctrl-C and being told to terminate: at once, but never in the middle of loading a library of machine code."""

import signal
import types
from importlib.machinery import ExtensionFileLoader
from typing import NoReturn

__all__ = ["interrupt_tidily"]

# How soon it is tried again, in seconds.
_AGAIN_S = 0.02


def interrupt_tidily() -> None:
    """End as tidily when told to terminate as on Ctrl-C.

    Libraries of machine code that are interrupted while they are loaded crash, or say that they failed. Only from
    the main thread. Who started the process so that Ctrl-C does nothing is obeyed.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(_: int, frame: types.FrameType | None) -> None:
    if hasattr(signal, "setitimer") and _must_not_be_torn(frame):
        signal.signal(signal.SIGALRM, _interrupt)
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        return
    _stop()


def _stop() -> NoReturn:
    raise KeyboardInterrupt


def _must_not_be_torn(frame: types.FrameType | None) -> bool:
    """Whether a frame, or one that called it, is about to load a library, or names the fields of a class.

    What interrupts the latter is taken for a fault of the class.
    """
    while frame is not None:
        if frame.f_code.co_name == "__set_name__":
            return True
        if frame.f_code.co_name in ("create_module", "exec_module") and isinstance(
            frame.f_locals.get("self"), ExtensionFileLoader
        ):
            return True
        frame = frame.f_back
    return False
