"""The broker: real servers, real processes."""
