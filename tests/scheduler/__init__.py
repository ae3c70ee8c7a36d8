"""Tests of the scheduler: reconcile cycles on both databases, and the program as a process."""
