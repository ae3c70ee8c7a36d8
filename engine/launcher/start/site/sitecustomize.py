"""First import of every Python process of a script: its stacks, its last exception, its store.

Ranks of train jobs have all of them by themselves.

Python imports the module ``sitecustomize`` of the first folder on its path that has one. The
launcher puts this folder first into ``PYTHONPATH``. In this order:

1. remove the folder from ``sys.path``, so that the script's imports are as without Lockstep;
2. append the stacks of all threads to ``$LOCKSTEP_STACKS`` at each ``heartbeat.STACKS_SIGNAL``;
3. write the exception that ends the process into ``$LOCKSTEP_EXCEPTION``;
4. once torch is imported, let a store that rank 0 opens for a loopback address listen there alone:
torch's own listens on every interface, whatever the address;
5. run the ``sitecustomize`` that this one hides, if there is one.

The Python may be any version with any packages: only built-in modules are imported at its start,
and a failure leaves the script without stacks, or with torch's own store.

Not here: the request of stacks (``engine.launcher.stall.stacks``), the use of the exception
(``engine.launcher.evidence``), the store of a train job
(``engine.runtime.rendezvous``).
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call", no-check-untyped-defs

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


def _write_exception():
    """Write the exception that Python printed last, if it ends the process.

    ``sys.last_value`` is set before any hook prints it, and not for one that the script handles.
    """
    kind, value = getattr(sys, "last_type", None), getattr(sys, "last_value", None)
    path = os.environ.get("LOCKSTEP_EXCEPTION")
    if value is None or not path or kind is KeyboardInterrupt:
        # The imports below would let Python forget that an interrupt ends it, as SIGINT.
        return
    try:
        import json
        import time
        import traceback

        lines = traceback.format_exception_only(kind, value)
        # Of a syntax error the place comes first.
        if isinstance(value, SyntaxError):
            lines = [kind.__name__, ": ", str(value)]
        text = "".join(traceback.format_exception(kind, value, sys.last_traceback))
        document = {
            "exception": "".join(lines)[:8000],
            "traceback": text[-8000:],
            "pid": os.getpid(),
            "time": time.time(),
        }
        part = path + str(os.getpid())
        with open(part, "w") as file:  # noqa: PTH123 - pathlib is slow to import
            json.dump(document, file)
        os.rename(part, path)  # noqa: PTH104 - as above
    except Exception:  # noqa: BLE001, S110 - the launcher still has the log
        pass


try:
    import atexit

    atexit.register(_write_exception)  # The first to be registered is the last to run.
except Exception:  # noqa: BLE001, S110 - as above
    pass


class _LoopbackStores:
    """Finder that changes one module of torch right after its import."""

    def find_spec(self, name, path=None, target=None):  # noqa: ARG002 - the names are the protocol of finders
        if name != "torch.distributed.rendezvous":
            return None
        from importlib.util import find_spec

        sys.meta_path.remove(self)
        spec = find_spec(name)
        run = spec.loader.exec_module

        def run_and_change(module):
            run(module)
            if hasattr(module, "_create_c10d_store"):
                module._create_c10d_store = _on_loopback(module, module._create_c10d_store)

        spec.loader.exec_module = run_and_change
        return spec


def _on_loopback(module, create):
    """Return torch's function behind ``env://`` and ``tcp://``, changed for rank 0.

    The listening socket is made here. If that fails, torch's own function is called: it finds a
    store of the same process, or raises.
    """

    def create_store(hostname, port, rank, world_size, timeout, *more, **named):
        import socket

        agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        if rank == 0 and not agents and hostname in ("127.0.0.1", "localhost"):
            try:
                listener = socket.create_server(("127.0.0.1", port), backlog=2048).detach()
            except (OSError, AttributeError):  # a Python without this function
                return create(hostname, port, rank, world_size, timeout, *more, **named)
            own = {"multi_tenant": True, "master_listen_fd": listener}
            try:
                return module.TCPStore(hostname, port, world_size, True, timeout, **own)
            except TypeError:  # a torch without these names
                os.close(listener)
        return create(hostname, port, rank, world_size, timeout, *more, **named)

    return create_store


sys.meta_path.insert(0, _LoopbackStores())

_own = sys.modules.pop(__name__)
try:
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401 - it acts
except ImportError as error:
    if getattr(error, "name", __name__) != __name__:  # one that the hidden module imports
        raise
    sys.modules[__name__] = _own
