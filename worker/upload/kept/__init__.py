"""Files that a job writes: stored in rounds, and brought to the next attempt."""
