"""What the desk knows: patients, coverage, referrals, scenarios, policies and skills, all of it synthetic.

Everything is read once from a folder of plain files. Lookups are exact, in memory, and say plainly when there
is nothing on file.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict

from app.builtin_agents.healthcare_support.case import Case
from app.builtin_agents.healthcare_support.results import Intent

PACKAGED = Path(__file__).parent / "data"

LookupStatus = Literal["found", "not_found"]


class Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Patient(Record):
    patient_id: str
    name: str
    date_of_birth: str
    phone: str
    payer: str
    member_id: str
    referral_id: str


class Coverage(Record):
    """One insurance record; amounts are whole dollars."""

    payer: str
    member_id: str
    date_of_birth: str
    plan_name: str
    eligibility_status: Literal["active", "inactive", "unknown"]
    copay_primary_care: int
    copay_specialist: int
    deductible_remaining: int
    prior_auth_required_services: tuple[str, ...]
    notes: str


class Referral(Record):
    referral_id: str
    patient_id: str
    status: Literal["approved", "pending", "denied", "expired"]
    specialty: str
    requested_provider: str
    authorized_visits: int
    remaining_visits: int
    notes: str


class PatientLookup(Record):
    lookup_status: LookupStatus
    record: Patient | None


class CoverageLookup(Record):
    lookup_status: LookupStatus
    record: Coverage | None


class ReferralLookup(Record):
    lookup_status: LookupStatus
    record: Referral | None


class Expected(Record):
    """How a scenario should end. Models never see it."""

    intent: Intent
    route_to_human: bool


class Scenario(Case):
    expected: Expected


class _Patients(Record):
    records: tuple[Patient, ...]


class _Coverages(Record):
    records: tuple[Coverage, ...]


class _Referrals(Record):
    records: tuple[Referral, ...]


@dataclass(frozen=True, slots=True)
class Records:
    """`policies` and the files of `skills` are bytes by file name: they go into workspaces as they are."""

    patients: tuple[Patient, ...]
    coverages: tuple[Coverage, ...]
    referrals: tuple[Referral, ...]
    scenarios: Mapping[str, Scenario]
    policies: Mapping[str, bytes]
    skills: Mapping[str, Mapping[str, bytes]]

    @classmethod
    def load(cls, folder: Path = PACKAGED) -> "Records":
        """Read everything, at start. Raises OSError or ValidationError for what is missing or malformed."""
        scenarios = [Scenario.model_validate_json(p.read_bytes()) for p in sorted(_files(folder / "scenarios"))]
        return cls(
            patients=_Patients.model_validate_json((folder / "patients.json").read_bytes()).records,
            coverages=_Coverages.model_validate_json((folder / "insurance.json").read_bytes()).records,
            referrals=_Referrals.model_validate_json((folder / "referrals.json").read_bytes()).records,
            scenarios={scenario.scenario_id: scenario for scenario in scenarios},
            policies={path.name: path.read_bytes() for path in sorted(_files(folder / "policies"))},
            skills={path.name: _tree(path) for path in sorted((folder / "skills").iterdir()) if path.is_dir()},
        )

    def patient(self, *, patient_id: str | None, phone: str | None, name: str | None) -> PatientLookup:
        """By id, else by phone (digits alone count), else by name (case does not count)."""
        if patient_id:
            matches = [p for p in self.patients if p.patient_id == patient_id.strip().upper()]
        elif phone:
            matches = [p for p in self.patients if _digits(p.phone) == _digits(phone)]
        else:
            matches = [p for p in self.patients if name and _folded(p.name) == _folded(name)]
        found = _only(matches)
        return PatientLookup(lookup_status=_status(found), record=found)

    def coverage(self, *, payer: str, member_id: str, date_of_birth: str) -> CoverageLookup:
        """All three must match: a member id alone opens nothing."""
        asked = (_folded(payer), _folded(member_id), date_of_birth.strip())
        found = _only(
            c for c in self.coverages if (_folded(c.payer), _folded(c.member_id), c.date_of_birth) == asked
        )
        return CoverageLookup(lookup_status=_status(found), record=found)

    def referral(self, *, referral_id: str | None, patient_id: str | None) -> ReferralLookup:
        """By the referral's id, else by its patient's."""
        if referral_id:
            matches = [r for r in self.referrals if r.referral_id == referral_id.strip().upper()]
        else:
            wanted = (patient_id or "").strip().upper()
            matches = [r for r in self.referrals if r.patient_id == wanted]
        found = _only(matches)
        return ReferralLookup(lookup_status=_status(found), record=found)


T = TypeVar("T")


def _only(matches: Iterable[T]) -> T | None:
    """The one that matches; None if none does, or if several do: nobody is told of somebody else."""
    found = list(matches)
    return found[0] if len(found) == 1 else None


def _status(found: object | None) -> LookupStatus:
    return "not_found" if found is None else "found"


def _digits(phone: str) -> str:
    return re.sub(r"\D", "", phone)


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file()]


def _tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
