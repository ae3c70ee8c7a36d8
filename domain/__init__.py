"""Definition of a job: spec, batch plan, life cycle, outcomes, placement, metrics, errors.

Level 1 of the architecture. Pure: standard library and pydantic only. No clock, file or environment
is read, so every rule can be tested by calling it, and api, scheduler, worker, engine and client
share the same rules.

Not here: storage (``storage``), transport (``broker``), execution (``engine``, ``worker``).
"""
