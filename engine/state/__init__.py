"""Inventory of training state: everything beside the weights that a step may change."""
