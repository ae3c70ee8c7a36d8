"""The launcher: one process per assignment, parent and subreaper of its ranks.

``python -m lockstep.engine.launcher FOLDER``, or a fork that becomes the same, reads the attempt's folder (``domain.life.attempt``), starts one rank per device, stamps
their output, obeys ``fence`` and ``stop``, and writes ``result.json`` once no process of the attempt is left. It knows
no database, no broker and no agent: the agent may die and come back, and training does not notice.

=============  ===============================  ======================================================================
module         does                             runs in
=============  ===============================  ======================================================================
``run``        one attempt from start to end    main thread. It starts the ranks and stays until the end: ranks die
                                                with the *thread* that started them (``PR_SET_PDEATHSIG``)
``forking``    forks ranks, which wait          main thread, before there is another
``one_node``   lets them go, or starts them      main thread
``elastic``    starts those of several nodes    main thread
``rendezvous``    finds the other nodes' launchers main thread, and a thread ``rendezvous`` that waits in C++
``watch``      fence, stop, kills               thread ``watch``, 20 times a second
``stalls``     whether the ranks move, and      thread ``watch``
               which one the others wait for
``stacks``     asks ranks for their stacks      thread ``stacks``, once a gang has stalled
``stragglers`` whether one rank is slow         thread ``watch``
``streams``    the ranks' pipes                 thread ``streams``, until the ranks have ended; then the main thread
``rate_limits``     what of a flood of lines stays   as ``streams``
``segments``   the log on disk                  whoever writes; one lock
``verdict``    the outcome, as a pure function  main thread (``watch``, should torch elastic hang)
=============  ===============================  ======================================================================

Every rank begins in ``engine.launcher.start.stub``, which makes it die with the launcher. ``warm`` is another process: it forks launchers.

Not here: the agent (``worker``), and what happens inside a rank (the rest of ``engine``, or a person's script).
Nothing is imported here, so that a rank which imports ``engine`` pays nothing for the launcher.
"""
