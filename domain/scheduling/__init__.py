"""Decisions about queued jobs: order, limits, holds and placement."""
