"""How much memory there is for a run when the user does not say."""

import os
from pathlib import Path

__all__ = ["available_memory"]

# Share of the free memory a run may take; the rest is for everything else on the machine.
_SHARE = 0.8
_FALLBACK_BYTES = 4 * 2**30


def available_memory() -> int:
    """Bytes a run may take: most of what is free on this machine or in this container."""
    free = [value for value in (_free_on_machine(), _free_in_container()) if value is not None]
    return int(_SHARE * min(free)) if free else _FALLBACK_BYTES


def _free_on_machine() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    try:
        # Systems without /proc do not say what is free; half of what is built in is a safe guess.
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (OSError, ValueError, AttributeError):
        return None


def _free_in_container() -> int | None:
    folder = Path("/sys/fs/cgroup")
    try:
        limit = int((folder / "memory.max").read_text(encoding="ascii"))
        used = int((folder / "memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        return None
    return max(0, limit - used)
