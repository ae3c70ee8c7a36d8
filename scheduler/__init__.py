"""Scheduler: places queued jobs, detects lost nodes and attempts, completes interrupted work.

``reconcile`` is one cycle as a function; ``loop`` repeats it; ``service`` runs a Celery worker
beside it that receives notifications. Any number of schedulers may run; one works at a time.

Not here: the policy (``domain.scheduling.decide``, ``domain.life.outcomes``), and the SQL
(``storage``).
"""
