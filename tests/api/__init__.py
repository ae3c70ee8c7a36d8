"""Tests of the HTTP API on both databases, without a broker."""
