"""Vendors' own names, flags, files and tables, thin shells around roundoff's engines."""
