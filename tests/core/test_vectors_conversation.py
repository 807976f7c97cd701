from typing import Any

from foldpoint.fold import fold
from foldpoint.resume import resume
from foldpoint.transcript import conversation_ids, transcript
from tests.fixtures.vectors import golden, ops, text


@golden("resume.json/cases")
def test_transcripts_and_the_messages_to_resume_with(case: Any) -> None:
    state = fold(ops(case["ops"]))
    assert conversation_ids(state) == case["conversation_ids"]
    for name, expected in case["conversations"].items():
        turns = transcript(state, name)
        assert text([turn.to_json() for turn in turns]) == text(expected["transcript"]), name
        assert text([*resume(turns).messages]) == text(expected["resume_messages"]), name
