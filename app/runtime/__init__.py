"""Runs agents: the only room (with sandbox and builtin_agents) that knows the OpenAI Agents SDK."""
