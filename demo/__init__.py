"""What `make demo` shows: agents at work without a model's provider."""
