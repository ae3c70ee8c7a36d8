"""Kinds: one frozen row for each member, with the traits that other modules ask for."""
