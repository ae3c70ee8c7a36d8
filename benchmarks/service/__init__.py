"""Lockstep's service, compared with common alternatives.

``python -m benchmarks.service`` (``make bench-service``).

====================  =================================================================================
``load.py``           load on an open loop: arrivals on time, latency from the intended moment
``wire.py``           one connection over HTTP that costs little
``compare.py``        contestants taking turns, medians, ratios, targets
``table.py``          the table, and the JSON
``sizes.py``          how much of everything
``stores.py``         SQLite and PostgreSQL, durable, fresh for each row
``ours.py``           our programs: the api alone, the whole service, the service with simulated ranks
``simulated.py``      the simulated launcher, and the agent that starts it
``environments.py``   the peers' own virtual environments
``peer_*.py``         one peer each
``rows_*.py``         the rows
====================  =================================================================================

Not here: tests of the measured programs, and the engine's own benchmarks (the folder above).
"""
