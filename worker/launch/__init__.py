"""Preparation of an attempt's folder, and the start of its launcher."""
