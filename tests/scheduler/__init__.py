"""The scheduler: passes on both databases, and the program as a process."""
