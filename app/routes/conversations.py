"""What was said, and the messages to go on with."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from app.routes.asking import AskingDep, answer
from app.routes.documents import RECORD, STAMP, gives
from app.services import listing, telling

router = APIRouter(prefix="/v1/scopes/{scope}", tags=["conversations"])

TurnLimit = Annotated[int | None, Query(ge=1, le=1_000_000_000)]


@router.get(
    "/conversations",
    responses=gives(
        {"conversations": [{"conversation_id": "trip", "turns": 4, "first": STAMP, "last": STAMP}], "cursor": None}
    ),
)
async def conversations(
    asking: AskingDep,
    scope: str,
    cursor: str | None = None,
    limit: Annotated[int, Query(ge=1, le=listing.MAX_CONVERSATIONS)] = 100,
) -> Response:
    """Conversations by id in byte order, with the number of their turns and the first and last stamp."""
    async with asking.reading(scope) as work:
        return answer(await listing.conversations(await work.pg(), work.reach.existing, cursor, limit))


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
        }
    ),
)
async def transcript(
    asking: AskingDep,
    scope: str,
    conversation: str,
    limit: TurnLimit = None,
    before: str | None = None,
    after: str | None = None,
) -> Response:
    """The turns of a conversation in (hlc, op_id) order: all of them, or with a limit the last ones.

    `before` and `after` are cursors of an earlier answer, for the turns next to it.
    """
    async with asking.reading(scope) as work:
        window = telling.Window(listing.read_place(before), listing.read_place(after), limit)
        return answer(await telling.transcript(await work.pg(), work.reach.existing, conversation, window))


@router.get("/resume", responses=gives({"messages": [{"role": "user", "content": "Which bed is it?"}], "repairs": []}))
async def resume(asking: AskingDep, scope: str, conversation: str, limit: TurnLimit = None) -> Response:
    """Messages that a model provider accepts, and what was repaired so that it does.

    With a limit only the last so many turns are used.
    """
    async with asking.reading(scope) as work:
        return answer(await telling.resume(await work.pg(), work.reach.existing, conversation, limit))
