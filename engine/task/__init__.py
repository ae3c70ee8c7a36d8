"""Task interface, built-in tasks, and the loading of a task that a spec names."""
