"""Changes of the two databases' schemas, run by ``storage.db.migrate``.

Each database has its own line of versions (``jobs/versions``, ``series/versions``) and its own
version table. A change first expands (new code and old code both work) and contracts in a later
release. Versions are written by hand or by Alembic's autogenerate, and a test compares the result
with the tables that ``storage`` declares.
"""
