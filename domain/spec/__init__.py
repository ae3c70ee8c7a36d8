"""Job spec: its fields, validation, changes and stored form."""
