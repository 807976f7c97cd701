"""The merge of several devices' records, against the crate and the winner rule (run-ledger.md §12)."""

from typing import Any

from foldpoint.canonical import Json, canonical
from foldpoint.op import read_hlc
from foldpoint.projection import payload_id
from foldpoint.run_ledger.answers import run_answer
from foldpoint.run_ledger.merge import merge
from foldpoint.run_ledger.readback import readback
from foldpoint.state import Record
from tests.fixtures.run_ledger_vectors import golden, text


def folded_record(op: Any) -> tuple[Record, str]:
    """A vector's op as a record of the registry, and the id by which the projection names it."""
    hlc = read_hlc(op["hlc"])
    content: dict[str, Json] = {"run_id": op["run_id"], "record": op["record"], "note": op["op_id"]}
    name = payload_id(hlc.device_id, content)
    return Record(hlc, op["op_id"], canonical({**content, "id": name})), name


def in_the_vectors_names(statuses: Any, names: dict[str, str]) -> dict[str, Json]:
    return {
        names[name]: {**status, "winner": names[status["winner"]]} if "winner" in status else status
        for name, status in statuses.items()
    }


@golden("server-merge.json")
def test_merge(case: Any) -> None:
    (run_id,) = {op["run_id"] for op in case["ops"]}
    records, names = [], {}
    for op in case["ops"]:
        record, name = folded_record(op)
        records.append(record)
        names[name] = op["op_id"]
    merged = merge(run_id, records)
    answer = run_answer(merged)
    assert text(
        {
            **answer,
            "statuses": in_the_vectors_names(answer["statuses"], names),
            "folded": [names[entry.place.id] for entry in merged.folded],
            "readback": readback(entry.record for entry in merged.folded),
        }
    ) == text(case["expect"])
