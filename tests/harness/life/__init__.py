"""Lives of jobs without processes: the service, the model of its guarantees, and random actions on both."""
