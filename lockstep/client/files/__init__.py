"""Files of jobs on this machine: archives, specs, checkpoints and exports."""
