"""HTTP API of Lockstep: the only interface for clients.

Level 3 of the architecture. A handler validates a request with ``domain``, runs functions of
``storage`` inside one transaction and returns a type of ``domain.views``. Notifications are
published through ``broker`` after the commit. Any of them may be lost, and no response depends on
one. The process holds no durable state, and any number of processes may run behind a proxy.

Not here: SQL (``storage``), decisions about jobs (``domain``, ``scheduler``), running jobs
(``worker``).
"""
