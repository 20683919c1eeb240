"""The exact engine: a changed block is run from stored activations, then all that comes after it.

The model is cut into blocks; what is live at the cuts is kept for each chunk of samples. A subject opens only the
blocks its quantizers act in, runs them from there, and goes on through the sessions of the blocks below, which are
open all the time. Several subjects run side by side, each on one thread.
"""

import json
import math
import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import cached_property
from pathlib import Path
from threading import Event
from typing import IO, Any

import numpy as np

from roundoff.core.files import reading, regular_file, writing
from roundoff.core.progress import SILENT, Progress
from roundoff.core.quantizers import Quantizer, SwitchedSubject
from roundoff.core.tensors import Array
from roundoff.core.untrusted import parse_json
from roundoff.errors import BadInput
from roundoff.graph.interface import OutputPart, parts_of_rows
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel, combined_hash, model_hash, quantizer_hash
from roundoff.graph.shapes import values
from roundoff.measure.metrics import require
from roundoff.measure.rows import ROW_FIELDS, RowMeter, table_sqnr_db
from roundoff.messages.message import Message, english
from roundoff.messages.numbers import nonfinite_note
from roundoff.run.block_network import BlockChange, BlockNetwork, NetworkSettings, OpenedChange, Recording
from roundoff.run.capture import Samples, read_feed
from roundoff.studies.sensitivity.ranking import SensitivitySettings

_HEADER = {"roundoff": "sensitivity journal", "schema": 1}
_OPTION = "--resume"
_SPECIAL = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


class Journal:
    """Measurements by their hash, in memory and in a file.

    Args:
        path: The file; it is made when it does not exist. Without one nothing is remembered.

    Attributes:
        damaged: Lines of the file that are no measurements; what they held is measured again.

    Raises:
        BadInput: The file is something else, or cannot be read or written.
    """

    damaged: int

    def __init__(self, path: Path | None) -> None:
        self.damaged = 0
        self._known: dict[str, Array] = {}
        self._file: IO[str] | None = None
        self._path = path
        if path is None:
            return
        whole_bytes = self._read(path) if path.exists() else 0
        with writing(path, option=_OPTION):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a", encoding="utf-8")
            # What a killed run left of its last line goes.
            self._file.truncate(whole_bytes)
        if not whole_bytes:
            self._write(_HEADER)

    @property
    def used(self) -> bool:
        """Whether there is a file."""
        return self._file is not None

    def find(self, key: str) -> Array | None:
        """What was measured under a hash."""
        return self._known.get(key)

    def add(self, key: str, values: Array) -> None:
        """Remember a measurement; it is on the disk when this returns."""
        if self._file is None:
            return
        self._known[key] = values
        numbers = [number if math.isfinite(number) else str(number) for number in values.ravel().tolist()]
        self._write({"key": key, "shape": values.shape, "values": numbers})

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, entry: dict[str, Any]) -> None:
        if self._file is not None and self._path is not None:
            with writing(self._path, option=_OPTION):
                self._file.write(json.dumps(entry) + "\n")
                self._file.flush()

    def _read(self, path: Path) -> int:
        """Take in a file; gives the bytes up to the end of its last whole line."""
        size = regular_file(path, what=english("The journal"))
        with reading(path, what=english("The journal")):
            data = path.read_bytes() if size else b""
        whole = data[: data.rfind(b"\n") + 1]
        lines = whole.splitlines()
        if (lines and _parsed(lines[0]) != _HEADER) or (data and not lines and not _begins_header(data)):
            raise BadInput(
                english("{path} is not a journal of 'roundoff sensitivity'.", path=path),
                fix=english("name a file that does not exist yet"),
            )
        for line in lines[1:]:
            found = _measurement(_parsed(line))
            if found is None:
                self.damaged += 1
            else:
                self._known[found[0]] = found[1]
        return len(whole)


def _parsed(line: bytes) -> Any:
    try:
        return parse_json(line, _OPTION)
    except BadInput:
        return None


def _measurement(entry: Any) -> tuple[str, Array] | None:
    """What a line says, and under which hash; None when it is damaged."""
    try:
        key, shape, values = entry["key"], entry["shape"], entry["values"]
        numbers = [_SPECIAL[number] if isinstance(number, str) else float(number) for number in values]
        array = np.array(numbers, dtype=np.float64).reshape([int(size) for size in shape])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return (key, array) if isinstance(key, str) else None


def _begins_header(data: bytes) -> bool:
    return json.dumps(_HEADER).encode().startswith(data)


NOISE_MARGIN_DB = 20.0
"""So far below the error that is measured, rounding adds less than 0.05 dB to it."""

Measurement = tuple[SwitchedSubject, Array]
"""A subject, and its sums of shape (samples, outputs, numbers); see `roundoff.measure.rows`."""

_LOOK_UP_S = 0.1
# Samples on which fused kernels, and running samples together, are tried out.
_TRIED_SAMPLES = 2


class _Stopped(Exception):
    """The measurement was ended from outside."""


class ExactEngine:
    """Measures subjects by running the model.

    Args:
        quantized: The model.
        samples: The samples.
        settings: What to measure, and with what effort.
        subjects: All that may be asked for.
        outputs: The tensors to compare.
        indices: All samples that may be asked for.

    Attributes:
        network: The blocks of the model.
        settings: As given.
        subjects: As given.
        outputs: As given.
        indices: As given.
        loaded_for: The subjects that the samples were loaded for.

    Raises:
        BadInput: The model, the samples and the settings do not fit together.
        ModelFailed: The model cannot be run.
    """

    network: BlockNetwork
    loaded_for: tuple[SwitchedSubject, ...]

    def __init__(
        self,
        quantized: QuantizedModel,
        samples: Samples,
        settings: SensitivitySettings,
        *,
        subjects: Sequence[SwitchedSubject],
        outputs: Sequence[str],
        indices: Sequence[int],
    ) -> None:
        self._quantized, self._samples, self._settings = quantized, samples, settings
        self.settings, self.subjects, self.indices = settings, tuple(subjects), tuple(indices)
        self.outputs, self.loaded_for = tuple(outputs), ()
        self._by_name = {each.name: each for each in quantized.quantizers}
        self._meter = RowMeter(require(settings.metrics, command="sensitivity", offers=ROW_FIELDS))
        self.network = BlockNetwork(
            quantized,
            _trial_feeds(quantized.float_model, samples, indices),
            _network_settings(quantized, settings, subjects, outputs=outputs, samples=len(indices)),
        )
        self._changes: dict[SwitchedSubject, BlockChange] = {}
        self._recording = Recording(self.network, ())
        self._stop = Event()
        self._opened: list[OpenedChange] = []
        self._key: str | None = None
        self._nonfinite: dict[str, None] = {}

    @property
    def notes(self) -> tuple[Message, ...]:
        """What the reader should know of how it measures."""
        return (*self.network.notes, *nonfinite_note("output", list(self._nonfinite)))

    def reaches(self, subject: SwitchedSubject) -> bool:
        """Whether anything that is compared depends on a subject at all."""
        return self.network.reaches(self._by_name[name] for name in subject.quantizers)

    def load(
        self, samples: Sequence[int], subjects: Sequence[SwitchedSubject], *, progress: Progress = SILENT
    ) -> None:
        """Run the base on samples, and keep what these subjects start from."""
        self._recording.close()
        self.loaded_for = tuple(subjects)
        changes = [change for change in map(self._change, subjects) if change.blocks]
        self._recording = Recording(
            self.network,
            {change.blocks[0] for change in changes},
            tails=[change.tail for change in changes if change.tail is not None],
        )
        progress.start("running the model", len(samples))
        try:
            model = self._quantized.float_model
            self._recording.record(model, self._samples, samples, on_chunk=progress.advance)
        finally:
            progress.finish()
        self._nonfinite |= self._recording.nonfinite_outputs()

    def key(self, subject: SwitchedSubject) -> str:
        """A hash of everything that the sums of a subject on these samples depend on."""
        network = self.network
        if self._key is None:
            self._key = combined_hash(
                [
                    model_hash(self._quantized.float_model),
                    self._settings.mode,
                    *([quantizer_hash(self._quantized.quantizers)] if self._settings.mode == "left_out" else []),
                    ("sums", self._meter.counts_near, self._settings.parts),
                    network.cutting.wanted,
                    tuple(block.nodes[0] for block in network.cutting.blocks),
                    (network.room.together, network.arithmetic, network.runner.agreement_db),
                ]
            )
        own = quantizer_hash([self._by_name[name] for name in subject.quantizers])
        from_tail = self._recording.holds(self._change(subject).tail)
        return combined_hash([self._key, own, from_tail, *(chunk.digest for chunk in self._recording.chunks)])

    def cost(self, subject: SwitchedSubject) -> int:
        """Blocks to run for a subject, all chunks together, and one for opening its own."""
        blocks = self._change(subject).blocks
        below = len(self.network.cutting.blocks) - blocks[0] if blocks else 0
        return 1 + below * len(self._recording.chunks)

    @property
    def loaded(self) -> tuple[int, ...]:
        """The samples that are loaded, in the order of the sums."""
        return tuple(index for chunk in self._recording.chunks for index in chunk.samples)

    def passes(self, subjects: Sequence[SwitchedSubject]) -> float:
        """What measuring all these subjects takes, in runs of the whole model on the same samples."""
        cutting = self.network.cutting
        starts = (change.blocks[0] for change in map(self._change, subjects) if change.blocks)
        return sum(cutting.seconds_from(start) for start in starts) / cutting.seconds_from(0)

    def base_sums(self) -> Array:
        """Sums of the base itself, of shape (samples, outputs, numbers)."""
        return self._sums(self.network.open(self.network.change(self._base_quantizers())))

    def measure(
        self, subjects: Sequence[SwitchedSubject], *, deadline: float | None = None
    ) -> Generator[Measurement, None, None]:
        """Measure subjects, each as soon as it is done; those that cannot be done by the deadline are left out.

        Args:
            subjects: What to switch.
            deadline: By the clock of `time.monotonic`.
        """
        self._stop.clear()
        with ThreadPoolExecutor(self.network.room.workers, thread_name_prefix="subject") as pool:
            running: dict[Future[Array], SwitchedSubject] = {}
            try:
                for subject in subjects:
                    running[pool.submit(self._measure, subject, deadline)] = subject
                while running:
                    done, _ = wait(running, timeout=_LOOK_UP_S, return_when=FIRST_COMPLETED)
                    for future in sorted(done, key=list(running).index):
                        subject = running.pop(future)
                        if not isinstance(future.exception(), _Stopped):
                            yield subject, future.result()
            finally:
                # After an error, Ctrl-C, or when nobody wants more of it; otherwise nothing is left to end.
                self._end(running)

    def close(self) -> None:
        """Give back memory and files."""
        self._recording.close()

    def _end(self, running: Mapping[Future[Array], SwitchedSubject]) -> None:
        if not running:
            return
        self._stop.set()
        for future in running:
            future.cancel()
        self.network.stop()
        for opened in list(self._opened):
            opened.stop()

    def _measure(self, subject: SwitchedSubject, deadline: float | None) -> Array:
        change, network = self._change(subject), self.network
        sums = self._run(change, deadline, plain=False)
        if network.arithmetic == "precise":
            # What comes near the rounding of fused kernels is measured without them.
            sqnr_db = table_sqnr_db(sums)
            near = sqnr_db[np.isfinite(sqnr_db)] > network.runner.agreement_db - NOISE_MARGIN_DB
            sums = self._run(change, deadline, plain=True) if near.any() else sums
        return sums

    def _run(self, change: BlockChange, deadline: float | None, *, plain: bool) -> Array:
        self._check_time(deadline)
        opened = self.network.open(change, tail=self._recording.holds(change.tail), plain=plain)
        self._opened.append(opened)
        try:
            return self._sums(opened, deadline=deadline)
        finally:
            self._opened.remove(opened)

    def _check_time(self, deadline: float | None) -> None:
        if self._stop.is_set() or (deadline is not None and time.monotonic() > deadline):
            raise _Stopped

    def _sums(self, opened: OpenedChange, *, deadline: float | None = None) -> Array:
        found = []
        for number, chunk in enumerate(self._recording.chunks):
            self._check_time(deadline)
            outputs = self._recording.outputs(number, opened)
            both = self._told_apart(self._recording.references(number)), self._told_apart(outputs)
            found.append(self._meter.measure(*both, len(chunk.samples)))
        return np.concatenate(found)

    def _told_apart(self, outputs: Sequence[Array]) -> list[Array]:
        if not self._settings.parts:
            return list(outputs)
        return [part.of(array) for parts, array in zip(self._parts, outputs, strict=True) for part in parts]

    @cached_property
    def _parts(self) -> list[list[OutputPart]]:
        model, wanted = self._quantized.float_model, self.network.cutting.wanted
        feed = {name: array.shape for name, array in read_feed(model, self._samples, self.indices[0]).items()}
        known = {each.name: each.shape for each in values(model, feed) if each.shape is not None}
        return parts_of_rows(model, {name: known.get(name, ()) for name in wanted}, feed)

    def _change(self, subject: SwitchedSubject) -> BlockChange:
        if subject not in self._changes:
            self._changes[subject] = self.network.change(self._switched_on(subject))
        return self._changes[subject]

    def _switched_on(self, subject: SwitchedSubject) -> list[Quantizer]:
        names = frozenset(subject.quantizers)
        alone = self._settings.mode == "alone"
        return [each for each in self._quantized.quantizers if (each.name in names) == alone]

    def _base_quantizers(self) -> Sequence[Quantizer]:
        return self._quantized.quantizers if self._settings.mode == "left_out" else ()


def _network_settings(
    quantized: QuantizedModel,
    settings: SensitivitySettings,
    subjects: Sequence[SwitchedSubject],
    *,
    outputs: Sequence[str],
    samples: int,
) -> NetworkSettings:
    """How to cut and run the model for these subjects, and so many samples."""
    return NetworkSettings(
        wanted=tuple(outputs),
        base="float" if settings.mode == "alone" else "quantized",
        changes=_demand(quantized, subjects),
        samples=samples if settings.exact else min(samples, 2 * settings.begin_with),
        arithmetic=settings.arithmetic or ("precise" if settings.exact else "fast"),
        threads=settings.threads,
        max_memory=settings.max_memory,
        blocks=settings.blocks,
    )


def _demand(quantized: QuantizedModel, subjects: Sequence[SwitchedSubject]) -> Mapping[str, float]:
    """How many subjects act on each node first."""
    consumers = {each.name: each.consumers for each in quantized.quantizers}
    position = {node.name: place for place, node in enumerate(quantized.float_model.proto.graph.node)}
    found: Counter[str] = Counter()
    for subject in subjects:
        touched = {each.node for name in subject.quantizers for each in consumers[name]}
        if touched:
            found[min(touched, key=lambda node: position.get(node, 0))] += 1
    return {node: float(count) for node, count in found.items()}


def _trial_feeds(model: Model, samples: Samples, indices: Sequence[int]) -> list[Mapping[str, Array]]:
    """A few samples with the shapes of the first."""
    feeds = [read_feed(model, samples, index) for index in indices[:_TRIED_SAMPLES]]
    shapes = [{name: array.shape for name, array in feed.items()} for feed in feeds]
    return [feed for feed, own in zip(feeds, shapes, strict=True) if own == shapes[0]]
