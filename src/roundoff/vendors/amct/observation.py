"""What is learned from the runs of a modified model, until enough batches were seen and the record is written."""

import functools
import json
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from roundoff.core.files import regular_file
from roundoff.core.quantizers import Quantizer
from roundoff.core.tensors import Array, InputSpec
from roundoff.core.untrusted import parse_json
from roundoff.errors import BadInput, ModelFailed
from roundoff.graph.insertion import fake_quant_model
from roundoff.graph.interface import inputs, outputs
from roundoff.graph.load import Model, load_model, model_from_proto
from roundoff.graph.readers.reader import read_quantized
from roundoff.graph.save import save_model
from roundoff.graph.subgraph import tap
from roundoff.graph.weights import Weights
from roundoff.messages.message import english
from roundoff.quantize.calibration.observer import ChannelMismatch, Observation, Observer
from roundoff.run.capture import check_feed
from roundoff.run.session import Session, add_session_observer, open_session, remove_session_observer
from roundoff.vendors.amct.config import parse_config, with_algorithm
from roundoff.vendors.amct.layers import AmctLayer, find_layers
from roundoff.vendors.amct.quantizers import (
    balance_factors,
    calibrated_records,
    input_peaks,
    observed_tensors,
    weight_peaks,
)
from roundoff.vendors.amct.records import LayerRecord, read_records, write_records
from roundoff.vendors.facade import AMCT_LOGGER, CannotRun, WrongType

KEY = "roundoff.amct"
"""Where the metadata of a model says that its runs are for calibration."""


@dataclass(frozen=True, slots=True)
class CalibrationStage:
    """What the runs of a model are for.

    Attributes:
        kind: ``calibration``, or ``balance`` for what is observed before that.
        identity: Tells this model from all others.
        record_file: Where the result goes.
        config: The configuration, as its JSON says.
        origins: For each node of the user's model the one that computes its result.
    """

    kind: str
    identity: str
    record_file: str
    config: Mapping[str, Any]
    origins: Mapping[str, str]


def new_stage(
    kind: str, record_file: Path, config: Mapping[str, Any], *, origins: Mapping[str, str]
) -> CalibrationStage:
    """A stage that no other model has."""
    return CalibrationStage(kind, secrets.token_hex(8), str(record_file.absolute()), config, origins)


def write_modified(
    path: Path, model: Model, quantizers: tuple[Quantizer, ...], *, stage: CalibrationStage
) -> None:
    """Write a model whose runs are for calibration, replacing an earlier one.

    Args:
        path: The file.
        model: The float model.
        quantizers: Those of the weights.
        stage: What its runs are for.
    """
    deferred = fake_quant_model(model, quantizers)
    note_stage(deferred.model, stage_text(stage))
    save_model(deferred, path, replace=True)


def stage_text(stage: CalibrationStage) -> str:
    """What the runs of a model are for, in one line."""
    return json.dumps(asdict(stage))


def note_stage(model: Model, text: str) -> None:
    """Write into the metadata of a new model what its runs are for."""
    properties = model.proto.metadata_props
    _remove(properties)
    properties.add(key=KEY, value=text)


def stage_of(metadata: Mapping[str, str]) -> CalibrationStage | None:
    """What the runs of a model are for, by its metadata; None when it is any other model."""
    try:
        return CalibrationStage(**parse_json(metadata[KEY], KEY)) if KEY in metadata else None
    except (BadInput, TypeError):
        return None


def without_stage(model: Model) -> Model:
    """The same as an ordinary model."""
    copy = model_from_proto(model.proto, path=model.path)
    _remove(copy.proto.metadata_props)
    return copy


def open_modified(path: Path) -> tuple[CalibrationStage, Model]:
    """What the runs of a model are for, and the float model in it.

    Raises:
        CannotRun: It is no such model.
        BadInput: It cannot be read.
    """
    model = load_model(path)
    stage = stage_of({each.key: each.value for each in model.proto.metadata_props})
    if stage is None:
        what = english("{path} was not written by quantize_model.", path=path)
        raise CannotRun(what, fix=english("give the modified model that quantize_model wrote"))
    return stage, read_quantized(without_stage(model)).float_model


def _remove(properties: Any) -> None:
    for index in reversed(range(len(properties))):
        if properties[index].key == KEY:
            del properties[index]


_KNOWN: dict[str, "CalibrationObserver"] = {}
_LOCK = threading.Lock()


class CalibrationObserver:
    """Watches the runs of one modified model.

    Args:
        model: The model, with its metadata.
        stage: What its runs are for.

    Attributes:
        stage: What its runs are for.
        model: The float model.
        layers: Its layers.
        config: How they are quantized.
        outputs: Names of the outputs of the model.
        batches: Runs seen so far.
    """

    def __init__(self, model: Model, stage: CalibrationStage) -> None:
        self.stage = stage
        self._plain = without_stage(model)
        self.model = read_quantized(self._plain).float_model
        self.layers = find_layers(self.model, stage.origins)
        self.config = parse_config(stage.config, self.layers, name="the configuration")
        self.batches = 0
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._feeds: Path | None = None
        self.outputs = outputs(self._plain)
        if stage.kind == "balance":
            self._balanced = [
                self.layers[name] for name, each in self.config.enabled.items() if each.balance is not None
            ]
            axes = {layer.inputs[0][0]: _channel_axis(layer) for layer in self._balanced}
            self._observers = {name: Observer(axis, ranges_only=True) for name, axis in axes.items()}
        else:
            names = observed_tensors(self.layers, self.config, self.model)
            self._observers = {name: Observer() for name in names}

    @property
    def complete(self) -> bool:
        """Whether enough batches were seen."""
        return self.batches >= self.config.batch_num

    def run(self, feed: Mapping[str, Array]) -> dict[str, Array]:
        """Run the model on one batch and learn from it; gives its outputs.

        Raises:
            ModelFailed: The model cannot be run on it.
        """
        with self._lock:
            if self._session is None:
                wanted = list(dict.fromkeys((*self.outputs, *self._observers)))
                self._session = open_session(self._plain, outputs=tap(self._plain, wanted), fused=True)
                self._order = wanted
            values = dict(zip(self._order, self._session.run(feed), strict=True))
            if not self.complete:
                self._keep(feed)
                self._observe(values)
            if self.complete:
                self._session = None
        return {name: values[name] for name in self.outputs}

    def keep_feeds(self, folder: Path) -> None:
        """Keep what the model is fed, in a folder, so that it can be run again."""
        folder.mkdir(parents=True, exist_ok=True)
        self._feeds = folder

    def feeds(self) -> Iterator[dict[str, Array]]:
        """What was kept, batch by batch."""
        for index in range(self.batches if self._feeds is not None else 0):
            with np.load(self._feeds / f"{index}.npz", allow_pickle=False) as stored:  # type: ignore[operator]
                names = json.loads(str(stored["names"]))
                yield {name: stored[f"feed_{place}"] for place, name in enumerate(names)}

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """What the model is fed."""
        return inputs(self._plain)

    def values(self, tensors: Sequence[str]) -> Iterator[dict[str, Array]]:
        """Values of tensors in every batch that was kept; weights are quantized, activations are not."""
        session = open_session(self._plain, outputs=tap(self._plain, tensors), fused=True)
        for feed in self.feeds():
            yield dict(zip(tensors, session.run(feed), strict=True))

    def _keep(self, feed: Mapping[str, Array]) -> None:
        if self._feeds is not None:
            arrays: dict[str, Any] = {f"feed_{place}": value for place, value in enumerate(feed.values())}
            np.savez(self._feeds / f"{self.batches}.npz", names=np.asarray(json.dumps(list(feed))), **arrays)

    def _observe(self, values: Mapping[str, Array]) -> None:
        for name, observer in self._observers.items():
            try:
                observer.add(values[name])
            except ChannelMismatch as error:
                what = english("Tensor {name!r} cannot be balanced: {error}.", name=name, error=error)
                raise CannotRun(what, fix=english("remove dmq_balancer from the layer that reads it")) from error
        self.batches += 1
        if self.complete:
            path = Path(self.stage.record_file)
            # A model comes from anywhere: what its metadata names is only replaced if it is a record already.
            regular_file(path, what=english("The record file"))
            known = read_records(path)
            found = self._factors(known) if self.stage.kind == "balance" else self.records(known)
            write_records(path, found)
            AMCT_LOGGER.info(
                english("batches seen: {batches}; record written: {path}", batches=self.batches, path=path)
            )

    def observation(self, tensor: str) -> Observation:
        """What was observed of a tensor."""
        return self._observers[tensor].observation()

    def records(self, known: Mapping[str, LayerRecord], *, algorithm: str = "") -> dict[str, LayerRecord]:
        """Records with the factors of inputs, of the layers that `known` has records of.

        Args:
            known: What is known of the weights.
            algorithm: Takes the place of the layers' own.
        """
        config = self.config if not algorithm else with_algorithm(self.config, algorithm)
        return calibrated_records(
            {name: known[name] for name in self.config.enabled if name in known},
            self.layers,
            config,
            model=self.model,
            observed=self.observation,
        )

    def _factors(self, known: Mapping[str, LayerRecord]) -> dict[str, LayerRecord]:
        found = dict(known)
        weights = Weights(self.model)
        for layer in self._balanced:
            seen = self.observation(layer.inputs[0][0])
            peaks = weight_peaks(weights[layer.weight], layer)
            strength = self.config.layers[layer.name].balance or 0.0
            factors = balance_factors(input_peaks(seen.low, seen.high), peaks, strength)
            record = found.get(layer.name, LayerRecord())
            found[layer.name] = replace(record, tensor_balance_factor=tuple(factors.tolist()))
        return found


def _channel_axis(layer: AmctLayer) -> int:
    return 1 if layer.op_type in ("Conv", "ConvTranspose") else -1


def observer_of(model: Model) -> CalibrationObserver:
    """What is learned from a modified model; all who open the same one add to the same.

    Raises:
        CannotRun: It is no modified model.
    """
    stage = stage_of({each.key: each.value for each in model.proto.metadata_props})
    if stage is None:
        what = english("{path} was not written by quantize_model or quantize_preprocess.", path=model.path)
        raise CannotRun(what, fix=english("give the modified model that one of them wrote"))
    with _LOCK:
        if stage.identity not in _KNOWN:
            _KNOWN[stage.identity] = CalibrationObserver(model, stage)
        return _KNOWN[stage.identity]


def forget(stage: CalibrationStage) -> None:
    """Let go of what was learned from a modified model."""
    _KNOWN.pop(stage.identity, None)


def known_observer(stage: CalibrationStage) -> CalibrationObserver | None:
    """What was learned in this process from a modified model; None when nobody opened it here."""
    return _KNOWN.get(stage.identity)


def calibrate(modified_model: Any, feeds: Iterable[Mapping[str, Any]]) -> None:
    """Run a modified model on batches and write the record; for those who do not want sessions to be watched.

    Args:
        modified_model: What `quantize_model` or `quantize_preprocess` wrote.
        feeds: Batches, each a value for every input of the model; as many as ``batch_num`` says.

    Raises:
        CannotRun: It is no modified model, or there are too few batches.
        WrongType: A batch is no mapping.
        BadInput: A batch does not fit the inputs of the model.
        ModelFailed: The model cannot be run on a batch.
    """
    calibrate_with(observer_of(load_model(Path(modified_model))), feeds)


def as_batch(feed: Any) -> dict[str, Array]:
    """What a user feeds, as arrays.

    Raises:
        WrongType: It is no mapping.
    """
    if not isinstance(feed, Mapping):
        what = english("A batch is {name}, not a value for each input.", name=type(feed).__name__)
        raise WrongType(what, fix=english("give dictionaries such as {{'image': array}}"))
    return {name: np.asarray(value) for name, value in feed.items()}


def calibrate_with(observer: CalibrationObserver, feeds: Iterable[Mapping[str, Any]]) -> None:
    """Run a modified model on as many batches as it takes; see `calibrate`."""
    for feed in feeds:
        if observer.complete:
            break
        batch = as_batch(feed)
        check_feed(batch, observer.inputs, sample=f"batch {observer.batches}")
        observer.run(batch)
    if not observer.complete:
        wanted, seen = observer.config.batch_num, observer.batches
        what = english(
            "The configuration asks for batch_num {wanted}, and the model was run {seen} times.",
            wanted=wanted,
            seen=seen,
        )
        raise CannotRun(what, fix=english("give more, or write a configuration with a smaller batch_num"))


def run_batches(model: Model, feeds: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Array]]:
    """Outputs of a model in every batch; runs of a modified model calibrate.

    Raises:
        WrongType: A batch is no mapping.
        BadInput: A batch does not fit the inputs of the model.
        ModelFailed: The model cannot be run.
    """
    modified = stage_of({each.key: each.value for each in model.proto.metadata_props}) is not None
    observer = observer_of(model) if modified else None
    session = None
    specs, names = inputs(model), outputs(model)
    for index, feed in enumerate(feeds):
        batch = as_batch(feed)
        check_feed(batch, specs, sample=f"batch {index}")
        if observer is not None and not observer.complete:
            yield observer.run(batch)
            continue
        if session is None:
            session = open_session(model, fused=True)
        yield dict(zip(names, session.run(batch), strict=True))


# Learning from the runs of onnxruntime sessions that users open on modified models.
#
# AMCT's modified models compute what calibration needs by operators of their own. Those cannot be written in
# Python for a stock onnxruntime, so that here the session is watched instead: one that is opened on a modified
# model, known by its metadata, has its `run` led through an observer. All other sessions are left alone.

_NAME = "amct"
_IN_MEMORY = Path("model_in_memory.onnx")


def watch() -> None:
    """Watch sessions that are opened from now on; a second call changes nothing."""
    add_session_observer(_NAME, _opened)


def unwatch() -> None:
    """Leave sessions alone that are opened from now on."""
    remove_session_observer(_NAME)


def _opened(session: Any, source: Any) -> None:
    if stage_of(session.get_modelmeta().custom_metadata_map) is not None:
        observer = observer_of(_model(source))
        session.run = _watched(session.run, observer)


def _model(source: Any) -> Model:
    if isinstance(source, str | os.PathLike):
        return load_model(Path(source))
    from onnx import ModelProto

    return model_from_proto(ModelProto.FromString(bytes(source)), path=_IN_MEMORY)


def _watched(original: Callable[..., list[Any]], observer: CalibrationObserver) -> Callable[..., list[Any]]:
    @functools.wraps(original)
    def run(
        output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        known = all(name in observer.outputs for name in output_names or ())
        if observer.complete or not known:
            return original(output_names, input_feed, run_options)
        try:
            found = observer.run(input_feed)
        except ModelFailed as error:
            # Most likely the original fails too, and says it in onnxruntime's own words.
            values = original(output_names, input_feed, run_options)
            AMCT_LOGGER.warning(english("a run could not be observed and does not count: {what}", what=error.what))
            return values
        return [found[name] for name in (output_names or observer.outputs)]

    return run
