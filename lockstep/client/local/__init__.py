"""The service on one machine: ``lockstep up`` and ``lockstep down``.

Starts the other programs as processes, by module name, without importing them.

Not here: the programs, and their start on several machines (``docker-compose.yml``).
"""
