"""Pieces of a ranking or a search that other machines do: nodes of a ranking, samples of an evaluation.

A worker gets a network, the paths of samples and the hash of what they hold, and answers with sums or scores. It
runs exactly what one process would have run, in the same chunks: the bits are the same, wherever they come from.
"""

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from roundoff.api.call import Call, DataOptions, Limits
from roundoff.api.inputs import DataLike, data_inputs, is_path, open_data
from roundoff.core.quantizers import SwitchedSubject
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.interface import inputs
from roundoff.graph.load import Model
from roundoff.messages.message import english
from roundoff.run import executors
from roundoff.run.bench import Bench
from roundoff.run.evaluators import EvaluationSamples, Subset, evaluator_in, make_run
from roundoff.run.executors import DaskWorkers, LocalWorkers
from roundoff.run.session import available_threads
from roundoff.search.evaluators import FunctionJudge, JudgeOptions, with_evaluator
from roundoff.search.judges import ClassJudge, Measure, SignalJudge, TrialJudge, predicted_classes

if TYPE_CHECKING:
    from roundoff.core.quantizers import Quantizer
    from roundoff.graph.quantized_model import QuantizedModel
    from roundoff.quantize.calibration.calibration import Calibration, Observe
    from roundoff.quantize.calibration.methods import Detail
    from roundoff.run.budget import RunBudget
    from roundoff.run.capture import Samples
    from roundoff.studies.partial.scores import CandidateScoring, Chunks, ChunkScores
    from roundoff.studies.sensitivity.exact import ExactEngine
    from roundoff.studies.sensitivity.ranking import SensitivitySettings

Workers = LocalWorkers | DaskWorkers

# Models, samples and open engines that a worker keeps for the next piece.
_MOST_KEPT = 3
# So many pieces per worker: the slowest does not keep all others waiting.
_PIECES = 2
_KEPT: "OrderedDict[str, Any]" = OrderedDict()


def _kept(key: str, make: Callable[[], Any]) -> Any:
    """What was made for an earlier piece, or is made now."""
    if key not in _KEPT:
        _KEPT[key] = make()
        while len(_KEPT) > _MOST_KEPT:
            _KEPT.popitem(last=False)
    _KEPT.move_to_end(key)
    return _KEPT[key]


@dataclass(frozen=True, slots=True)
class SampleFiles:
    """Samples as workers find them.

    Attributes:
        data: Their paths.
        options: How they are read.
        limit: Take at most so many.
        digest: Hash of what they hold.
    """

    data: Any
    options: tuple[tuple[str, Any], ...]
    limit: int | None
    digest: str

    @classmethod
    def of(cls, call: Call, data: DataLike, *, limit: int | None) -> "SampleFiles":
        """Samples that were given.

        Raises:
            BadInput: They are in memory.
        """
        if is_path(data):
            found: Any = str(Path(data).absolute())
        elif isinstance(data, Mapping) and data and all(map(is_path, data.values())):
            found = {name: str(Path(each).absolute()) for name, each in data.items()}
        elif isinstance(data, list | tuple) and data and all(map(is_path, data)):
            found = [_absolute(str(each)) for each in data]
        else:
            what = english("Workers elsewhere read samples from files, and none were given.")
            raise BadInput(what, fix=english("give paths that all of them see, or leave --dask out"))
        names = set(DataOptions.__annotations__) - {"data", "samples", *Limits.__annotations__}
        options = {name: call.get(name) for name in sorted(names) if call.get(name) is not None}
        return cls(found, tuple(options.items()), limit, _digest(data))

    def open(self, model: Model) -> "Samples":
        """Open them, once they are known to be the same here.

        Raises:
            BadInput: They hold something else here.
        """
        if _digest(self.data) != self.digest:
            what = english("{data} holds something else on a worker.", data=self.data)
            raise BadInput(what, fix=english("let all machines see the same files"))
        call = Call("samples", dict(self.options), DataOptions)
        return open_data(self.data, inputs(model), call.sample_options(limit=self.limit))


def _absolute(word: str) -> str:
    """A path, or INPUT=PATH, that means the same in every folder."""
    if Path(word).exists() or "=" not in word:
        return str(Path(word).absolute())
    name, _, path = word.partition("=")
    return f"{name}={Path(path).absolute()}"


def _digest(data: DataLike) -> str:
    return "".join(each.sha256 for each in data_inputs("data", data, None))


@contextlib.contextmanager
def open_cluster(dask: str, call: Call) -> Iterator[tuple[Workers, SampleFiles]]:
    """The workers of a cluster, and the samples of a call as they find them.

    Raises:
        BadInput: The samples are in memory.
    """
    files = SampleFiles.of(call, call.get("data"), limit=call.get("samples"))
    with executors.open_workers(dask=dask) as workers:
        yield workers, files


def with_threads(threads: int | None) -> int:
    """Threads that every worker is to use: how samples are put together goes by them."""
    return available_threads() if threads is None else threads


def _shares(count: int, workers: int, *, multiple: int = 1) -> list[slice]:
    """Places cut into pieces, each but the last a multiple of something."""
    pieces = max(1, min(-(-count // multiple), _PIECES * workers))
    size = -(-count // (pieces * multiple)) * multiple
    return [slice(start, min(count, start + size)) for start in range(0, count, size)]


# Sensitivity over nodes ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SensitivityPiece:
    """Subjects of one stage of a ranking.

    Attributes:
        samples: What they are measured on.
        settings: With what effort.
        subjects: All subjects of the analysis.
        asked: Those of the stage, which decide what is kept of the samples.
        outputs: What is compared.
        indices: All samples of the analysis.
        loaded: Those of the stage.
        chosen: Places of the subjects to measure, among `asked`.
        keys: What their sums depend on; a worker that would compute something else says so.
        network: Hash of the quantized network.
    """

    samples: SampleFiles
    settings: "SensitivitySettings"
    subjects: tuple[SwitchedSubject, ...]
    asked: tuple[SwitchedSubject, ...]
    outputs: tuple[str, ...]
    indices: tuple[int, ...]
    loaded: tuple[int, ...]
    chosen: tuple[int, ...]
    keys: tuple[str, ...]
    network: str


def measure_piece(quantized: "QuantizedModel", piece: SensitivityPiece) -> list[Array]:
    """Sums of some subjects; this is what workers call.

    Raises:
        BadInput: This worker would not compute the same.
    """
    from roundoff.studies.sensitivity.exact import ExactEngine

    def opened() -> ExactEngine:
        samples = piece.samples.open(quantized.float_model)
        about = {"subjects": piece.subjects, "outputs": piece.outputs, "indices": piece.indices}
        return ExactEngine(quantized, samples, piece.settings, **about)  # type: ignore[arg-type]

    engine: ExactEngine = _kept(f"sensitivity {piece.network} {piece.settings} {piece.samples}", opened)
    subjects = [piece.asked[place] for place in piece.chosen]
    if engine.loaded != piece.loaded or engine.loaded_for != piece.asked:
        engine.load(piece.loaded, piece.asked)
    if tuple(map(engine.key, subjects)) != piece.keys:
        what = english("A worker would put samples together in another way than this machine.")
        raise BadInput(what, fix=english("give --max-memory and --threads, which then hold for all of them"))
    found = dict(engine.measure(subjects))
    return [found[subject] for subject in subjects]


def measured_elsewhere(
    workers: Workers, quantized: "QuantizedModel", samples: SampleFiles
) -> "Callable[..., Generator[tuple[SwitchedSubject, Array], None, None]]":
    """What measures subjects in workers instead of here; for `analyze_sensitivity`."""
    from roundoff.graph.quantized_model import combined_hash, model_hash, quantizer_hash

    network = combined_hash([model_hash(quantized.float_model), quantizer_hash(quantized.quantizers)])
    shared = workers.share(quantized)

    def measure(
        engine: "ExactEngine", subjects: Sequence[SwitchedSubject], asked: Sequence[SwitchedSubject]
    ) -> Generator[tuple[SwitchedSubject, Array], None, None]:
        places = {subject: place for place, subject in enumerate(asked)}
        futures = []
        for share in _shares(len(subjects), workers.workers):
            some = tuple(subjects[share])
            piece = SensitivityPiece(
                samples,
                engine.settings,
                engine.subjects,
                tuple(asked),
                engine.outputs,
                engine.indices,
                engine.loaded,
                tuple(places[each] for each in some),
                tuple(map(engine.key, some)),
                network,
            )
            futures.append((some, workers.submit(measure_piece, shared, piece)))
        for some, future in futures:
            yield from zip(some, future.result(), strict=True)

    return measure


# An evaluation over samples --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EvaluationPiece:
    """Samples of an evaluation.

    Attributes:
        samples: All samples.
        indices: Which are measured.
        kind: ``classes``, ``signal`` or ``function``.
        output: Of classes, which output has them.
        evaluator: Of a function, its file.
        threads: Threads to use.
        network: Hash of the float network.
        max_memory: Bytes that a worker may take.
    """

    samples: SampleFiles
    indices: tuple[int, ...]
    kind: str
    output: int
    evaluator: str
    threads: int | None
    network: str
    max_memory: int | None


def evaluate_piece(in_float: Model, model: Model, piece: EvaluationPiece) -> Array:
    """Classes, decibels or values of some samples; this is what workers call."""
    shared = f"{piece.network} {piece.samples} {piece.threads}"
    bench: Bench = _kept(
        f"bench {shared}",
        lambda: Bench(in_float, piece.samples.open(in_float), threads=piece.threads, max_memory=piece.max_memory),
    )
    if piece.kind == "classes":
        return predicted_classes(bench, model, piece.indices, output=piece.output)
    if piece.kind == "signal":
        judge: SignalJudge = _kept(f"signal {shared}", lambda: SignalJudge(bench))
        return judge.measure(model, piece.indices)
    options = _kept(
        f"function {piece.evaluator}", lambda: with_evaluator(JudgeOptions(evaluator=Path(piece.evaluator)))
    )
    evaluator = evaluator_in(options.module, Path(piece.evaluator))
    chosen = EvaluationSamples(bench.model, bench.samples, piece.indices)
    return np.asarray(evaluator.measure(make_run(model, threads=piece.threads), chosen)).reshape(-1)


def evaluated_elsewhere(
    workers: Workers, samples: SampleFiles, *, limits: "RunBudget", evaluator: Path | None
) -> "Callable[[TrialJudge, Model], Measure]":
    """What measures candidates in workers instead of here; for `roundoff.search.tune`."""
    from roundoff.graph.quantized_model import model_hash

    def of(judge: TrialJudge, in_float: Model) -> Measure:
        kinds: tuple[tuple[type, str], ...] = (
            (ClassJudge, "classes"),
            (SignalJudge, "signal"),
            (FunctionJudge, "function"),
        )
        kind = next((name for each, name in kinds if isinstance(judge, each)), "")
        file = evaluator is not None and evaluator.is_file()
        if not kind or not judge.by_sample or not _same_shapes(in_float) or (kind == "function" and not file):
            return judge.measure
        shared, network = workers.share(in_float), model_hash(in_float)
        together = judge.bench.together if isinstance(judge, ClassJudge | SignalJudge) else 1

        def measure(model: Model, indices: Sequence[int]) -> Array:
            candidate = workers.share(model)
            futures = []
            for share in _shares(len(indices), workers.workers, multiple=together):
                chosen = tuple(int(index) for index in indices[share])
                output = judge.output if isinstance(judge, ClassJudge) else 0
                path = "" if evaluator is None else str(evaluator.absolute())
                piece = EvaluationPiece(
                    samples, chosen, kind, output, path, limits.threads, network, limits.max_memory
                )
                futures.append(workers.submit(evaluate_piece, shared, candidate, piece))
            found = np.concatenate([future.result() for future in futures])
            return judge.compared(found, indices) if isinstance(judge, ClassJudge) else found

        return measure

    return of


# Samples of a sweep ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class ScoringPiece:
    """Samples that candidates of a sweep are tried on.

    Attributes:
        samples: All samples.
        indices: Those of the sweep.
        chosen: Which of them are run.
        metrics: Names of what outputs are compared by.
        labels: Right classes of all rows of the sweep.
        together: Samples that may run together.
        threads: Threads to use.
        network: Hash of the float network.
    """

    samples: SampleFiles
    indices: tuple[int, ...]
    chosen: tuple[int, ...]
    metrics: tuple[str, ...]
    labels: Array | None
    together: int
    threads: int | None
    network: str


def score_piece(
    in_float: Model, choices: "Sequence[Sequence[Quantizer]]", piece: ScoringPiece
) -> "list[ChunkScores]":
    """What some samples tell of candidates; this is what workers call."""
    from roundoff.measure.metrics import get_metric
    from roundoff.studies.partial.scores import CandidateRunner, CandidateScoring

    def opened() -> CandidateRunner:
        about = (piece.indices, list(map(get_metric, piece.metrics)), piece.labels)
        return CandidateRunner(
            CandidateScoring(in_float, piece.samples.open(in_float), *about, threads=piece.threads)
        )

    key = f"scoring {piece.network} {piece.samples} {piece.indices} {piece.metrics} {piece.threads} {piece.labels}"
    runner: CandidateRunner = _kept(key, opened)
    return list(runner.chunks(choices, piece.together, piece.chosen))


def scored_elsewhere(workers: Workers, samples: SampleFiles) -> "Chunks":
    """What runs samples of a sweep in workers instead of here; for `roundoff.studies.partial`."""
    from roundoff.graph.quantized_model import model_hash

    def chunks(
        trial: "CandidateScoring", choices: "Sequence[Sequence[Quantizer]]", together: int
    ) -> "Iterator[ChunkScores]":
        model, shared = workers.share(trial.model), workers.share(choices)
        network, metrics = model_hash(trial.model), tuple(each.name for each in trial.metrics)
        threads = with_threads(trial.threads)
        futures = []
        for share in _shares(len(trial.indices), workers.workers, multiple=together):
            chosen = tuple(trial.indices[share])
            about = (tuple(trial.indices), chosen, metrics, trial.labels, together, threads, network)
            futures.append(workers.submit(score_piece, model, shared, ScoringPiece(samples, *about)))
        for future in futures:
            yield from future.result()

    return chunks


# A calibration over samples --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CalibrationPiece:
    """Samples of a calibration.

    Attributes:
        samples: All samples.
        indices: Which are run.
        names: What these are called.
        tensors: What is observed, with the axis along which channels are told apart.
        detail: Whether ranges are enough.
        threads: Threads to use.
        max_memory: Bytes that a worker may take.
    """

    samples: SampleFiles
    indices: tuple[int, ...]
    names: tuple[str, ...]
    tensors: tuple[tuple[str, int | None], ...]
    detail: "Detail"
    threads: int | None
    max_memory: int | None


def calibrate_piece(model: Model, piece: CalibrationPiece) -> "Calibration":
    """What some samples tell of tensors; this is what workers call.

    Raises:
        BadInput: This worker would run other samples.
    """
    from roundoff.quantize.calibration.calibration import calibrate

    chosen = Subset(piece.samples.open(model), piece.indices)
    if chosen.names != piece.names:
        what = english("{data} holds something else on a worker.", data=piece.samples.data)
        raise BadInput(what, fix=english("let all machines see the same files"))
    tensors, threads, memory = dict(piece.tensors), piece.threads, piece.max_memory
    return calibrate(model, chosen, tensors, detail=piece.detail, threads=threads, max_memory=memory)


def observed_elsewhere(
    workers: Workers, files: SampleFiles, *, threads: int | None, max_memory: int | None
) -> "Observe":
    """What observes tensors in workers instead of here: counts and ranges merge exactly."""

    def observe(
        model: Model, samples: "Samples", tensors: Mapping[str, int | None], detail: "Detail"
    ) -> "Calibration":
        names, indices = samples.names, range(len(samples.names))
        chosen = tuple(indices)
        while isinstance(samples, Subset):
            chosen, samples = tuple(samples.indices[index] for index in chosen), samples.samples
        shared, futures = workers.share(model), []
        for share in _shares(len(chosen), workers.workers):
            about = (chosen[share], names[share], tuple(tensors.items()), detail, threads, max_memory)
            futures.append(workers.submit(calibrate_piece, shared, CalibrationPiece(files, *about)))
        found: Calibration = futures[0].result()
        for future in futures[1:]:
            found = found.merge(future.result())
        return found

    return observe


@contextlib.contextmanager
def observed_in_cluster(dask: str, call: Call) -> "Iterator[Observe]":
    """What observes tensors in the workers of a cluster."""
    with open_cluster(dask, call) as (workers, files):
        yield observed_elsewhere(workers, files, threads=call.threads, max_memory=call.max_memory)


@contextlib.contextmanager
def scored_in_cluster(dask: str, call: Call) -> "Iterator[Chunks]":
    """What runs samples of a sweep in the workers of a cluster."""
    with open_cluster(dask, call) as (workers, files):
        yield scored_elsewhere(workers, files)


def _same_shapes(model: Model) -> bool:
    """Whether all samples have one shape: neighbours are then put together by their places alone."""
    return all(
        each.shape is not None and all(isinstance(size, int) for size in each.shape[1:]) for each in inputs(model)
    )
