"""Node agent: starts launchers, watches them, uploads their output, and releases devices.

An attempt on this node has three independent parts: rows in the job database (authoritative), a
folder (``domain.life.attempt``, the contract with the launcher), and processes. The agent can
restore its state from these three: killing it at any moment costs only the wait for its restart.

``service`` (Celery around it) → ``agent.supervisor`` (heartbeats, intents) → ``agent.claims``
(claims, adoption) → ``agent.assignment`` (one attempt from claim to release) → ``launch`` (folder
and launcher, processes), ``upload`` (metrics, logs, events), ``devices``.

Not here: the ranks' program (``engine``, started as a process and never imported), and placement
(``scheduler``).
"""
