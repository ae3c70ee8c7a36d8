"""Experimental strategies."""
