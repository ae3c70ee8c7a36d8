"""How much memory a rank needs: predicted, measured, and used to choose the micro-batch.

* ``engine.memory.forecast`` works it out without allocating anything.
* ``engine.memory.forecast_process`` has that done in a process of its own while the run starts.
* ``engine.memory.measured`` says what a real run took.
* ``engine.memory.auto`` settles ``micro_size: auto``.

Not here: the numbers' names and their words (``domain.training.memory``).
"""
