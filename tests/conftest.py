"""Fixtures for every test: what needs databases takes them from ``tests.databases``."""

import signal

from hypothesis import settings

pytest_plugins = ["tests.databases", "tests.faults.table", "pytester"]

# A shell ignores it for what it starts in the background, and programs that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long one example takes says nothing on a machine that runs other tests beside it.
settings.register_profile("lockstep", deadline=None)
settings.load_profile("lockstep")
