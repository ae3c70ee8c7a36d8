"""Rows of jobs: submission, lists, retention and removal."""
