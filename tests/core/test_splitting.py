"""Canonical text taken apart while it arrives gives what reading it whole gives."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from foldpoint.canonical import Json, canonical
from foldpoint.checkpoint import checkpoint_from_ops
from foldpoint.checkpoint_leaves import enters, line_of, put_leaf
from foldpoint.op import Op
from foldpoint.splitting import Path, Splitter
from foldpoint.state import SyncState
from tests.fixtures.ops import THOROUGH, logs

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**64 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


def leaves(splitter: Splitter, text: bytes, size: int) -> Iterator[tuple[Path, str]]:
    for at in range(0, len(text), size):
        yield from splitter.feed(text[at : at + size])
    yield from splitter.finish()


@THOROUGH
@given(st.dictionaries(st.text(max_size=4), json_values, max_size=4), st.integers(1, 40))
def test_the_leaves_are_the_members(value: dict[str, Json], size: int) -> None:
    splitter = Splitter(lambda path: len(path) < 2)
    found = dict(leaves(splitter, canonical(value), size))
    expected: dict[Path, str] = {}
    for key, inner in value.items():
        if isinstance(inner, dict):
            expected.update({(key, name): canonical(leaf).decode() for name, leaf in inner.items()})
        else:
            expected[(key,)] = canonical(inner).decode()
    assert found == expected


@THOROUGH
@given(logs(), st.integers(1, 300))
def test_a_checkpoint_in_pieces_gives_its_state(ops: list[Op], size: int) -> None:
    checkpoint = checkpoint_from_ops(ops)
    splitter, state, lines = Splitter(enters), SyncState(), 0
    for path, text in leaves(splitter, b"".join(checkpoint.pieces()), size):
        put_leaf(state, path, text)
        lines += line_of(path, text) is not None
    assert state == checkpoint.state
    groups = [*state.logs.values(), *state.registries.values()]
    views = [view for one in state.intents.values() for view in (one.runs, one.committed_runs)]
    assert lines == sum(map(len, groups + views)) + len(state.intents)


def test_a_large_leaf_in_small_pieces_is_not_read_over_and_over() -> None:
    leaf = "x" * 4_000_000
    splitter = Splitter(lambda _: False)
    text = canonical({"a": leaf})
    assert list(leaves(splitter, text, 4_096)) == [(("a",), f'"{leaf}"')]
