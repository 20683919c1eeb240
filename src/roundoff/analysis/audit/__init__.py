"""The audit of quantized models: what was asked for, what is there, and where nothing says why they differ."""

from roundoff.analysis.audit.auditing import audit_against, audit_model, audit_run

__all__ = ["audit_against", "audit_model", "audit_run"]
