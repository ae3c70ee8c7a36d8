"""Verification of a job, and the conformance kit."""
