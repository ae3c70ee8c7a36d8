"""State beside the weights: inventory, snapshot, restore."""
