"""Celery on both sides: app, message types, publisher, consumer, and the server of one machine.

Messages are notifications. Each may be lost, duplicated, delayed or reordered: the work is in the
database, where reconcile cycles and heartbeats find it, and a message only speeds it up. A message
therefore carries an id and never a decision, and no caller waits for the broker.

Not here: the handling of notifications (``scheduler``, ``worker``).
"""
