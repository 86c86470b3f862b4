"""What a log entry looks like on each wire protocol."""
