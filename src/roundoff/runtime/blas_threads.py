"""How many threads numpy's matrix products use.

They wait for one another by spinning. Where other work shares the cores (onnxruntime, another sample) a
product on all cores takes many times as long as one on a single core, so whoever computes many of them chooses.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

__all__ = ["blas_threads"]


@dataclass(slots=True)
class _Users:
    """How many are using the setting, and what sets back what was before the first came."""

    count: int = 0
    limit: Any = None


_LOCK = threading.Lock()
_USERS = _Users()


@contextmanager
def blas_threads(count: int) -> Iterator[None]:
    """Let matrix products use so many threads; where no BLAS is known, nothing changes.

    Of several that overlap the first one counts, and the last one to end sets back what was. threadpoolctl's own
    limits each set back what they found, which is wrong once two passes on two threads end in another order.
    """
    with _LOCK:
        if _USERS.count == 0:
            _USERS.limit = _libraries().limit(limits=count)
        _USERS.count += 1
    try:
        yield
    finally:
        with _LOCK:
            _USERS.count -= 1
            if _USERS.count == 0:
                _USERS.limit.restore_original_limits()


@cache  # finding what is loaded takes a millisecond, setting it a few microseconds; numpy's is loaded by now
def _libraries() -> Any:
    """The BLAS libraries of this process, whoever brought them."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
