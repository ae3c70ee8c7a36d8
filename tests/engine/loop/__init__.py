"""The training loop: start, reports, non-finite steps, repeated steps."""
