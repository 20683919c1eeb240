"""Nodes that hand on what they get are taken out."""

from typing import Any

from roundoff.graph.preparation.draft import Draft, named

__all__ = ["remove_passthroughs"]

_TRAINING_MODE = 2
"""Which input of Dropout says that it is to drop."""


def remove_passthroughs(draft: Draft) -> None:
    """Take out Identity, and Dropout outside of training; names of outputs stay."""
    removed, stays = [], []
    for node in draft.of_type("Identity", "Dropout"):
        reason = _training(draft, node) if node.op_type == "Dropout" else ""
        if reason:
            stays.append(f"{node.op_type} {node.name!r} stays: {reason}")
        elif _bypass(draft, node):
            removed.append(node.name)
    if removed:
        draft.notes.append(f"Identity and Dropout taken out, which do nothing: {named(removed)}")
    draft.notes += stays


def _training(draft: Draft, node: Any) -> str:
    """Why a Dropout may do something; empty when it does not."""
    if (
        len(node.output) > 1
        and node.output[1]
        and (draft.readers(node.output[1]) or node.output[1] in draft.outputs)
    ):
        return "its mask is used"
    mode = node.input[_TRAINING_MODE] if len(node.input) > _TRAINING_MODE else ""
    if not mode:
        return ""
    if not draft.is_constant(mode):
        return f"{mode!r} decides at run time whether it drops"
    return "it is in training mode" if draft.constant(mode).any() else ""


def _bypass(draft: Draft, node: Any) -> bool:
    source, result = node.input[0], node.output[0]
    producer = draft.producer(source)
    if result not in draft.outputs:
        draft.replace_uses(result, source)
        draft.remove(node, into=producer.name if producer is not None else "")
        return True
    # The output's name must stay: its producer takes it over, if nothing else depends on the old one.
    if producer is None or source in draft.outputs or list(producer.output).count(source) != 1:
        return False
    position = list(producer.output).index(source)
    draft.remove(node, into=producer.name)
    draft.replace_uses(source, result)
    draft.rename_output(producer, position, result)
    return True
