"""The service on one machine: ``lockstep up`` and ``lockstep down``.

Starts the other programs as processes, by the names of their modules; nothing of them is imported here.

Not here: what those programs do, and starting them on several machines (``docker-compose.yml``).
"""
