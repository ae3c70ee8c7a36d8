"""Launcher: one process per assignment, parent and subreaper of its ranks.

``python -m lockstep.engine.launcher FOLDER``, or a fork that does the same, reads the attempt's
folder (``domain.life.attempt``), starts one rank per device, stamps their output, obeys ``fence``
and ``stop``, and writes ``result.json`` once no process of the attempt is left. It uses no
database, broker or agent: the agent may die and return, and training continues.

Modules and their threads:

* ``run``: one attempt from start to end. Main thread, which starts the ranks and stays until the
  end: ranks die with the *thread* that started them (``PR_SET_PDEATHSIG``).
* ``start.forking``: forks ranks, which wait. Main thread, before any other thread exists.
* ``start.ranks``: releases the forked ranks, or starts ranks by exec. Main thread.
* ``start.rendezvous``: finds the other nodes' launchers. Main thread, and a thread ``rendezvous``
  that waits in C++.
* ``watch``: checks fence and stop, and kills. Thread ``watch``, 20 times a second.
* ``stall.stalls``: detects ranks without progress. Thread ``watch``.
* ``stall.silence``: detects a script that writes nothing while its devices are idle. Thread
  ``watch``.
* ``stall.stacks``: collects the ranks' stacks. Thread ``stacks``, once a gang has stalled or a
  script is silent.
* ``stall.stragglers``: detects a slow rank. Thread ``watch``.
* ``output.streams``: reads the ranks' pipes. Thread ``streams`` until the ranks have ended, then
  the main thread.
* ``output.rate_limit``: limits the log. Same threads as ``output.streams``.
* ``output.segments``: writes the log to disk. The calling thread, under one lock.
* ``outcome``: decides the outcome, as a pure function. Main thread (``watch`` if that
  hangs).

Every rank begins in ``engine.launcher.start.stub``, which makes it die with the launcher.
``start.fork_server`` is another process that forks launchers.

This module imports nothing, so a rank that imports ``engine`` does not load the launcher.

Not here: the agent (``worker``), the inside of a rank (the rest of ``engine``, or a user's script).
"""
