"""Start of an attempt's ranks, on one node or several."""
