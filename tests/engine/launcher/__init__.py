"""The launcher as a process, with real ranks."""
