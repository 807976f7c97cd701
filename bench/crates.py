"""The crate's side: programs on the published crates, built with cargo where there is one."""

import asyncio
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from bench.figures import NotThere

ROOT = Path(__file__).parents[1]
#: Real devices; what runs against the server, and against the crate's own loopback server.
CLIENT = ROOT / "tests/interop/car-client"
#: The crate's functions alone, in process.
ALONE = ROOT / "bench/car-bench"
RUN_SECONDS = 900
BUILD_SECONDS = 1_800


@dataclass(slots=True)
class Crates:
    _built: dict[Path, Path] = field(default_factory=dict)

    async def speed(self, ops: int, **environment: str) -> dict[str, float]:
        """`car-client speed`: push so many ops in batches of 1,000 and pull them. Raises NotThere."""
        program = await self._program(CLIENT)
        settings = {"N": str(ops), "BATCH": "1000", **environment}
        printed = orjson.loads(await output_of(program, "speed", environment=settings))
        found: dict[str, float] = printed["result"]
        return found

    async def alone(self, *arguments: str) -> dict[str, Any]:
        """One figure of car-bench. Raises NotThere."""
        found: dict[str, Any] = orjson.loads(await output_of(await self._program(ALONE), *arguments))
        return found

    async def ops(self, kind: str, count: int) -> list[bytes]:
        """The texts of the ops that car-bench's figures are of. Raises NotThere."""
        return (await output_of(await self._program(ALONE), "ops", kind, str(count))).splitlines()

    async def _program(self, folder: Path) -> Path:
        """Built on first use, into CARGO_TARGET_DIR or the folder's own target."""
        if folder not in self._built:
            if shutil.which("cargo") is None:
                raise NotThere("there is no cargo here")
            if not (folder / "Cargo.toml").exists():
                raise NotThere(f"there is no {folder.relative_to(ROOT)}")
            print(f"building {folder.name}", file=sys.stderr)
            manifest = folder / "Cargo.toml"
            await output_of(
                Path("cargo"), "build", "--quiet", "--release", "--manifest-path", str(manifest), limit=BUILD_SECONDS
            )
            target = Path(os.environ.get("CARGO_TARGET_DIR", folder / "target"))
            self._built[folder] = target / "release" / folder.name
        return self._built[folder]


async def output_of(
    program: Path, *arguments: str, environment: Mapping[str, str] | None = None, limit: float = RUN_SECONDS
) -> bytes:
    """What a program prints; its complaints go where ours do. Raises RuntimeError if it fails."""
    process = await asyncio.create_subprocess_exec(
        program, *arguments, env={**os.environ, **(environment or {})}, stdout=asyncio.subprocess.PIPE
    )
    try:
        printed, _ = await asyncio.wait_for(process.communicate(), limit)
    except BaseException:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        raise RuntimeError(f"{program.name} {' '.join(arguments)} failed: {printed[-500:].decode(errors='replace')}")
    return printed
