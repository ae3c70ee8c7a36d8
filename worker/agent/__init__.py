"""Agent loop and the life of one assignment on this node."""
