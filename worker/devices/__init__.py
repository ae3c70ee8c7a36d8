"""Inventory and measurement of this node's devices."""
