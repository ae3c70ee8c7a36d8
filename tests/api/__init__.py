"""The HTTP API on both databases, with a broker that is not there."""
