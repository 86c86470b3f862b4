"""Files that turns produce."""
