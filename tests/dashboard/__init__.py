"""The built dashboard in a real browser, over a real service with real jobs."""
