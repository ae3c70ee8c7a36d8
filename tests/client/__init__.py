"""The client and the command, against a server that replays answers and against real processes."""
