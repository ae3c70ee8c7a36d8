"""The ``lockstep`` command. Data goes to stdout, messages to stderr; colours only to a terminal.

Each command imports its modules when it runs, which keeps ``lockstep --help`` fast.

Not here: requests to a server (``client.api``), and the service on this machine (``client.local``).
"""
