"""Memory of a rank: its prediction, its measurement, and the choice of the micro-batch.

* ``engine.memory.forecast`` predicts it without allocating anything.
* ``engine.memory.forecast_process`` runs the forecast in a separate process while the run starts.
* ``engine.memory.measured`` measures real steps.
* ``engine.memory.auto`` chooses the micro-batch for ``micro_size: auto``.

Not here: the numbers' names and their texts (``domain.training.memory``).
"""
