"""Identifiers: opaque, unguessable, and recognisable by their prefix."""

import secrets
import string
from typing import NewType

TurnId = NewType("TurnId", str)
ConversationId = NewType("ConversationId", str)
ItemId = NewType("ItemId", str)
CallId = NewType("CallId", str)
ApprovalId = NewType("ApprovalId", str)
PauseId = NewType("PauseId", str)
ArtifactId = NewType("ArtifactId", str)

_ALPHABET = string.ascii_letters + string.digits
_LENGTH = 24
_BITS = 142  # 62**24 is a little more


def _new(prefix: str) -> str:
    """One call to the system for each, and not one for each letter."""
    number = secrets.randbits(_BITS)
    letters = []
    for _ in range(_LENGTH):
        number, index = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[index])
    return prefix + "".join(letters)


def new_turn_id() -> TurnId:
    return TurnId(_new("turn_"))


def new_conversation_id() -> ConversationId:
    return ConversationId(_new("conv_"))


def new_item_id() -> ItemId:
    return ItemId(_new("item_"))


def new_call_id() -> CallId:
    return CallId(_new("call_"))


def new_approval_id() -> ApprovalId:
    return ApprovalId(_new("appr_"))


def new_pause_id() -> PauseId:
    return PauseId(_new("pause_"))


def new_artifact_id() -> ArtifactId:
    return ArtifactId(_new("art_"))


def new_request_id() -> str:
    return _new("req_")
