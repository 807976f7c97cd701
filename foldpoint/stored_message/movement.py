"""How messages move within a context and out of it (stored-message.md §8).

No message changes between system and history. What leaves history leaves in whole transactions, except at a rollback.
"""

from collections.abc import Sequence
from dataclasses import replace

from foldpoint.stored_message.context import Context, Held, Row
from foldpoint.stored_message.knowledge import Slot
from foldpoint.stored_message.live import Live
from foldpoint.stored_message.transactions import transactions


def admit(context: Context, live: Live, tokens: int) -> Context:
    """The message at the end of history; a result that answers the last open call lets the held messages follow."""
    grown = replace(context, history=[*context.history, Row(live, tokens)])
    return grown if live.role != "tool" or awaits_results(grown) else release(grown)


def hold(context: Context, live: Live, tokens: int) -> Context:
    """The message after the results of the current batch of calls: held, as long as one is open."""
    if awaits_results(context):
        return replace(context, held=[*context.held, Held(live, tokens)])
    return admit(context, live, tokens)


def release(context: Context) -> Context:
    """The held messages in history, as before a model call, whether their batch was answered or not."""
    return replace(context, history=[*context.history, *(Row(*held) for held in context.held)], held=[])


def awaits_results(context: Context) -> bool:
    """Whether a call of the last assistant message has no result after it yet."""
    answered: set[str] = set()
    for row in reversed(context.history):
        if row.live.role != "tool":
            return row.live.role == "assistant" and any(call.id not in answered for call in row.live.tool_calls)
        answered.update(part["call_id"] for part in row.live.results)
    return False


def archive(context: Context, count: int) -> Context:
    """Compaction: the oldest transactions leave."""
    units = _transactions(context)
    return _from(context, units[count].start if count < len(units) else len(context.history))


def renew(context: Context, allowance: int) -> Context:
    """Renewal: of history, the newest transactions whose tokens fit the allowance stay."""
    start = len(context.history)
    for unit in reversed(_transactions(context)):
        allowance -= sum(context.history[place].measured for place in unit)
        if allowance < 0:
            break
        start = unit.start
    return _from(context, start)


def roll_back(context: Context, length: int) -> Context:
    """Rollback: history ends at an earlier length."""
    return replace(
        context,
        history=context.history[:length],
        frozen_history_len=min(context.frozen_history_len, length),
    )


def excerpt(context: Context, place: int, live: Live, tokens: int) -> Context:
    """A message of history as a shorter form of itself, in its place."""
    history = list(context.history)
    history[place] = Row(live, tokens, item=history[place].item)
    return replace(context, history=history)


def summarise(context: Context, live: Live, tokens: int) -> Context:
    """A summary of what left at the head of history."""
    return _refrozen(context, [Row(live, tokens), *context.history])


def cross_boundary(context: Context) -> Context:
    """Knowledge at a compaction or renewal: staged becomes resident, pending current, and marked slots leave."""
    return replace(
        context,
        knowledge=[_after_boundary(slot) for slot in context.knowledge if not slot.fields["evict_at_boundary"]],
    )


def _after_boundary(slot: Slot) -> Slot:
    live, tokens = slot.pending or (slot.live, slot.tokens)
    return Slot(live, tokens, None, {**slot.fields, "staged": False})


def _transactions(context: Context) -> list[range]:
    return transactions([row.live for row in context.history])


def _from(context: Context, start: int) -> Context:
    return _refrozen(context, context.history[start:])


def _refrozen(context: Context, history: Sequence[Row]) -> Context:
    """With a new beginning of history, all of it is the frozen prefix of what comes next."""
    return replace(context, history=history, frozen_history_len=len(history))
