"""What an org-key directory takes in (car-sync.md §13b); it holds keys and wraps opaquely, whatever they are worth."""

from dataclasses import fields

from foldpoint.admission import MAX_PAYLOAD_DEPTH
from foldpoint.canonical import Repeats, Unreadable, is_deeper, read_json
from foldpoint.seal.wraps import WrappedOrgKey, read_wrapped
from foldpoint.slug import slug

MAX_ACCOUNT_BYTES = 512
MAX_WRAP_BYTES = 16 * 1024
MAX_PUBLIC_HEX_BYTES = 1024

_WRAP = frozenset(field.name for field in fields(WrappedOrgKey))
_PUBLIC_HEX = "public_hex"


class UnfitAccount(Unreadable):
    """An account that the wire cannot name (server.md §9)."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, "account")


def check_account(account: str) -> None:
    """Raises UnfitAccount for an id that is empty, too long, or not its own slug: two accounts could share that."""
    if not 0 < len(account) <= MAX_ACCOUNT_BYTES:
        raise UnfitAccount(f"an account's id has 1 to {MAX_ACCOUNT_BYTES} characters")
    if account != slug(account):
        raise UnfitAccount(f"{account!r} would travel as {slug(account)!r}, which can be another account")


def read_published_wrap(text: bytes) -> WrappedOrgKey:
    """Read a wrap whose text can be served as it is: a device reads all of its wraps, or none. Raises Unreadable."""
    value = read_json(text)
    wrapped = read_wrapped(value)
    if is_deeper(text, MAX_PAYLOAD_DEPTH):
        raise Unreadable(f"more than {MAX_PAYLOAD_DEPTH} nested containers")
    if not 0 < len(wrapped.recipient.encode()) <= MAX_ACCOUNT_BYTES:
        raise Unreadable(f"a recipient's id has 1 to {MAX_ACCOUNT_BYTES} bytes", "recipient")
    _refuse_repeated(text, _WRAP)
    return wrapped


def read_published_key(text: bytes) -> str:
    """Read the `public_hex` of a published key. Raises Unreadable."""
    value = read_json(text)
    if not isinstance(value, dict) or not isinstance(key := value.get(_PUBLIC_HEX), str):
        raise Unreadable("expected a string", _PUBLIC_HEX)
    if len(key.encode()) > MAX_PUBLIC_HEX_BYTES:
        raise Unreadable(f"longer than {MAX_PUBLIC_HEX_BYTES} bytes", _PUBLIC_HEX)
    _refuse_repeated(text, frozenset((_PUBLIC_HEX,)))
    return key


def _refuse_repeated(text: bytes, names: frozenset[str]) -> None:
    record = Repeats.read(text)
    assert isinstance(record, Repeats)
    record.refuse(names)
