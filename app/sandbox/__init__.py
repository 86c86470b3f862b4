"""Confinement of sandbox agents."""
