"""Logs that never block the event loop and never show a secret, and the service's metrics: a leaf."""
