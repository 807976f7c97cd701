"""What was said, and the messages to go on with."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from app.routes.asking import AskingDep, answer, sent
from app.routes.documents import CURSORS, FOLDED, RECORD, STAMP, gives
from app.routes.frontiers import AtDep, Frontier
from app.services.reading import listing, telling
from app.services.reading.past import stamps_at
from app.sql.histories import Stamp
from app.sql.transactions import Driver

router = APIRouter(prefix="/v1/scopes/{scope}", tags=["conversations"])

RESUMED = {"messages": [{"role": "user", "content": "Which bed is it?"}], "repairs": []}
TurnLimit = Annotated[int | None, Query(ge=1, le=1_000_000_000)]


@router.get(
    "/conversations",
    responses=gives(
        {"conversations": [{"conversation_id": "trip", "turns": 4, "first": STAMP, "last": STAMP}], "cursor": None},
        *FOLDED,
        *CURSORS,
    ),
)
async def conversations(
    asking: AskingDep,
    scope: str,
    cursor: str | None = None,
    limit: Annotated[int, Query(ge=1, le=listing.MAX_CONVERSATIONS)] = 100,
) -> Response:
    """Conversations by id in byte order, with the number of their turns and the first and last stamp."""
    async with asking.folded(scope) as work:
        return answer(await listing.conversations(await work.pg(), work.reach.cursors, cursor, limit))


@router.get(
    "/transcript",
    responses=gives(
        {
            "turns": [
                {
                    "conversation_id": "trip",
                    "role": "user",
                    "content": "Which bed is it?",
                    "timestamp": 1750000060000,
                    "hlc": STAMP,
                    "op_id": RECORD["op_id"],
                }
            ],
            "before": None,
            "after": None,
        },
        *FOLDED,
        "frontier_collected",
        *CURSORS,
    ),
)
async def transcript(
    asking: AskingDep,
    scope: str,
    conversation: str,
    limit: TurnLimit = None,
    before: str | None = None,
    after: str | None = None,
    at: AtDep = None,
) -> Response:
    """The turns of a conversation in (hlc, op_id) order: all of them, or with a limit the last ones.

    `before` and `after` are cursors of an earlier answer, for the turns next to it; `at` is a past frontier.
    """
    async with asking.reading_conversation(scope, limit) as work:
        cursors = work.reach.cursors
        pg, until = await work.pg(), await _until(await work.pg(), cursors.scope, at)
        window = telling.Window(cursors.read(before, listing.place), cursors.read(after, listing.place), limit, until)
        if limit is not None:
            return answer(await telling.transcript(pg, cursors, conversation, window))
        spool = await telling.whole_transcript(pg, cursors, conversation, window)
    return sent(asking, spool)


@router.get("/resume", responses=gives(RESUMED, *FOLDED, "frontier_collected"))
async def resume(
    asking: AskingDep, scope: str, conversation: str, limit: TurnLimit = None, at: AtDep = None
) -> Response:
    """Messages that a model provider accepts, and what was repaired so that it does.

    With a limit only the last so many turns are used, with `at` only those of a past frontier.
    """
    async with asking.reading_conversation(scope, limit) as work:
        pg, number = await work.pg(), work.reach.existing
        window = telling.Window(limit=limit, until=await _until(pg, number, at))
        spool = await telling.resume(pg, number, conversation, window)
    return sent(asking, spool)


async def _until(pg: Driver, scope: int, at: Frontier | None) -> dict[int, Stamp] | None:
    return None if at is None else await stamps_at(pg, scope, at)
