"""Keys of sealed scopes."""

from alembic import op

revision = "0004"
down_revision = "0003"

STATEMENTS = (
    """
    alter table scope
        add column key_state text constraint ck_scope_key_state check (key_state in ('unlocking', 'unlocked')),
        add column key_generation integer not null default '0'
    """,
    """
    create index ix_scope_unlocking on scope (id) where key_state = 'unlocking'
    """,
    """
    create table scope_key (
        scope integer not null,
        key_id bytea not null,
        sealed bytea not null,
        opened_ops bigint not null default '0',
        settled_intents bigint not null default '0',
        constraint pk_scope_key primary key (scope),
        constraint fk_scope_key_scope foreign key (scope) references scope (id) on delete cascade
    )
    """,
    """
    create table opened (
        scope integer not null,
        device integer not null,
        upto bigint not null,
        constraint pk_opened primary key (scope, device),
        constraint fk_opened_scope foreign key (scope) references scope (id) on delete cascade
    )
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
