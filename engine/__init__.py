"""Training engine: the program of each rank, and the launcher that starts the ranks.

Not here: where a job runs, and where its metrics are stored. The engine reads and writes one folder
of files (``domain.life.attempt``); it has no database, no broker and none of their credentials.
"""
