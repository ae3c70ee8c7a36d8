"""Order of samples, and the path from dataset items to micro-batches."""
