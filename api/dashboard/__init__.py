"""Files of the dashboard, and the page that replaces them if they are not built."""
