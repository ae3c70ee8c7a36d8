"""What a job *is*: spec, batch plan, order of samples, life cycle, outcomes, placement, metrics, errors.

Level 1 of the architecture. Pure: standard library and pydantic only. Nothing here reads a clock, a file or the
environment, so every rule can be tested by calling it, and api, scheduler, worker, engine and client agree by
construction.

Not here: where any of it is kept (``storage``), sent (``broker``) or carried out (``engine``, ``worker``).
"""
