"""Canonical JSON that is too large to be read whole, split into its leaves while it arrives.

Which objects are entered is the caller's to say; everything else is a leaf, given as its text.
"""

import codecs
from collections.abc import Callable, Iterator
from json import JSONDecodeError, JSONDecoder

Path = tuple[str, ...]

#: Finds where a value ends; what it reads numbers as does not matter.
_scan = JSONDecoder(parse_int=str, parse_float=str).raw_decode


class Splitter:
    """Fed with the pieces of one object's text; gives each leaf's path and text once it is complete, and the last
    of them at `finish`.

    An entered object that is empty gives no leaf. Text that is not canonical JSON gives wrong leaves or none: it
    must have been verified.
    """

    def __init__(self, enters: Callable[[Path], bool]) -> None:
        self._enters = enters
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._text = ""
        self._at = 0
        #: What came since, and how many characters must have come before a value that was cut short is tried again.
        self._waiting: list[str] = []
        self._least = 0
        self._path: Path = ()
        self._key: str | None = None
        self._begun = False

    def feed(self, piece: bytes) -> Iterator[tuple[Path, str]]:
        """The leaves that this piece completes."""
        text = self._decode(piece)
        self._waiting.append(text)
        self._least -= len(text)
        if self._least <= 0:
            yield from self.finish()

    def finish(self) -> Iterator[tuple[Path, str]]:
        """The leaves that are complete and were not given yet."""
        self._text = "".join([self._text[self._at :], *self._waiting])
        self._waiting.clear()
        self._at = self._least = 0
        while self._at < len(self._text):
            if not self._begun:
                self._at, self._begun = self._at + 1, True
            elif self._key is None:
                if not self._next_key():
                    return
            else:
                entered = (*self._path, self._key)
                if self._text[self._at] == "{" and self._enters(entered):
                    self._path, self._key = entered, None
                    self._at += 1
                elif (leaf := self._value()) is None:
                    return
                else:
                    self._key = None
                    yield entered, leaf

    def _next_key(self) -> bool:
        """Pass the end of an object, a comma, or a key with its colon; false if the key is not all there."""
        char = self._text[self._at]
        if char == "}":
            self._path = self._path[:-1]
            self._at += 1
        elif char == ",":
            self._at += 1
        elif (key := self._value()) is None:
            return False
        else:
            self._key = _scan(key)[0]
            self._at += 1
        return True

    def _value(self) -> str | None:
        """The text of the value that begins here, and go past it; None if its end is not there yet."""
        try:
            end = _scan(self._text, self._at)[1]
        except JSONDecodeError:
            end = len(self._text)
        if end == len(self._text):
            self._least = len(self._text) - self._at
            return None
        begin, self._at = self._at, end
        return self._text[begin:end]
