"""Launcher: one process per assignment, parent and subreaper of its ranks.

``python -m lockstep.engine.launcher FOLDER``, or a fork that becomes the same, reads the attempt's
folder (``domain.life.attempt``), starts one rank per device, stamps their output, obeys ``fence``
and ``stop``, and writes ``result.json`` once no process of the attempt is left. It uses no
database, broker or agent: the agent may die and return, and training continues.

====================  ===========================================  =======================================
module                does                                         runs in
====================  ===========================================  =======================================
``run``               one attempt from start to end                main thread. It starts the ranks
and stays
                                                                   until the end: ranks die with the
                                                                   *thread*
                                                                   that started them
                                                                   (``PR_SET_PDEATHSIG``)
``start.forking``     forks ranks, which wait                      main thread, before any other
exists
``start.one_node``    releases them, or starts them                main thread
``start.elastic``     starts the ranks of several nodes            main thread
``start.rendezvous``  finds the other nodes' launchers             main thread, and a thread
``rendezvous``
                                                                   that waits in C++
``watch``             fence, stop, kills                           thread ``watch``, 20 times a
second
``stall.stalls``      detects ranks without progress               thread ``watch``
``stall.stacks``      collects the ranks' stacks                   thread ``stacks``, once a gang
has stalled
``stall.stragglers``  detects a slow rank                          thread ``watch``
``output.streams``    the ranks' pipes                             thread ``streams``, until the
ranks have
                                                                   ended; then the main thread
``output.rate_limit`` limits the log                               as ``streams``
``output.segments``   the log on disk                              the writing thread; one lock
``outcome``           the outcome, as a pure function              main thread (``watch`` if torch
elastic hangs)
====================  ===========================================  =======================================

Every rank begins in ``engine.launcher.start.stub``, which makes it die with the launcher.
``start.fork_server`` is another process that forks launchers.

This module imports nothing, so a rank that imports ``engine`` does not load the launcher.

Not here: the agent (``worker``), the inside of a rank (the rest of ``engine``, or a user's script).
"""
