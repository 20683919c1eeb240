"""What a device loses at the outputs of a network, as it is and with one tensor put right."""

from collections.abc import Callable, Mapping

from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.bench import Bench
from roundoff.diagnosis.loss import Loss, LossMeter
from roundoff.diagnosis.parts import output_parts

__all__ = ["OutputLoss"]


class OutputLoss:
    """Compares outputs with those of the float model.

    Args:
        bench: The device.
    """

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        infos = {info.name: info.shape for info in bench.readout.reference.tensors if not info.problem}
        named = {name: infos[name] for name in bench.outputs if name in infos}
        self._names = tuple(named)
        self._parts = output_parts(bench.model, named, infos)

    @property
    def can_tell(self) -> bool:
        """Whether an output was dumped at all."""
        return bool(self._names)

    def of_device(self) -> Loss:
        """What the device loses."""
        return self._loss(lambda sample: {n: self._bench.readout.read(n, sample) for n in self._names})

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
            known = {name: given[name] for name in self._names if name in given}
            asked = [name for name in self._names if name not in known]
            return {**known, **self._bench.golden.compute_all(asked, given)}

        return self._loss(made)

    def _loss(self, made: Callable[[int], Mapping[str, Array]]) -> Loss:
        meter = LossMeter(self._parts)
        for sample in self._bench.indices:
            exact = {name: self._bench.readout.exact(name, sample) for name in self._names}
            meter.add(exact, made(sample))
        return meter.loss()
