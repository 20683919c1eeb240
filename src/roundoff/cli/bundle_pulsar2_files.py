"""What a build of ``roundoff pulsar2`` adds to a bundle: its configuration, calibration data and tables."""

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.bundle_case import Extra
from roundoff.cli.bundle_dump import npy
from roundoff.cli.inspection_options import limits_from
from roundoff.cli.terminal import Terminal

if TYPE_CHECKING:
    from roundoff.case.disguise import Found
    from roundoff.case.excerpt import Case, CaseSamples, Chosen
    from roundoff.case.result import CaseNumbers
    from roundoff.core.tensors import Array
    from roundoff.graph.load import Model
    from roundoff.run.feeds import Samples
    from roundoff.vendors.pulsar2.building.material import Material
    from roundoff.vendors.pulsar2.config.schema import BuildConfig
    from roundoff.vendors.pulsar2.ticket import Rebuilt

__all__ = ["BuildExtras"]

_CONFIG, _TABLE = "config.json", "tables/precision_analysis_table.txt"
_COMMAND = "roundoff pulsar2 build --config config.json"
_STORED = {
    "quant/debug/precision_analysis_table.txt": _TABLE,
    "quant/debug/precision_analysis.mmd": "tables/precision_analysis.mmd",
    "quant/quant_axmodel.json": "tables/quant_axmodel.json",
    "tuning.json": "tables/tuning.json",
    "build_context.json": "tables/build_context.json",
}
_WHAT = {
    _CONFIG: "the configuration of the build, for the files in this folder",
    _TABLE: "the precision of every layer",
    "tables/precision_analysis.mmd": "the same as a chart",
    "tables/quant_axmodel.json": "the scale of every tensor as Pulsar2 writes it",
    "tables/tuning.json": "what was tried before",
    "tables/build_context.json": "what the build recorded: configuration, layers, figures, log",
}
_ARCHIVE = "calibration data, the fewest that give the fault"


@dataclass(frozen=True, slots=True)
class BuildExtras:
    """The vendor's form of a case: its configuration, for the files of the ticket, and its tables.

    Attributes:
        args: How the bundle is made.
        terminal: Told of runs.
        folder: Where the build is.
        config: Its configuration.
        material: Its model and calibration data.
    """

    args: argparse.Namespace
    terminal: Terminal
    folder: Path
    config: "BuildConfig"
    material: "Material"

    def open(self, case: "Case", chosen: "Chosen") -> Extra:
        """Configuration, data and tables as they are."""
        from roundoff.vendors.pulsar2.ticket import archive_names, inside

        material = self.material
        archives = archive_names(material.settled)
        config = inside(self.config, material.settled, archives)
        rebuilt = self._rebuilt(material.model, material.samples, config, chosen, case.samples, chosen.numbers)
        stored = {new: self.folder / old for old, new in _STORED.items() if (self.folder / old).is_file()}
        members = {
            **self._calibration(archives, rebuilt.indices),
            **{name: path.read_bytes() for name, path in stored.items()},
        }
        return self._extra(members, config, rebuilt, case.samples)

    def secret(self, found: "Found", chosen: "Chosen") -> Extra:
        """The same for another model: names replaced, data as arrays, tables made anew."""
        from roundoff.case.archive import zip_bytes
        from roundoff.vendors.pulsar2.building.quantizing import Quantizing
        from roundoff.vendors.pulsar2.operators import target_of
        from roundoff.vendors.pulsar2.ticket import anonymous_config

        material = self.material
        optimize = not self.config.onnx_opt.disable_onnx_optimization
        frontend = Quantizing(material.model, material.samples, target_of(self.config), optimize=optimize).frontend
        config = anonymous_config(self.config, material.settled, disguised=found.disguised, frontend=frontend)
        case = found.disguised.case
        samples = self._disguised(found, chosen)
        model = case.quantized.float_model
        rebuilt = self._rebuilt(model, samples, config, chosen, case.samples, found.numbers)
        feeds = [samples.feed(index) for index in rebuilt.indices]
        members = {
            each.calibration_dataset: zip_bytes(
                {f"sample_{place}.npy": npy(feed[each.tensor_name]) for place, feed in enumerate(feeds)},
                manifest=False,
            )
            for each in config.quant.input_configs
        }
        members |= self._table(config, rebuilt, case.samples)
        return self._extra(members, config, rebuilt, case.samples)

    def _rebuilt(
        self,
        model: "Model",
        samples: "Samples",
        config: "BuildConfig",
        chosen: "Chosen",
        fed: "CaseSamples",
        wanted: "CaseNumbers",
    ) -> "Rebuilt":
        """The build with the fewest calibration samples that give the fault, the worst of them first."""
        from roundoff.vendors.pulsar2.ticket import rebuild

        # Samples of the analysis may be others than those of the calibration.
        first = () if self.config.quant.input_sample_dir else chosen.indices
        order = tuple(dict.fromkeys((*first, *range(len(samples.names)))))
        return rebuild(
            model,
            samples,
            config,
            order=order,
            first=len(first),
            fed=fed,
            wanted=wanted,
            limits=limits_from(self.args),
            progress=self.terminal,
        )

    def _calibration(self, archives: Mapping[str, str], indices: Iterable[int]) -> dict[str, bytes]:
        """The files of some samples, packed as they are."""
        from roundoff.case.archive import zip_bytes
        from roundoff.vendors.pulsar2.datasets import CalibrationSet

        samples = self.material.samples
        assert isinstance(samples, CalibrationSet)  # noqa: S101 - a model without inputs was refused
        files: dict[str, dict[str, bytes]] = {}
        for index in indices:
            for name, (file, path) in samples.files(index).items():
                files.setdefault(archives[name], {})[file] = path.read_bytes()
        return {archive: zip_bytes(content, manifest=False) for archive, content in files.items()}

    def _disguised(self, found: "Found", chosen: "Chosen") -> "Samples":
        """Calibration samples under other names; those of the case as they are in it."""
        from roundoff.vendors.pulsar2.ticket import DisguisedSamples

        ready = {} if self.config.quant.input_sample_dir else dict(zip(
            chosen.indices, found.disguised.case.samples.feeds, strict=True
        ))  # fmt: skip
        return DisguisedSamples(
            self.material.samples, found.disguised.tensors, ready, seed=self.args.seed, keep=self.args.keep_data
        )

    def _table(self, config: "BuildConfig", rebuilt: "Rebuilt", samples: "CaseSamples") -> dict[str, bytes]:
        """The precision of every layer of the model in the ticket, if that was asked for."""
        from roundoff.vendors.pulsar2.building.precision import PrecisionSettings, analyze_precision
        from roundoff.vendors.pulsar2.operators import target_of
        from roundoff.vendors.pulsar2.tables import precision_table

        quant = config.quant
        if not quant.precision_analysis:
            return {}
        method, mode = quant.precision_analysis_method, quant.precision_analysis_mode
        analysis = analyze_precision(
            rebuilt.outcome,
            samples,
            rebuilt.quantizing.frontend,
            settings=PrecisionSettings(method, mode, target_of(config).arithmetic),
            progress=self.terminal,
        )
        return {_TABLE: (precision_table(analysis.rows, method=method.name, mode=mode.name) + "\n").encode()}

    def _extra(
        self, members: dict[str, bytes], config: "BuildConfig", rebuilt: "Rebuilt", fed: "CaseSamples"
    ) -> Extra:
        from roundoff.messages.numbers import counted, number
        from roundoff.vendors.pulsar2.config.decoding import to_json
        from roundoff.vendors.pulsar2.ticket import analysis_places, vocabulary

        if config.quant.input_sample_dir:
            arrays: dict[str, Array] = analysis_places(fed)
            members |= {name: npy(array) for name, array in arrays.items()}
        files = dict(_WHAT) | {name: _ARCHIVE for name in members if name.endswith(".zip")}
        shows = "the same result, verified" if rebuilt.shown.same else (
            f"NOT the same result ({'; '.join(rebuilt.shown.reasons)}); model/quantized.onnx shows it"
        )  # fmt: skip
        few = f"{counted(len(rebuilt.indices), 'sample')} of {len(self.material.samples.names)}"
        return Extra(
            {**members, _CONFIG: to_json(config).encode()},
            target=config.target_hardware.name,
            reproduce=(_COMMAND, f"Pulsar2 itself: {_COMMAND.removeprefix('roundoff ')}"),
            recalibrated=f"config.json, calibrated on {few}: {number(rebuilt.numbers.sqnr_db)} dB; {shows}",
            files=files,
            vocabulary=vocabulary(),
        )
