"""Ways to an upstream that is not open to a fixed key: each is an `Endpoint` of `models.transport`."""
