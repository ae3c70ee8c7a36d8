"""Celery seen from both sides: the app, the message types, publishing, consuming, and the server for one machine.

The broker is a doorbell and nothing more. Every message may be lost, doubled, late or shuffled: what is to be done is
in the database, passes and heartbeats find it there, and a message only makes it quick. So a message carries an id and
never a decision, and nobody waits for the broker.

Not here: what is done when a bell rings (``scheduler``, ``worker``).
"""
