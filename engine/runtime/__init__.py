"""Runtime of one rank: its process group, random numbers, telemetry, heartbeat and errors."""
