"""What people and their agents say: made up from parts, always the same for a seed."""

from dataclasses import dataclass

_ASKING = (
    "Is {thing} still {state}?",
    "What about {thing}?",
    "Please {verb} {thing} before {day}.",
    "Why is {thing} {state}?",
    "Remind me to {verb} {thing}.",
)
_TELLING = (
    "I see {thing} is {state} since {day}.",
    "Done. I could {verb} {thing}.",
    "Which one shall I {verb}?",
    "It says {state}, I try again on {day}.",
    "There are {count}; the newest is {thing}.",
)
_PARTS = {
    "thing": ("the invoice", "your 9:40 train", "build 3417", "a naïve plan", "Ana's note", "a desk"),
    "state": ("confirmed", "overdue", "green", "half done", "on hold", "not agreed"),
    "verb": ("move", "cancel", "book", "sum up", "check", "forward"),
    "day": ("Monday", "the 14th", "Friday", "the 9th", "Thursday"),
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
    return first if dice.below(8) else f"{first} {_filled(dice, dice.one_of(_TELLING))}"


def _filled(dice: Dice, sentence: str) -> str:
    return sentence.format(**{part: dice.one_of(choices) for part, choices in _PARTS.items()})
