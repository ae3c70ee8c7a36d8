"""The job database and the stores beside it: all SQL of the service, and nothing that decides.

``database`` opens it, ``tables`` and ``series_tables`` say what is in it, ``migrate`` brings it up to date. Each other
module is one noun with its statements (``jobs``, ``attempts``, ``nodes``, ``events`` …). Every function takes the
session first, and never commits: the caller owns the transaction.

Not here: what a state or an outcome means (``domain``), and who asks for a change (``api``, ``scheduler``, ``worker``).
"""
