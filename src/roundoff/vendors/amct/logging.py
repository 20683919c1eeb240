"""Where the functions say what they do: the logger of this package, and a file of AMCT's kind if asked for."""

import logging
from pathlib import Path

from roundoff.core.files import writing

__all__ = [
    "LOGGER",
    "log_to",
]


LOGGER = logging.getLogger("roundoff.vendors.amct")

_LINES = "%(asctime)s - %(levelname)s - [AMCT]:[%(module)s]: %(message)s"


def log_to(folder: Path | str = "amct_log", *, flavour: str = "onnx") -> Path:
    """Write messages to ``<folder>/amct_<flavour>.log`` from now on; nothing is written unless this is called.

    Args:
        folder: Where; the vendor's tools take ``amct_log`` of the working folder.
        flavour: Of which tool the file has the name.

    Returns:
        The file.

    Raises:
        BadInput: It cannot be written.
    """
    path = Path(folder) / f"amct_{flavour}.log"
    if any(getattr(handler, "baseFilename", None) == str(path.absolute()) for handler in LOGGER.handlers):
        return path
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter(_LINES))
    LOGGER.addHandler(handler)
    if LOGGER.level == logging.NOTSET:
        LOGGER.setLevel(logging.INFO)
    return path
