"""Tests of the whole service, started as processes and used over HTTP and the command line."""
