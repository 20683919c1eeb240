"""The one way in which reading stored values says why it cannot, without knowing whose values they are."""

__all__ = ["Unreadable"]


class Unreadable(Exception):
    """One array cannot be read; who reads it turns this into a row with a problem or a `BadInput`.

    Args:
        problem: Why, in a few words without the file's name.
        fix: What to do about it.
        dtype: The type it should have, when that much is known.
        shape: The shape it should have, likewise.
    """

    def __init__(
        self,
        problem: str,
        /,
        *,
        fix: str = "write the file again, or leave this tensor out",
        dtype: str = "",
        shape: tuple[int, ...] = (),
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.fix = fix
        self.dtype = dtype
        self.shape = shape
