"""Tests of the client and the command, with a server that replays answers and real processes."""
