"""The whole service, started as processes the way a person starts it, and used over HTTP and the
command line."""
