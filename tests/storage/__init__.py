"""Tests of the databases: every statement on SQLite and on PostgreSQL."""
