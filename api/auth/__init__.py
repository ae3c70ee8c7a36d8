"""Authentication, request origins and quotas."""
