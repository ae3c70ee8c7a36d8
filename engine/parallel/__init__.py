"""Cut of the layers of one model over several ranks: plan, slices, messages, whole tensors."""
