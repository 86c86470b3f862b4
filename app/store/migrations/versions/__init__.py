"""One file for each version, named by its number."""
