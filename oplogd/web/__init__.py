"""The HTTP surface: the app, status, metrics, the page for browsers."""
