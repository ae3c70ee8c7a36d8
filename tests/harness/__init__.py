"""Shared parts of the tests: the service, its nodes, ranks, processes and databases, and what they are given."""
