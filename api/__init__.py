"""HTTP in, HTTP out: the one way to talk to Lockstep.

Level 3 of the architecture. A request is checked against ``domain``, carried out by functions of ``storage`` inside one
transaction, and answered with a type of ``domain.views``. Only after the commit is a bell rung through ``broker``; every
bell may be lost, so no answer depends on one. The process keeps nothing of its own: any number may run behind a proxy.

Not here: SQL (``storage``), decisions about jobs (``domain``, ``scheduler``), and anything that runs them (``worker``).
"""
