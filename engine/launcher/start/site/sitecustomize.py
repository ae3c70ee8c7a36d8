"""First import of every Python process of a script: serves its stacks, as ranks of train jobs do.

Python imports the module ``sitecustomize`` of the first folder on its path that has one. The
launcher puts this folder first into ``PYTHONPATH``. In this order:

1. remove the folder from ``sys.path``, so that the script's imports are as without Lockstep;
2. append the stacks of all threads to ``$LOCKSTEP_STACKS`` at each ``heartbeat.STACKS_SIGNAL``;
3. run the ``sitecustomize`` that this one hides, if there is one.

The Python may be any version with any packages: only built-in modules are imported, and a failure
leaves the script without stacks.

Not here: the request (``engine.launcher.stall.stacks``).
"""

import os
import sys

_FOLDER = os.path.dirname(__file__)  # noqa: PTH120 - pathlib is slow to import
sys.path[:] = [place for place in sys.path if place != _FOLDER]


try:
    import _signal  # type: ignore[import-not-found]  # built in
    import faulthandler

    _flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    _stacks = os.open(os.environ["LOCKSTEP_STACKS"], _flags, 0o644)
    # 5 as in heartbeat.STACKS_SIGNAL. The handler is in C and keeps the descriptor.
    faulthandler.register(_signal.SIGRTMIN + 5, file=_stacks, all_threads=True, chain=False)
except Exception:  # noqa: BLE001, S110 - a script must not fail for want of stacks
    pass

_own = sys.modules.pop(__name__)
try:
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401 - it acts
except ImportError as error:
    if getattr(error, "name", __name__) != __name__:  # one that the hidden module imports
        raise
    sys.modules[__name__] = _own
