"""Blob store, published checkpoints and git repositories."""
