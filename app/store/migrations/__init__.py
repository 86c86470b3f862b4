"""The database's versions, from an empty file to today's tables."""
