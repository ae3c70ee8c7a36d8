"""The node agent: starts launchers, watches them, ships what they write, and gives devices back.

One attempt on this node lives in three places that survive each other: rows in the job database (the truth), a folder
(``domain.life.attempt``, the contract with the launcher), and processes. The agent holds nothing that it could not read back
from these three, so that killing it at any moment costs nothing but the wait for its restart.

``service`` (Celery around it) → ``supervisor`` (claims, heartbeats, adopts) → ``assignment`` (one attempt from claim to
release) → ``preparing`` (``code``), ``launching``, ``outflow`` (``shipping``, ``reporting``, each in a ``pump``),
``sweeping`` → ``folders``, ``groups``, ``identity``, ``tail``.

Not here: what the ranks run (``engine``, started as a process and never imported), and who gets which device
(``scheduler``).
"""
