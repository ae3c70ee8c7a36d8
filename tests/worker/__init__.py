"""Tests of the node agent: its parts, and the agent as a process with fake and real launchers."""
