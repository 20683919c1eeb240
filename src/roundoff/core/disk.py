"""A limit on what a command may write."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from roundoff.errors import BadInput
from roundoff.messages.numbers import format_size

__all__ = ["DiskBudget", "disk_budget"]

# Kept free when the user gives no limit: this share of what is free, but no more than so much.
_SPARE_SHARE = 0.05
_MOST_SPARE_BYTES = 512 * 2**20


@dataclass(frozen=True, slots=True)
class DiskBudget:
    """How much may be written, and why so much."""

    limit_bytes: int
    reason: str

    def check(self, size: int, *, claim: str) -> None:
        """Refuse a size beyond the limit.

        Args:
            size: Bytes on disk.
            claim: What takes them, as the start of a sentence ("The dump takes about").

        Raises:
            BadInput: It is more than allowed.
        """
        if size > self.limit_bytes:
            limit = format_size(self.limit_bytes)
            raise BadInput(
                f"{claim} {format_size(size)} on disk; the limit is {limit} ({self.reason}).",
                fix="narrow it with --tensors GLOB or --samples N, write --stats-only, or raise --max-disk",
            )


def disk_budget(folder: Path, max_disk: int | None) -> DiskBudget:
    """The limit the user gave, or what is free where `folder` is or will be."""
    if max_disk is not None:
        return DiskBudget(max_disk, "--max-disk")
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    spare = min(int(free * _SPARE_SHARE), _MOST_SPARE_BYTES)
    return DiskBudget(free - spare, f"free space less {format_size(spare)}")
