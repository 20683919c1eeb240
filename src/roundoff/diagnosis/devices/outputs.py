"""What a device loses at the outputs of a network, as it is and with one tensor put right."""

from collections.abc import Callable, Mapping

from roundoff.analysis.culprits import stand_ins
from roundoff.analysis.output_coverage import absent
from roundoff.core.coverage import OutputCoverage, Unjudged
from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.bench import Bench
from roundoff.diagnosis.devices.not_finite import NotFinite
from roundoff.diagnosis.devices.readout import View
from roundoff.diagnosis.loss import Loss, LossMeter
from roundoff.diagnosis.parts import output_parts
from roundoff.graph.interface import topology

__all__ = ["OutputLoss", "judged_outputs"]


class OutputLoss:
    """Compares outputs with those of the float model.

    Args:
        bench: The device.
    """

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        infos = {info.name: info.shape for info in bench.readout.reference.tensors if not info.problem}
        seen = stand_ins(topology(bench.model), bench.readout.pairs)
        named = {name: infos[name] for name, stand_in in seen.items() if stand_in is not None and name in infos}
        self._names = tuple(named)
        self._parts = output_parts(bench.model, named, infos)

    @property
    def can_tell(self) -> bool:
        """Whether an output, or what it only forwards, was dumped at all."""
        return bool(self._names)

    def of_device(self) -> Loss:
        """What the device loses."""
        return self._loss(lambda sample: self._seen(self._bench.readout.view(sample, self._bench.feed(sample))))

    def of_arithmetic(self) -> Loss:
        """What its arithmetic loses, from the samples to the outputs."""
        return self._loss(
            lambda sample: self._bench.golden.compute_all(self._names, self._bench.feed(sample)),
        )

    def with_right(self, tensor: str) -> Loss:
        """What is lost when one tensor, and all behind it, is computed as it should be."""
        behind = self._bench.golden.behind(tensor)

        def made(sample: int) -> Mapping[str, Array]:
            view = self._bench.view(sample)
            right = self._bench.golden.compute(tensor, view) if tensor in self._bench.tensors else None
            given = view.but({} if right is None else {tensor: right}, without=behind)
            if right is None:
                given = given.but({tensor: self._bench.feed(sample)[tensor]})
            return self._seen(given)

        return self._loss(made)

    def _seen(self, given: View) -> Mapping[str, Array]:
        """The outputs: as they are given, or computed from what is."""
        known = {name: given[name] for name in self._names if name in given}
        asked = [name for name in self._names if name not in known]
        return {**known, **self._bench.golden.compute_all(asked, given)} if asked else known

    def _loss(self, made: Callable[[int], Mapping[str, Array]]) -> Loss:
        meter = LossMeter(self._parts)
        for sample in self._bench.indices:
            exact = {name: self._bench.readout.exact(name, sample) for name in self._names}
            meter.add(exact, made(sample))
        return meter.loss()


def judged_outputs(bench: Bench, not_finite: NotFinite) -> OutputCoverage:
    """Which outputs of the network were judged on a device, and why others were not.

    Args:
        bench: The device.
        not_finite: Its tensors that are not all numbers, and those that read them.
    """
    readout = bench.readout
    ours = {info.name: info for info in readout.reference.tensors}
    taken = {pair.candidate for pair in readout.pairs.values()}
    spare = [info for info in readout.device.tensors if info.name not in taken]
    left_out = {each.name: each for each in readout.left_out}
    unknown = {*not_finite.tensors, *not_finite.readers}
    judged, not_judged = [], []
    for name, stand_in in stand_ins(topology(bench.model), readout.pairs).items():
        if stand_in is None:
            not_judged.append(left_out.get(name) or absent(name, ours.get(name), spare))
        elif stand_in in unknown:
            not_judged.append(Unjudged(name, "nonfinite"))
        else:
            judged.append(name)
    return OutputCoverage(tuple(judged), tuple(not_judged))
