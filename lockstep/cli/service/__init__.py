"""Commands about the service, its nodes and the configuration."""
