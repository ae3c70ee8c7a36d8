"""Life of a job: states, outcomes, timings, and the files of an attempt."""
