"""Being told of onnxruntime sessions that others open: a user's code runs models, and keeps what it feeds them.

One replacement of `InferenceSession.__init__` serves everybody who listens, and goes when the last one stops: two
that replaced it independently would undo each other.
"""

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["listen", "unlisten"]

Listener = Callable[[Any, Any], None]
"""Is given a session that was just opened, and what it was opened from: a path, or bytes."""

_MARK = "_roundoff_watches"
_LISTENERS: dict[str, Listener] = {}


def listen(name: str, listener: Listener) -> None:
    """Tell somebody of all sessions that are opened from now on.

    Args:
        name: Who it is; an earlier listener of this name is replaced.
        listener: Is called in the thread that opened the session.
    """
    from onnxruntime import InferenceSession

    _LISTENERS[name] = listener
    original = InferenceSession.__init__
    if hasattr(original, _MARK):
        return

    @functools.wraps(original)
    def opening(session: Any, *args: Any, **named: Any) -> None:
        original(session, *args, **named)
        source = args[0] if args else named.get("path_or_bytes")
        for each in tuple(_LISTENERS.values()):
            each(session, source)

    setattr(opening, _MARK, original)
    InferenceSession.__init__ = opening


def unlisten(name: str) -> None:
    """Tell somebody no more; without anybody left, sessions are opened as ever."""
    from onnxruntime import InferenceSession

    _LISTENERS.pop(name, None)
    original = getattr(InferenceSession.__init__, _MARK, None)
    if original is not None and not _LISTENERS:
        InferenceSession.__init__ = original
