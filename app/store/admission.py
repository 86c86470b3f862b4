"""How a turn is admitted: idempotency first, then the conversation, the conflict policy, the turn itself."""

from sqlalchemy import Connection

from app.domain.conversation import Conversation
from app.domain.ports import Admission, Admitted
from app.domain.turn import Turn
from app.errors import QueueFull
from app.store import conversations, idempotency, moves, turns


def admit(connection: Connection, admission: Admission, owner: str) -> Admitted:
    """All of it happens in the caller's transaction, or nothing."""
    if admission.idempotency is not None:
        known = idempotency.find(connection, admission.caller, admission.idempotency)
        if known is not None:
            return Admitted(known.turn, 0, None, replayed=True, after=known.after)
    conversation = _conversation(connection, admission)
    ahead = turns.unfinished(connection, conversation.key, *turns.UNFINISHED)
    queued = sum(turn.status == "queued" for turn in ahead)
    _check_policy(admission, ahead, queued)
    position = queued + 1 if ahead else 0
    turn, batch = moves.insert_new(
        connection,
        _new_turn(conversation, admission, runs=0 if ahead else 1),
        lambda turn: admission.first_batch(turn, position),
        owner=owner,
        parent_key=_parent(connection, conversation, admission),
    )
    if admission.idempotency is not None:
        idempotency.add_new(connection, admission.caller, admission.idempotency, turn.key, 0)
    stops_others = admission.request.on_conflict in ("cancel", "rollback")
    return Admitted(turn, position, batch, ahead=_active_first(ahead) if stops_others else ())


def _conversation(connection: Connection, admission: Admission) -> Conversation:
    """The caller's conversation, created if there is none.

    A conversation that a turn creates is bound to an agent only if the request names one.
    """
    found = conversations.find(connection, admission.caller, admission.conversation_id)
    if found is not None:
        return found
    named = admission.request.agent is not None
    return conversations.create(
        connection,
        admission.caller,
        admission.conversation_id,
        agent=admission.agent if named else None,
        metadata={},
    )


def _check_policy(admission: Admission, ahead: list[Turn], queued: int) -> None:
    match admission.request.on_conflict:
        case "reject" if ahead:
            raise moves.in_progress(_active_first(ahead)[0])
        case "enqueue" if ahead and queued >= admission.queue_limit:
            limit = admission.queue_limit
            count = "no turn" if not limit else "1 turn" if limit == 1 else f"{limit} turns"
            raise QueueFull(
                f"In a conversation {count} may wait, and {queued} do. Try again when one has ended.",
                retry_after_s=5,
            )


def _active_first(ahead: list[Turn]) -> tuple[Turn, ...]:
    return tuple(sorted(ahead, key=lambda turn: turn.status == "queued"))


def _new_turn(conversation: Conversation, admission: Admission, *, runs: int) -> Turn:
    return moves.new_turn(
        conversation,
        admission.turn_id,
        admission.request,
        agent=admission.agent,
        model=admission.model,
        runs=runs,
        trace_parent=admission.trace_parent,
    )


def _parent(connection: Connection, conversation: Conversation, admission: Admission) -> int | None:
    """The turn that an edit follows. Any other turn follows the head as it is when it starts to run."""
    if admission.request.after_turn is None:
        return None
    return turns.key_in(connection, conversation.key, admission.request.after_turn)
