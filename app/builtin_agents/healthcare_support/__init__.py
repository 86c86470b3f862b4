"""The healthcare support desk: a workflow of four agents, a sandbox, documents and a person's approval.

Everything in it is synthetic.
"""

from app.builtin_agents.healthcare_support.records import Records
from app.builtin_agents.healthcare_support.workflow import HealthcareSupport

__all__ = ["HealthcareSupport", "Records"]
