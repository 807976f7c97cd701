"""The command: what it starts, which rows it measures, in rounds, and what it says."""

import argparse
import asyncio
import gc
import os
import platform
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import orjson
import uvloop

from app.embedded import EmbeddedPostgres
from bench import rows_connections, rows_device, rows_large, rows_ledgers, rows_peers, rows_push, rows_read, rows_state
from bench.databases import fresh_database
from bench.figures import PEERS, NotThere, Sample, figures_of
from bench.report import Results, rewrite
from bench.servers import ROOT
from bench.world import FULL, QUICK, SMOKE, Row, Size, World, make_world


class Group(NamedTuple):
    """Figures that one row measures together; a peer's only when asked for."""

    figures: tuple[str, ...]
    row: Row
    peer: str = ""


GROUPS = (
    Group(("P1a", "P1b", "P1c"), rows_push.whole_batches),
    Group(("P2a", "P2b", "P2c", "P3a", "P3b"), rows_device.speed),
    Group(("P4a", "P4b"), rows_read.tail),
    Group(("P5",), rows_read.resumed),
    Group(("P6",), rows_read.look_ups),
    Group(("P7a", "P7b"), rows_large.into_large_scopes),
    Group(("P8",), rows_state.state_hash),
    Group(("P9a", "P9b"), rows_state.checkpoint),
    Group(("P10a",), rows_connections.two_scopes),
    Group(("P10b", "P10c"), rows_connections.single_ops),
    Group(("P11",), rows_ledgers.reads),
    *(Group(figures_of(peer), rows_peers.against(peer), peer) for peer in PEERS),
)
#: Cheap ones that need no cargo.
SMOKE_ROWS = "P1,P4,P6,P10,P11"


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was started is stopped
    arguments = _arguments()
    size = SMOKE if arguments.smoke else QUICK if arguments.quick else FULL
    if arguments.rounds:
        size = size._replace(rounds=arguments.rounds)
    groups = _chosen(arguments.rows or (SMOKE_ROWS if arguments.smoke else ""))
    try:
        with _database(arguments.database_url) as url, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            results = runner.run(_measure(url, size, groups))
    except KeyboardInterrupt:
        sys.exit("stopped")
    print(*results.lines(), sep="\n")
    if arguments.json:
        arguments.json.write_bytes(orjson.dumps(results.to_json(), option=orjson.OPT_INDENT_2) + b"\n")
    if arguments.readme:
        rewrite(arguments.readme, results.rows())
    sys.exit(1 if results.failed else 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Foldpoint; see bench/README.md.")
    parser.add_argument("--rows", default="", help="such as P1,P4 or peers; without, all but the peers")
    how_much = parser.add_mutually_exclusive_group()
    how_much.add_argument("--quick", action="store_true", help="a tenth of everything, to try a change")
    how_much.add_argument("--smoke", action="store_true", help="a few cheap rows, only to see that they run")
    parser.add_argument("--rounds", type=int, help="how often each row is measured")
    parser.add_argument("--database-url", help="a PostgreSQL server; a database is made there and dropped again")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument(
        "--readme", type=Path, nargs="?", const=ROOT / "README.md", metavar="FILE", help="rewrite the README's table"
    )
    arguments = parser.parse_args()
    if arguments.readme and (arguments.quick or arguments.smoke):
        parser.error("the README's table is of a full measurement")
    return arguments


def _chosen(rows: str) -> list[Group]:
    """The groups that measure these figures; `P1` stands for P1a, P1b and P1c."""
    if not rows:
        return [group for group in GROUPS if not group.peer]
    found = {row: [group for group in GROUPS if _has(group, row)] for row in map(str.strip, rows.split(","))}
    if unknown := [row for row, groups in found.items() if not groups]:
        names = [name for group in GROUPS for name in ([group.peer] if group.peer else group.figures)]
        sys.exit(f"no row {', '.join(unknown)}; there are {', '.join(names)}, peers")
    return [group for group in GROUPS if any(group in groups for groups in found.values())]


def _has(group: Group, row: str) -> bool:
    if group.peer:
        return row in ("peers", group.peer)
    return any(row in (name, name.rstrip("abc")) for name in group.figures)


@contextmanager
def _database(server: str | None) -> Iterator[str]:
    """A new database on that server, or else on a durable embedded PostgreSQL set as `foldpoint serve` sets it."""
    if server is not None:
        with fresh_database(server) as url:
            yield url
        return
    with tempfile.TemporaryDirectory(prefix="foldpoint-bench-") as parent:
        Path(parent).chmod(0o755)  # as root, PostgreSQL runs as another account, which must get there
        with EmbeddedPostgres(Path(parent) / "data") as postgres:
            yield postgres.url()


async def _measure(url: str, size: Size, groups: list[Group]) -> Results:
    """Prepare every row, then measure them in rounds: whatever disturbs the machine disturbs all of them."""
    results = Results()
    async with AsyncExitStack() as opened:
        world = await make_world(url, size, opened)
        print(await _conditions(world))
        running: dict[Group, AsyncGenerator[Sample, None]] = {}
        for group in groups:
            running[group] = group.row(world)
            opened.push_async_callback(running[group].aclose)
            await _step(group, running, results, "prepared")
        gc.collect()
        gc.freeze()
        for number in range(1, size.rounds + 1):
            for group in list(running):
                await _step(group, running, results, f"round {number} of {size.rounds}")
    return results


async def _step(group: Group, running: dict[Group, AsyncGenerator[Sample, None]], results: Results, what: str) -> None:
    began = time.perf_counter()
    try:
        results.add(await anext(running[group]))
    except NotThere as missing:
        results.leave_out(group.figures, str(missing))
        del running[group]
    except Exception:  # noqa: BLE001 - the other rows are still worth measuring; the command fails in the end
        traceback.print_exc()
        results.fail(group.figures)
        del running[group]
    else:
        print(f"{what}: {', '.join(group.figures)} ({time.perf_counter() - began:.1f} s)", file=sys.stderr)


async def _conditions(world: World) -> str:
    """What a reader of the figures must know of the machine."""
    settings = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers")
    shown = [f"{name} {await world.pg.fetchval(f'show {name}')}" for name in settings]
    return f"{os.cpu_count()} cores; Python {platform.python_version()}; PostgreSQL: {', '.join(shown)}"
