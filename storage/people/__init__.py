"""People, projects, memberships and tokens."""
