"""Connections, tables, dialects and schema versions of both databases."""
