"""The org-key directory."""

from alembic import op

revision = "0002"
down_revision = "0001"

STATEMENTS = (
    """
    create table org_key_wrap (
        scope integer not null,
        slug text collate "C" not null,
        epoch numeric(20, 0) not null,
        recipient bytea not null,
        body bytea not null,
        constraint pk_org_key_wrap primary key (scope, slug, epoch, recipient),
        constraint fk_org_key_wrap_scope foreign key (scope) references scope (id) on delete cascade
    )
    """,
    """
    create table org_public_key (
        scope integer not null,
        account text collate "C" not null,
        public_hex bytea not null,
        constraint pk_org_public_key primary key (scope, account),
        constraint fk_org_public_key_scope foreign key (scope) references scope (id) on delete cascade
    )
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
