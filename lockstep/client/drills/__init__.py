"""Fault drills against a running service, with a small job of their own.

``running.py`` runs a drill, ``report.py`` evaluates it.

Not here: the drills of the test suite (``tests/faults``).
"""
