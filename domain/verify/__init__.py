"""Proof of the promise on a user's own job: the runs, their comparison, and the report."""
