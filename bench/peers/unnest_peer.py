"""The floor under every peer: asyncpg, one statement a batch, into the nine columns of a plain op table."""

import asyncio
import hashlib
import sys

import asyncpg

from bench.peers.loop import drive

TABLE = """
create table op (account_id text not null, hlc_wall bigint not null, hlc_counter int not null, device_id text not null,
                 op_id text not null, scope text not null, surface text not null, key text not null,
                 payload text not null, primary key (account_id, hlc_wall, hlc_counter, op_id))
"""
INSERT = """
insert into op select * from unnest($1::text[], $2::bigint[], $3::int[], $4::text[], $5::text[], $6::text[],
                                    $7::text[], $8::text[], $9::text[]) on conflict do nothing returning op_id
"""
PAGE = """
select string_agg(payload, ','), max(hlc_wall), count(*) from (
    select payload, hlc_wall from op where account_id = $1 and hlc_wall > $2
    order by hlc_wall, hlc_counter, op_id limit 1000) page
"""


class Unnest:
    def __init__(self, url: str) -> None:
        self._run = asyncio.Runner().run
        self._connection = self._run(asyncpg.connect(url))
        self._run(self._connection.execute(TABLE))
        self._insert = self._run(self._connection.prepare(INSERT))
        self._page = self._run(self._connection.prepare(PAGE))
        self._rounds = 0

    def prepare(self, batches: list[list[str]]) -> None:
        self._rounds += 1
        self._account, self._arrays, at = f"account-{self._rounds}", [], 0
        for batch in batches:
            rows = []
            for message in batch:
                at += 1
                op_id = hashlib.sha256(f"{self._account}:{at}".encode()).hexdigest()
                rows.append((self._account, at, 0, "laptop", op_id, "personal", "conversation", f"m-{at}", message))
            self._arrays.append([list(column) for column in zip(*rows, strict=True)])

    def append(self) -> None:
        for arrays in self._arrays:
            self._run(self._insert.fetch(*arrays))

    def read(self) -> int:
        read, after = 0, 0
        while (page := self._run(self._page.fetchrow(self._account, after)))["count"]:
            read, after = read + page["count"], page["max"]
        return read


if __name__ == "__main__":
    drive(Unnest(sys.argv[1]))
