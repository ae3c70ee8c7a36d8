"""Processes of the engine: runs without the service, spool, failure texts, FLOPs."""
