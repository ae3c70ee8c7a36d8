"""Training loop: assembly, steps, evaluation and reports."""
