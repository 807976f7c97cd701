"""What people and their agents say: made up from parts, always the same for a seed."""

from dataclasses import dataclass

_ASKING = (
    "Is {thing} still {state}?",
    "What did we decide about {thing}?",
    "Please {verb} {thing} before {day}.",
    "Why is {thing} {state}? It was fine on {day}.",
    "Remind me on {day} to {verb} {thing}.",
)
_TELLING = (
    "I looked: {thing} is {state} since {day}.",
    "Done. I could {verb} {thing}.",
    "Before I {verb} {thing}: which one do you mean?",
    "It says {state}, I will try again on {day}.",
    "There are {count}; the newest is {thing}.",
)
_PARTS = {
    "thing": ("the invoice from Lisbon", "your 9:40 train", "build 3417", "the naïve estimate", "Ana's note", "a desk"),
    "state": ("confirmed", "overdue", "green", "half done", "on hold", "not what we agreed"),
    "verb": ("move", "cancel", "book", "summarise", "double-check", "forward"),
    "day": ("Monday", "the 14th", "Friday morning", "the day after", "Thursday"),
    "count": ("2", "3", "11", "40"),
}


@dataclass(slots=True)
class Dice:
    """A small generator of our own, so that every run and every process says the same."""

    state: int

    def below(self, limit: int) -> int:
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % limit

    def one_of(self, choices: tuple[str, ...]) -> str:
        return choices[self.below(len(choices))]

    def name(self) -> str:
        """What no index has seen before, and in no order."""
        return f"{self.below(2**24):06x}{self.below(2**24):06x}"


def question(dice: Dice) -> str:
    return _filled(dice, dice.one_of(_ASKING))


def answer(dice: Dice) -> str:
    """One sentence, or sometimes two."""
    first = _filled(dice, dice.one_of(_TELLING))
    return first if dice.below(4) else f"{first} {_filled(dice, dice.one_of(_TELLING))}"


def _filled(dice: Dice, sentence: str) -> str:
    return sentence.format(**{part: dice.one_of(choices) for part, choices in _PARTS.items()})
