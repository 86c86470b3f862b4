"""Pure data: what a turn, a conversation, an event and a pause are, and the ports between the rooms."""
