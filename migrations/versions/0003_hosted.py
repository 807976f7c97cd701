"""What hosted writes answered, by their idempotency keys."""

from alembic import op

revision = "0003"
down_revision = "0002"

STATEMENTS = (
    """
    create table idempotency (
        scope integer not null,
        key bytea not null,
        request bytea not null,
        answer bytea not null,
        until_ms bigint not null,
        constraint pk_idempotency primary key (scope, key),
        constraint fk_idempotency_scope foreign key (scope) references scope (id) on delete cascade
    )
    """,
    """
    create index ix_idempotency_until_ms
        on idempotency (scope, until_ms)
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
