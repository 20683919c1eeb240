"""The quantization information of a deploy net."""

from collections.abc import Iterator, Mapping
from typing import Any

from roundoff.graph.caffe.importing import runs_of
from roundoff.graph.caffe.net import Net, read_net
from roundoff.graph.caffe.placement import Owners
from roundoff.vendors.amct.flavour import Files
from roundoff.vendors.amct.layers import Layer
from roundoff.vendors.amct.quant_info import Operation, operations_info

__all__ = ["net_information"]


def net_information(deployed: Files, net: Net, layers: Mapping[str, Layer]) -> dict[str, Any]:
    """Which layers were inserted into a net, and which of its layers each stands for.

    Args:
        deployed: The deploy net.
        net: The user's net.
        layers: The layers that are quantized.
    """
    owners = Owners(runs_of(net))
    originals = {
        # The nodes of one layer are one.
        name: list(dict.fromkeys(owner for node in layer.originals if (owner := owners.of(node))))
        for name, layer in layers.items()
    }
    written = read_net(*deployed)
    return operations_info(written.name, _operations(written, net), originals)


def _operations(written: Net, net: Net) -> Iterator[Operation]:
    for place, layer in enumerate(written.layers):
        owner = layer.name
        if layer.name not in net.layer_names and layer.type == "Quant":
            # It is called after the first layer that reads it, which need not stand directly behind it.
            owner = next(other.name for other in written.layers[place + 1 :] if layer.tops[0] in other.bottoms)
        elif layer.name not in net.layer_names:
            owner = written.layers[place - 1].name
        yield Operation(layer.name, layer.type, len(layer.tops), owner)
