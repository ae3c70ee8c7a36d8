"""The control plane: place what is queued, notice what was lost, finish what was left half done.

``passes`` is one look at everything, a function; ``loop`` makes it again and again; ``service`` puts a Celery worker
beside it that hears the bell. Any number of schedulers may run.

Not here: the policy (``domain.placement.decide``, ``domain.life.outcomes``), every statement (``storage``), and anything of a job's
own code.
"""
