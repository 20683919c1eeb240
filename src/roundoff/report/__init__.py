"""Turning run documents into text, tables and files; nothing is computed here."""
