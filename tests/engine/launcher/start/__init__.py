"""Start of ranks: environment, forking, import names."""
