"""The smallest case that shows a fault, fit to be handed on."""
