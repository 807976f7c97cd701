"""What claims handed out of journal queues."""

from alembic import op

revision = "0006"
down_revision = "0005"

STATEMENTS = (
    """
    create table journal_claim (
        scope integer not null,
        stream bytea not null,
        entry bytea not null,
        op_id bytea not null,
        constraint pk_journal_claim primary key (scope, stream, entry)
    )
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
