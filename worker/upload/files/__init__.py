"""Readers of the files on a node that user code may still write."""
