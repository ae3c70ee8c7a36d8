"""Tests of the rules in ``domain``, which are called directly."""
