"""Ops as devices write them, about 370 bytes each, and the bodies that push them. Made before anything is timed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bench.talk import Dice, answer, question
from foldpoint.canonical import Json
from foldpoint.device_log import DeviceLog
from foldpoint.op import Op

#: What a device's wall clock reads at first: long ago, so that no stamp runs ahead of the server's clock.
START_MS = 1_700_000_000_000

Written = tuple[str, dict[str, Json]]


@dataclass(slots=True)
class Author:
    """A device that writes, and pushes what it wrote in order."""

    device: str
    seed: int = 1
    #: The conversation it speaks in; without one it turns to another every forty turns or so.
    conversation: str | None = None
    dice: Dice = field(init=False)
    log: DeviceLog = field(init=False)
    wall_ms: int = START_MS
    speaking_in: str = ""

    def __post_init__(self) -> None:
        self.dice = Dice(self.seed)
        self.log = DeviceLog(self.device)
        self.speaking_in = self.conversation or self.dice.name()[:6]

    def write(self, what: "Kind") -> Op:
        self.wall_ms += self.dice.below(2_000)
        surface, payload = what(self)
        return self.log.append(self.wall_ms, "personal", surface, payload)

    def bodies(self, what: "Kind", count: int, ops: int) -> Iterator[bytes]:
        """So many requests of so many ops each."""
        return (body_of(self.write(what) for _ in range(ops)) for _ in range(count))


Kind = Callable[[Author], Written]


def body_of(ops: Iterator[Op]) -> bytes:
    return b"[" + b",".join(op.text() for op in ops) + b"]"


def chat(author: Author) -> Written:
    """A turn: of the person, of the agent, now and then a tool call and its result."""
    dice = author.dice
    if author.conversation is None and dice.below(40) == 0:
        author.speaking_in = dice.name()[:6]
    turn: dict[str, Json] = {"conversation_id": author.speaking_in, "timestamp": author.wall_ms}
    kind = dice.below(10)
    if kind < 4:
        return "conversation", turn | {"role": "user", "content": question(dice)}
    if kind < 9:
        call: Json = {"id": dice.name()[:6], "name": "find", "arguments": {"page": dice.below(9)}}
        calls: list[Json] = [call] if kind == 8 else []
        said: dict[str, Json] = {"role": "assistant", "content": answer(dice), "tool_calls": calls}
        return "conversation", turn | said
    return "conversation", turn | {"role": "tool", "tool_use_id": dice.name()[:6], "content": answer(dice)}


def keyed(author: Author) -> Written:
    """An entity of an id that nothing had before."""
    dice = author.dice
    surface = dice.one_of(("knowledge", "knowledge", "trajectory", "run"))
    payload: dict[str, Json] = {"id": dice.name(), "timestamp": author.wall_ms, "body": answer(dice)}
    return surface, payload | {"confidence": dice.below(100) / 100}


def mixed(author: Author) -> Written:
    """All surfaces, 60 % chat; ids that come again and ids that do not."""
    dice = author.dice
    part = dice.below(100)
    if part < 60:
        return chat(author)
    if part < 78:
        return keyed(author)
    if part < 88:
        return intent(author)
    text: dict[str, Json] = {"timestamp": author.wall_ms, "body": answer(dice)}
    if part < 92:
        return "routing", text | {"model": f"model-{dice.below(4)}", "sample": dice.below(1000) / 1000}
    if part < 94:
        return "skill", text | {"id": f"skill-{dice.below(300)}"}
    if part < 96:
        return "declagent", text | {"id": f"agent-{dice.below(20)}"}
    return "registry:config", text | {"id": f"setting-{dice.below(100)}"}


def intent(author: Author) -> Written:
    """A run is begun, committed, failed: of four runs at a time, each by one agent, about two intents each."""
    dice = author.dice
    four = author.log.next_seq // 8
    status = dice.one_of(("pending", "committed", "committed", "failed"))
    payload: dict[str, Json] = {"id": f"run-{four}-{dice.below(4)}", "agent_id": f"agent-{four % 5}", "epoch": 1}
    return "intent", payload | {"status": status, "note": question(dice), "timestamp": author.wall_ms}
