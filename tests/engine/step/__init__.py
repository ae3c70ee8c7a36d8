"""The optimizer step: gradient, communication, optimizer, replicas."""
