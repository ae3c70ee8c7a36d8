"""Conformance kit: the contract on gradients, data and control, measured on any engine.

    python -m benchmarks.conformance --engine raw --engine accelerate --engine fabric --engine
    lockstep

``case`` defines the runs, ``engines`` has the adapters, ``gang`` starts the ranks, ``observer``
records them from outside, ``reference`` computes the expected result, ``checks`` compare the two,
and ``table`` formats the results. A check has no access to the internals of an engine, so the
columns of the table are comparable.

Not here: items of the contract that exist only in this engine, such as checkpoints on disk,
failures and memory (``tests``).
"""
