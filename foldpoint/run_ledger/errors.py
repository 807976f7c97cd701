"""Why an entry is not folded (run-ledger.md §7).

IllegalEvent              an entry that the ledger does not take, by the crate's variants
  SequenceMismatch  RunIdMismatch  InvalidTransition
  ContextBudgetExceeded  InvalidCompactionRange  TurnMismatch  TurnReused
  StepMismatch  EmptyToolProposalsRejectionReason
  UnproposedToolCall  ToolCallMismatch  ToolCallReused
  SealMismatch            ours: a seal that disagrees with an earlier one, or with the folded winner
"""

from typing import ClassVar

from foldpoint.canonical import Json


class IllegalEvent(Exception):
    """The class's name is the variant, `fields` are the crate's."""

    text: ClassVar[str]

    def __init__(self, **fields: str | int) -> None:
        super().__init__(self.text.format(**fields))
        self.fields = fields

    def to_json(self) -> dict[str, Json]:
        return {"variant": type(self).__name__, "fields": {**self.fields}, "message": str(self)}


class SequenceMismatch(IllegalEvent):
    text = "seq {actual} where {expected} is next"


class RunIdMismatch(IllegalEvent):
    text = "an event of run {actual} in the ledger of run {expected}"


class InvalidTransition(IllegalEvent):
    text = "{event} is not possible in {phase}"


class ContextBudgetExceeded(IllegalEvent):
    text = "the context takes {used} tokens of {budget}"


class InvalidCompactionRange(IllegalEvent):
    text = "the turns {start}..{end_exclusive} are none"


class TurnMismatch(IllegalEvent):
    text = "turn {actual} where {expected} is current"


class TurnReused(IllegalEvent):
    text = "turn {turn_id} was used before in this run"


class StepMismatch(IllegalEvent):
    text = "model step {actual} where {expected} is current"


class EmptyToolProposalsRejectionReason(IllegalEvent):
    text = "rejected without a reason"


class UnproposedToolCall(IllegalEvent):
    text = "the model proposed no such call"


class ToolCallMismatch(IllegalEvent):
    text = "call {actual} where {expected} is current"


class ToolCallReused(IllegalEvent):
    text = "call {call_id} was used before in this run"


class SealMismatch(IllegalEvent):
    text = "seals {actual} at seq {seq}, where {expected} has won"
