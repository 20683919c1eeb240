"""Tables of what there is to choose from by name: methods, transforms, strategies, dialects, formats, layers."""

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any, Generic, TypeVar

from roundoff.errors import BadInput, nearest
from roundoff.messages.message import english

Entry = TypeVar("Entry")
Function = TypeVar("Function", bound=Callable[..., Any])


class Table(MutableMapping[str, Entry], Generic[Entry]):
    """Entries of one sort by name, in the order they were added.

    Args:
        sort: What an entry is called in messages.
        entries: Those to begin with.
        load: Called once before the table is first read: imports the modules that add entries.
    """

    def __init__(
        self,
        sort: str,
        entries: Iterable[tuple[str, Entry]] = (),
        *,
        load: Callable[[], object] | None = None,
    ) -> None:
        self._sort, self._load = sort, load
        self._entries: dict[str, Entry] = {}
        for name, entry in entries:
            self.add(name, entry)

    def add(self, name: str, entry: Entry) -> None:
        """Add an entry; who wants to replace one sets it as in any mapping.

        Raises:
            ValueError: There is one of that name.
        """
        if name in self._entries:
            raise ValueError(f"{self._sort} {name!r} is registered twice")
        self._entries[name] = entry

    def register(self, *names: str, make: Callable[[Any], Entry] | None = None) -> Callable[[Function], Function]:
        """Add what is decorated, under one name or several; `make` turns it into an entry."""

        def registered(function: Function) -> Function:
            for name in names:
                self.add(name, function if make is None else make(function))  # type: ignore[arg-type]
            return function

        return registered

    def find(self, name: str) -> Entry:
        """The entry of a name.

        Raises:
            BadInput: There is none.
        """
        if name not in self:
            raise BadInput(
                english("There is no {sort} {name!r}.", sort=self._sort, name=name), fix=nearest(name, self)
            )
        return self[name]

    def names(self) -> tuple[str, ...]:
        """The names of all entries."""
        return tuple(self)

    def __getitem__(self, name: str) -> Entry:
        return self._loaded()[name]

    def __setitem__(self, name: str, entry: Entry) -> None:
        self._loaded()[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._loaded()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded())

    def __len__(self) -> int:
        return len(self._loaded())

    def _loaded(self) -> dict[str, Entry]:
        load, self._load = self._load, None
        if load is not None:
            load()
        return self._entries


def summary_of(declared: Any) -> str:
    """The first line of a docstring."""
    return (declared.__doc__ or "").strip().splitlines()[0]
