"""The conformance kit.

What the contract says about gradients, data and control, measured on any engine.

    python -m benchmarks.conformance --engine raw --engine accelerate --engine fabric --engine
    lockstep

``case`` is what is trained, ``engines`` are the adapters, ``gang`` starts the ranks, ``observer``
watches them from outside, ``reference`` says what is right, ``checks`` compare, ``table`` shows. A
check sees no engine's inside, so a column of the table means the same for all.

Not here: the parts of the contract that only this engine has words for (checkpoints on disk,
failures, memory); its tests hold them.
"""
