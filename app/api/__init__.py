"""HTTP: routes, negotiation, authorisation, problems, SSE."""
