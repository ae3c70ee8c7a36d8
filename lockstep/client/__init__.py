"""The Python client of the HTTP API, and the ``lockstep`` command.

Imports nothing of ours but ``domain``. The service's own programs, where ``lockstep up`` starts them, are processes
named on a command line (``client.local``), never imports.

Not here: what the API answers (``domain.views``) and what it refuses (``domain.spec.reading``): both sides share those types.
"""
