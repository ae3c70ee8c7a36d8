"""Filter, order and columns of a list of jobs, as texts."""
