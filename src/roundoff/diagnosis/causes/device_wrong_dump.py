"""What was written of a tensor is not what the device had of it."""

from roundoff.diagnosis.devices.proof import called, only_dumped, pattern, where
from roundoff.diagnosis.devices.replay import DeviceReplay
from roundoff.diagnosis.devices.suspects import DeviceSuspect, LocalError
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Measure, Remedy, RemedyChange
from roundoff.measure.metrics import ratio_db
from roundoff.messages.message import message


@cause("wrong-dump", of="device", order=85, enough=0.5)
class WrongDump:
    """The dump of a tensor is wrong in a way of its own; what reads it on the device had the right values."""

    def signal(self, case: DeviceReplay, suspect: DeviceSuspect) -> Signal | None:
        """How many values are off by more than arithmetic explains."""
        if suspect.flow != "dump only":
            return None
        return Signal(1.0, {"share_off": suspect.error.share_beyond(), "largest_steps": suspect.error.largest})

    def intervene(self, case: DeviceReplay, suspect: DeviceSuspect) -> Intervention | None:
        """What reads it, computed from the reference instead of the dump."""
        as_dumped, as_computed = LocalError(), LocalError()
        for sample in suspect.places:
            right = case.view(sample)
            dumped = right.but({suspect.tensor: case.readout.read(suspect.tensor, sample)})
            for reader in case.consumers.get(suspect.tensor, ()):
                for error, given in ((as_dumped, dumped), (as_computed, right)):
                    pair = case.pair(reader, sample, given)
                    error.add(pair.exact, pair.found, pair.expected)
        before, after = (
            each.error + each.signal * each.nonfinite / max(1, each.count) for each in (as_dumped, as_computed)
        )
        if before <= 0:
            return None
        signal = as_computed.signal
        wrong = message(
            f"diagnosis.wrong_dump_{'step' if case.quantizers else 'arithmetic'}",
            tensor=called(suspect),
            pattern=pattern(suspect.pairs),
        )
        measure = Measure(
            message("diagnosis.measure_readers", tensor=called(suspect)),
            "dB",
            ratio_db(signal, before),
            ratio_db(signal, after),
            samples=len(suspect.pairs),
        )
        return Intervention(
            message("diagnosis.wrong_dump_changed", tensor=called(suspect)),
            (measure,),
            max(0.0, 1 - after / before),
            where(suspect, wrong),
            (RemedyChange("report", nodes=suspect.nodes, tensors=(suspect.tensor,)),),
        )

    def remedy(self, case: DeviceReplay, suspect: DeviceSuspect, proof: Intervention) -> Remedy:
        """Write it again."""
        return Remedy(only_dumped(message("diagnosis.dump_again", tensor=called(suspect))), "outside")
