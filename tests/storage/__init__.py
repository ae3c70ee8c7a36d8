"""The databases: every statement on SQLite and on PostgreSQL."""
