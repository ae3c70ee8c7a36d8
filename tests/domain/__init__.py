"""What a job is: every rule of ``domain``, called directly."""
