"""Faults on purpose, against a small job of the drill's own on a running service.

``running.py`` carries a drill out, ``report.py`` says what must hold.

Not here: the drills of the test suite (``tests/faults``).
"""
