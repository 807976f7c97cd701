"""The command line: one file per group of commands."""

import sys

import asyncpg
import typer
from pydantic import ValidationError
from sqlalchemy.exc import DBAPIError

from app.away import NO_CONNECTION
from app.cli import migrate, scope, serve, token, upkeep, verify
from app.database import DatabaseUrlError
from app.key_file import KeyFileError
from app.migrate import MigrationError
from app.postgres_binaries import PostgresError
from app.problems import Problem
from app.sql.scopes import ScopeNameTaken
from foldpoint.org_directory import UnfitAccount

#: Errors whose message says enough without a traceback.
EXPLAINED = (
    asyncpg.PostgresError,
    DatabaseUrlError,
    KeyFileError,
    MigrationError,
    NO_CONNECTION,
    OSError,
    PostgresError,
    Problem,
    ScopeNameTaken,
    UnfitAccount,
    ValidationError,
)

commands = typer.Typer(
    help="Foldpoint, a self-hosted sync server for AI-agent state.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
commands.command()(serve.serve)
commands.command()(migrate.migrate)
commands.command()(verify.verify)
commands.command()(upkeep.checkpoint)
commands.command()(upkeep.gc)
commands.add_typer(token.commands, name="token")
commands.add_typer(scope.commands, name="scope")


def main() -> None:
    try:
        commands()
    except DBAPIError as error:
        sys.exit(f"foldpoint: {error.orig}")
    except EXPLAINED as error:
        sys.exit(f"foldpoint: {_explained(error)}")


def _explained(error: Exception) -> str:
    """What a person can do something about."""
    if isinstance(error, ValidationError):
        return "; ".join(f"FOLDPOINT_{str(fault['loc'][0]).upper()}: {fault['msg']}" for fault in error.errors())
    if isinstance(error, OSError) and error.filename is None:
        return f"the database of FOLDPOINT_DATABASE_URL does not answer: {str(error) or type(error).__name__}"
    return str(error) or type(error).__name__
