"""What the texts of checkpoints and stamps may not hold (car-sync.md §1.7)."""

import pytest

from foldpoint.canonical import Unreadable
from foldpoint.checkpoint import checkpoint_from_ops, read_checkpoint_text
from foldpoint.device_log import DeviceLog
from foldpoint.op import read_stamp

LOG = DeviceLog("mac")
OPS = [
    LOG.append(1, "personal", "knowledge", {"id": "a", "v": 1}),
    LOG.append(2, "personal", "registry:config", {"id": "b"}),
    LOG.append(3, "personal", "intent", {"id": "r", "agent_id": "ada", "epoch": 7, "status": "committed"}),
]
CHECKPOINT = checkpoint_from_ops(OPS)
TEXT = b"".join(CHECKPOINT.pieces()).decode()


def test_a_checkpoint_reads_as_what_it_says() -> None:
    assert read_checkpoint_text(TEXT.encode()) == CHECKPOINT


@pytest.mark.parametrize(
    ("field", "path"),
    [
        (f'"state_hash":"{CHECKPOINT.state_hash}"', "state_hash"),
        (f'"checkpoint_hash":"{CHECKPOINT.checkpoint_hash}"', "checkpoint_hash"),
        ('"scopes":["personal"]', "scopes"),
        ('"frontier":', "frontier"),
        ('"state":', "state"),
        ('"seq":2', "frontier.mac.seq"),
        (f'"head":"{OPS[-1].op_id}"', "frontier.mac.head"),
        ('"wall_ms":3', "frontier.mac.hlc.wall_ms"),
        ('"logs":', "state.logs"),
        ('"registries":', "state.registries"),
        ('"intents":', "state.intents"),
        ('"fencing_epoch":7', "state.intents.ada.fencing_epoch"),
        ('"runs":', "state.intents.ada.runs"),
        ('"committed_runs":', "state.intents.ada.committed_runs"),
        (f'"op_id":"{OPS[0].op_id}"', "state.logs.knowledge.id:a.op_id"),
        ('"payload":{"id":"a","v":1}', "state.logs.knowledge.id:a.payload"),
        ('"wall_ms":1', "state.logs.knowledge.id:a.hlc.wall_ms"),
        (f'"op_id":"{OPS[1].op_id}"', "state.registries.registry:config.id:b.op_id"),
        (f'"op_id":"{OPS[2].op_id}"', "state.intents.ada.committed_runs.id:r.op_id"),
    ],
)
def test_a_field_given_twice_is_unreadable(field: str, path: str) -> None:
    member = field + "{}" if field.endswith(":") else field
    text = TEXT.replace(field, f"{member},{field}", 1)
    assert text != TEXT
    with pytest.raises(Unreadable, match="duplicate field") as error:
        read_checkpoint_text(text.encode())
    assert error.value.path == path


def test_a_field_given_twice_in_another_spelling_is_unreadable() -> None:
    with pytest.raises(Unreadable, match="duplicate field"):
        read_checkpoint_text(TEXT.replace('"seq":2', r'"seq":2,"s\u0065q":2').encode())


@pytest.mark.parametrize(
    ("member", "given"),
    [
        ('{"id":"a","v":1}', '{"v":0,"id":"a","v":1}'),
        ('{"id":"a","v":1}', '{"id":"a","v":{"x:\\":":1},"v":1}'),
        ('"seq":2', '"later":1,"seq":2,"later":2'),
        ('"id:b":', '"id:b":{"hlc":{"counter":0,"device_id":"d","wall_ms":0},"op_id":"x","payload":0},"id:b":'),
        ('"frontier":', '"x":[{"y":1,"y":2}],"frontier":'),
    ],
)
def test_of_payloads_maps_and_unknown_fields_the_last_value_stays(member: str, given: str) -> None:
    text = TEXT.replace(member, given)
    assert text != TEXT
    assert read_checkpoint_text(text.encode()) == CHECKPOINT


def test_a_stamp_repeats_no_field_of_its_own() -> None:
    stamp = b'{"wall_ms":1,"counter":2,"device_id":"mac"}'
    assert read_stamp(b'{"x":1,"x":2,' + stamp[1:]) == read_stamp(stamp) == (1, 2, "mac")
    for field in (b'"wall_ms":1,', b'"counter":2,', b'"device_id":"mac",'):
        with pytest.raises(Unreadable, match="duplicate field"):
            read_stamp(b"{" + field + stamp[1:])
