"""The rules: admission, one turn in flight, cancel, pause, resume, recovery."""
