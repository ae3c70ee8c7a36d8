"""The ``lockstep`` command. Data goes to stdout, talk to stderr; colours only to a terminal.

Each command imports what it needs when it runs, so that ``lockstep --help`` is quick.

Not here: what the commands do to a server (``client.api``), and to this machine (``client.local``).
"""
