"""Storage: the two databases and the blob store. All SQL of the service, and no decisions.

``db`` opens the databases and defines their tables. The other subpackages hold one noun per
module with its statements (``jobs``, ``attempts``, ``nodes``, ``events`` …). Functions take the
session first and never commit: the caller owns the transaction.

Not here: the meaning of states and outcomes (``domain``), and the callers (``api``, ``scheduler``,
``worker``).
"""
