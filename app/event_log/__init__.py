"""The live window of a turn's events in memory, and the fan-out to its listeners."""

from app.event_log.encoding import encoded, event_from_json
from app.event_log.event_logs import EventLogs

__all__ = ["EventLogs", "encoded", "event_from_json"]
