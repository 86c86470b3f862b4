"""A brain that plays the model for the healthcare support desk: `--brain '*=demo.healthcare_brain:brain'`.

It has no answers of its own. It reads the case, the tools' outputs and the policies from what it was sent, and
makes its next call or its answer from them: what changes there changes what it says. Which of the desk's agents
it plays shows in the tools that it was given.
"""

import json
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.upstream.brain import Seen

JsonObject = dict[str, Any]

SKILL = "prior-auth-packet-builder"
STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "about already also been before call could does doing each have here letter much must need only "
        "over same says should some that their them then there they this those what when where which will with "
        "would your",
    )
)
INTENT_WORDS = {
    "referral_status_question": ("referral",),
    "prior_auth_confusion": ("prior authorization",),
    "billing_coverage_clarification": ("billing", "statement", "charge"),
    "eligibility_verification": ("eligib", "benefits", "coverage"),
}
UNCERTAIN = re.compile(r"\b(not know|not sure|unsure|both|think|no)\b", re.IGNORECASE)


def brain(seen: Seen) -> JsonObject:
    """The next message or calls of whichever agent asks."""
    if "benefits_review" in seen.tools:
        return Orchestrator(seen).reply()
    if "insurance_eligibility_lookup" in seen.tools:
        return Benefits(seen).reply()
    if "finalize_policy_packet" in seen.tools:
        return Policies(seen).reply()
    return recap(seen)


class Orchestrator:
    """Benefits, then policies, then a person if the packet names a queue, then the resolution."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen
        self.case = _object(seen.user_text)

    def reply(self) -> JsonObject:
        outputs = self.seen.new_outputs
        if len(outputs) == 0:
            return _call("benefits_review", input=json.dumps(self._case_with_patient()))
        if len(outputs) == 1:
            return _call("policy_packet", input=json.dumps(self.case))
        benefits, packet = _object(outputs[0]), _object(outputs[1])
        if packet.get("review_queue") and len(outputs) == 2:
            return self._ask_for_a_person(benefits, packet)
        return _answer(self._resolution(benefits, packet, outputs[2] if len(outputs) > 2 else None))

    def _case_with_patient(self) -> JsonObject:
        """A case that names nobody is about the patient of the case before it, if there was one."""
        if _who(self.case):
            return self.case
        earlier = [found[0] for text in self.seen.said if (found := re.search(r"PAT-\d+", text))]
        return {**self.case, "patient_metadata": {"patient_id": earlier[-1]}} if earlier else self.case

    def _ask_for_a_person(self, benefits: JsonObject, packet: JsonObject) -> JsonObject:
        return _call(
            "route_to_human_queue",
            queue=packet["review_queue"],
            priority=packet["review_priority"] or "normal",
            reason=packet["rules"][0]["text"],
            summary=f"{_patient(benefits)}: {self.case.get('description')} {benefits.get('summary', '')}",
        )

    def _resolution(self, benefits: JsonObject, packet: JsonObject, handoff: str | None) -> JsonObject:
        queued = _object(handoff or "")
        rules = packet.get("rules") or []
        next_step = rules[-1]["text"] if rules else "Ask the caller for more about the request."
        if queued:
            next_step = f"A person in {queued['queue']} takes the case over."
        open_points = "; ".join(packet.get("missing_information") or ["nothing"])
        refused = f" The handoff did not happen: {handoff}" if handoff and not queued else ""
        return {
            "scenario_id": self.case.get("scenario_id", "free_form"),
            "intent": self._intent(packet),
            "patient": _patient(benefits),
            "benefits_summary": benefits.get("summary") or self.seen.new_outputs[0],
            "policy_summary": packet.get("summary") or self.seen.new_outputs[1],
            "next_step": next_step,
            "route_to_human": bool(queued),
            "handoff_id": queued.get("handoff_id"),
            "files": packet.get("files") or [],
            "internal_summary": f"Checked the records and {len(rules)} rules. Open: {open_points}.{refused}",
            "patient_response": f"{benefits.get('summary', '')} {next_step}".strip(),
        }

    def _intent(self, packet: JsonObject) -> str:
        if packet.get("review_queue"):
            return "general_intake"
        text = f"{self.case.get('description')} {self.case.get('transcript')}".lower()
        named = ((text.find(word), intent) for intent, words in INTENT_WORDS.items() for word in words)
        return min(((at, intent) for at, intent in named if at >= 0), default=(0, "general_intake"))[1]


class Benefits:
    """The patient first; coverage and referral, both at once, from what the patient's record says."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen
        self.case = _object(seen.user_text)

    def reply(self) -> JsonObject:
        outputs = [_object(text) for text in self.seen.new_outputs]
        if not outputs:
            return _call("patient_info_lookup", **_who(self.case))
        patient = outputs[0].get("record")
        if patient is None or len(outputs) >= 3:
            return _answer(self._review([output.get("record") for output in outputs]))
        coverage = {key: patient[key] for key in ("payer", "member_id", "date_of_birth")}
        return _calls(
            ("insurance_eligibility_lookup", coverage),
            ("appointment_referral_status_lookup", {"referral_id": patient["referral_id"]}),
        )

    def _review(self, records: list[JsonObject | None]) -> JsonObject:
        patient, coverage, referral = (*records, None, None)[:3]
        looked_up = len(records) > 1
        return {
            "patient_id": patient and patient["patient_id"],
            "patient_name": patient and patient["name"],
            "patient_lookup": _found(patient),
            "eligibility_lookup": _found(coverage) if looked_up else "not_looked_up",
            "referral_lookup": _found(referral) if looked_up else "not_looked_up",
            "plan_name": coverage and coverage["plan_name"],
            "eligibility_status": coverage["eligibility_status"] if coverage else "unknown",
            "copay_primary_care": coverage and coverage["copay_primary_care"],
            "copay_specialist": coverage and coverage["copay_specialist"],
            "deductible_remaining": coverage and coverage["deductible_remaining"],
            "prior_auth_required_services": coverage["prior_auth_required_services"] if coverage else [],
            "referral_status": referral and referral["status"],
            "remaining_visits": referral and referral["remaining_visits"],
            "summary": " ".join([_told_of_coverage(coverage), _told_of_referral(referral)]),
        }


def _told_of_coverage(coverage: JsonObject | None) -> str:
    if coverage is None:
        return "No coverage was found on file."
    services = ", ".join(coverage["prior_auth_required_services"]) or "nothing"
    return (
        f"{coverage['payer']} {coverage['plan_name']} is {coverage['eligibility_status']}: "
        f"primary care ${coverage['copay_primary_care']}, specialist ${coverage['copay_specialist']}, "
        f"${coverage['deductible_remaining']} of the deductible remain; "
        f"prior authorization for {services}. {coverage['notes']}"
    )


def _told_of_referral(referral: JsonObject | None) -> str:
    if referral is None:
        return "No referral was found on file."
    return (
        f"The {referral['specialty']} referral to {referral['requested_provider']} is {referral['status']}, "
        f"{referral['remaining_visits']} visits remain."
    )


@dataclass(frozen=True)
class Rule:
    policy: str
    number: str
    text: str


class Policies:
    """Skill, search, the policies that fit best, the two documents, the packet."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen
        self.case = _object(seen.user_text)

    def reply(self) -> JsonObject:
        outputs = self.seen.new_outputs
        match len(outputs):
            case 0:
                return _call("load_skill", skill_name=SKILL)
            case 1:
                skill = shlex.quote(str(_object(outputs[0]).get("path")) + "/SKILL.md")
                return _shell(f"cat {skill} case/scenario.json case/transcript.txt")
            case 2:
                pattern = shlex.quote("|".join(sorted(self._terms())))
                return _shell(f"grep -rniE {pattern} policies/")
            case 3:
                return _shell(f"grep -H '' {self._best_policy()}")
            case 4:
                return _shell(self._writing())
            case 5:
                return _call("finalize_policy_packet", packet=self._packet())
            case _:
                return {"text": f"The packet cannot be finished: {outputs[-1]}"}

    def _terms(self) -> set[str]:
        return _words(f"{self.case.get('description')} {self.case.get('transcript')}")

    def _best_policy(self) -> str:
        """The policy whose line of topics shares the most words with the case, its description first."""
        described, spoken = _words(self.case.get("description")), _words(self.case.get("transcript"))
        scores: dict[str, int] = {}
        for line in _output(self.seen.new_outputs[2]).splitlines():
            path, _, text = line.partition(":")
            if "Applies to:" in text:
                topics = _words(text)
                scores[path] = 3 * len(described & topics) + len(spoken & topics)
        best = max(sorted(scores), key=lambda path: scores[path], default="policies/human_review.md")
        return shlex.quote(best)

    def _rules(self) -> list[Rule]:
        """The rules of the policy that was read: lines such as `policies/appeals.md:- AP.1: An appeal is…`."""
        read = _output(self.seen.new_outputs[3])
        return [Rule(*found) for found in re.findall(r"^policies/(\S+?):- (\S+): (.+)$", read, re.MULTILINE)]

    def _open_points(self) -> list[str]:
        answers = self.case.get("followup_answers") or {}
        return [question for question, answer in answers.items() if UNCERTAIN.search(str(answer))]

    def _writing(self) -> str:
        rules = self._rules()
        name, description = self.case.get("scenario_id"), self.case.get("description")
        findings = [f"# Policy findings: {name}", "", str(description), ""]
        findings += [f"- {rule.number} (`{rule.policy}`): {rule.text}" for rule in rules]
        checklist = [f"# Checklist for review: {name}", ""]
        checklist += [f"- [ ] {rule.number} is met" for rule in rules]
        checklist += [f"- [ ] Open: {question}" for question in self._open_points()]
        return "\n".join(
            [
                *_heredoc("output/policy_findings.md", findings),
                *_heredoc("output/human_review_checklist.md", checklist),
            ]
        )

    def _packet(self) -> JsonObject:
        rules = self._rules()
        route = re.search(r"queue `([^`]+)` with priority `([^`]+)`", " ".join(rule.text for rule in rules))
        return {
            "summary": " ".join(rule.text for rule in rules),
            "rules": [vars(rule) for rule in rules],
            "missing_information": self._open_points(),
            "review_queue": route[1] if route else None,
            "review_priority": route[2] if route else None,
            "files": ["output/policy_findings.md", "output/human_review_checklist.md"],
        }


def recap(seen: Seen) -> JsonObject:
    """From the resolution in the request; earlier cases from what the assistant said in the conversation."""
    resolution = _object(seen.user_text[seen.user_text.find("{") :])
    told = [said for text in seen.said if "patient_response" in (said := _object(text))]
    return _answer(
        {
            **{key: resolution.get(key) for key in ("patient", "intent", "next_step", "handoff_id", "files")},
            "earlier_cases": [f"{said['scenario_id']}: {said['patient']}" for said in told[:-1]],
        }
    )


# --- reading and replying -----------------------------------------------------------------------


def _who(case: JsonObject) -> JsonObject:
    """The surest thing that the case says of who is asking, as arguments of the patient lookup."""
    known = case.get("patient_metadata") or {}
    for key in ("patient_id", "phone", "name"):
        if known.get(key):
            return {key: known[key]}
    text = str(case.get("transcript"))
    for key, pattern in (("patient_id", r"PAT-\d+"), ("phone", r"\+?\d[\d -]{7,}\d")):
        if found := re.search(pattern, text):
            return {key: found[0]}
    found = re.search(r"\b(?:this is|my name is) ([A-Z]\w+ [A-Z]\w+)", text)
    return {"name": found[1]} if found else {}


def _patient(benefits: JsonObject) -> str:
    if not benefits.get("patient_id"):
        return "nobody on file"
    return f"{benefits['patient_name']} ({benefits['patient_id']})"


def _found(record: JsonObject | None) -> str:
    return "not_found" if record is None else "found"


def _words(text: Any) -> set[str]:
    return set(re.findall(r"[a-z]{4,}", str(text).lower())) - STOP_WORDS


def _output(result: str) -> str:
    """What a command wrote, without the lines that the shell tool puts before it."""
    return result.partition("Output:\n")[2]


def _object(text: str) -> JsonObject:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _heredoc(path: str, lines: Iterable[str]) -> list[str]:
    return [f"cat > {path} <<'END_OF_DOCUMENT'", *lines, "END_OF_DOCUMENT"]


def _shell(command: str) -> JsonObject:
    return _call("exec_command", cmd=command)


def _call(name: str, **arguments: Any) -> JsonObject:
    return _calls((name, arguments))


def _calls(*calls: tuple[str, JsonObject]) -> JsonObject:
    return {"tool_calls": [{"name": name, "arguments": arguments} for name, arguments in calls]}


def _answer(value: JsonObject) -> JsonObject:
    return {"text": json.dumps(value, ensure_ascii=False)}
