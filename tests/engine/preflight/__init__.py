"""Checks before step 1: additivity of the loss, repeatable items and state."""
