"""Tasks: the built-in ones, tasks of users, and dropout."""
