"""The live window of a turn's events in memory, and the fan-out to its listeners."""
