"""One optimizer step: the gradient of the batch, its checks, the optimizer and its schedule."""
