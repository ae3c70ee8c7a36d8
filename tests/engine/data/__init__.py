"""Data: order of the items, their seeds, and loader workers."""
