"""Wrappers and properties of the user's model: objective, precision, compilation, buffers."""
