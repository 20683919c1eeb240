"""Names for values of which a quantized model has only the codes: what they probably were called before."""

from roundoff.graph.reading.draft import Draft
from roundoff.graph.reading.flow import CodeFlow

__all__ = ["ValueNames"]

_ENDINGS = ("_quantized", "_codes", "_quant", "_int8")


class ValueNames:
    """Gives names that no tensor of the float graph has."""

    def __init__(self, draft: Draft, flow: CodeFlow) -> None:
        self._draft = draft
        graph = draft.model.proto.graph
        self._taken = {value.name for value in (*graph.input, *graph.output, *graph.initializer)}
        for node in draft.nodes:
            # The results of quantizers vanish, unless something needs the integers.
            if node.name not in flow.points or node.output[0] in flow.needed:
                self._taken.update(node.output)

    def of_constant(self, codes: str, dequantized: str) -> str:
        """A name for the values of constant codes.

        Args:
            codes: Name of the codes.
            dequantized: What the values are called where they are dequantized.
        """
        for wanted in (_without_ending(codes), dequantized):
            if wanted != codes and wanted not in self._taken:
                self._taken.add(wanted)
                return wanted
        name = self._draft.free(f"{codes}_float")
        self._taken.add(name)
        return name

    def of_computed(self, codes: str) -> str:
        """A name for values that were computed as codes."""
        wanted = _without_ending(codes)
        if wanted in self._taken:
            return codes
        self._taken.add(wanted)
        return wanted


def _without_ending(codes: str) -> str:
    return next((codes.removesuffix(end) for end in _ENDINGS if codes.endswith(end)), codes)
