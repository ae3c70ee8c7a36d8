"""Memory: forecast, measurement, and the automatic micro-batch."""
