"""Small networks on simulated devices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from benchmarks.planted.case import PlantedCase
from benchmarks.planted.faults import FAULTS
from benchmarks.planted.subject import subject

from roundoff.core.tensors import Array, TensorInfo
from roundoff.diagnosis.devices.study import diagnose_device
from roundoff.diagnosis.result import Diagnosis
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.samples.sample_set import ArraySamples


@dataclass(frozen=True)
class HeldDumps:
    """Dumps in memory."""

    rows: Sequence[Mapping[str, Array]]
    label: str = "dumps"
    ordered: bool = True

    @property
    def samples(self) -> tuple[str, ...]:
        return tuple(map(str, range(len(self.rows))))

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        return tuple(TensorInfo(name, array.dtype.name, array.shape) for name, array in self.rows[0].items())

    def read(self, name: str, sample: str) -> Array:
        return np.asarray(self.rows[int(sample)][name])


def planted(fault: str, family: str = "plain", seed: int = 0) -> PlantedCase:
    network = subject(family, seed)
    case = FAULTS[fault](network, network.rng(fault))
    assert case is not None
    return case


def diagnosed(case: PlantedCase, *, with_quantized: bool = True) -> Diagnosis:
    assert case.dumps is not None
    known: Model | QuantizedModel = case.model
    if with_quantized and case.quantized is not None:
        known = case.quantized
    return diagnose_device(known, ArraySamples(case.samples), HeldDumps(case.dumps.samples))
