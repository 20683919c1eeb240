"""Errors with the vendor's exit codes, and why one tensor was not compared."""

from enum import IntEnum

from roundoff.errors import BadInput

__all__ = ["Code", "NotCompared", "Refused"]


class Code(IntEnum):
    """The vendor's exit codes."""

    FINE = 0
    UNKNOWN = 1
    NO_DUMP = 2
    PATH = 3
    NOT_PARSED = 4
    PARAMETER = 6
    DATA = 11
    INDEX = 12
    JSON = 13
    DUMP = 18
    KIND = 20
    ELEMENT_TYPE = 21
    FORMAT = 22
    SHAPE = 23
    FILE_TYPE = 24
    CONVERSION = 26
    JSON_CONTENT = 29
    UNSUPPORTED = 30
    ALGORITHM = 31
    FRACTAL = 34
    OVERFLOW_KIND = 35
    OVERFLOW_STATUS = 36


class Refused(BadInput):
    """The run cannot go on; it ends with the vendor's exit code.

    Args:
        what: What failed, in the vendor's words where scripts look for them.
        code: The vendor's exit code.
        fix: What to do about it.
    """

    def __init__(
        self, what: str, /, *, code: Code, fix: str = "see 'roundoff ascend compare -h' for what goes together"
    ) -> None:
        super().__init__(what, fix=fix)
        self.exit_code = int(code)


class NotCompared(Exception):
    """One operator or tensor was not compared; its row says why.

    Args:
        message: The reason, as it stands in the row.
        code: The vendor's code for it.
    """

    def __init__(self, message: str, /, *, code: Code) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
