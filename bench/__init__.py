"""Measurements and long trials: `make bench`, `make soak`."""
