"""Access to the operating system: processes, files, ports and logging.

Imports nothing of Lockstep.
"""
