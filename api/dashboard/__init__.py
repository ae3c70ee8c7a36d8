"""Files of the dashboard, and the page that replaces them where they are not built."""
