"""The server's settings: `FOLDPOINT_<NAME>` in the environment, each read in one place and named in the README."""

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from foldpoint.admission import MAX_PAYLOAD_DEPTH

HOUR_MS = 3_600_000


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="FOLDPOINT_", frozen=True, hide_input_in_errors=True)

    #: None runs an embedded PostgreSQL in the data directory.
    database_url: SecretStr | None = None
    #: Accepted as an admin token when set.
    admin_token: SecretStr | None = None
    #: A file with 32 random bytes in hex, under which the keys of sealed scopes are kept.
    key_file: Path | None = None
    #: The largest request body that is read, in bytes.
    max_body_bytes: int = Field(256 * 1024 * 1024, ge=1024)
    max_ops_per_request: int = Field(250_000, ge=1)
    #: The largest single op, as stored, in bytes.
    max_op_bytes: int = Field(16 * 1024 * 1024, ge=1024)
    #: How far an op's stamp may run ahead of the database clock; 0 turns the bound off.
    max_clock_skew_ms: int = Field(24 * HOUR_MS, ge=0)
    #: A device silent for longer is evicted from the roster; 0 never evicts.
    eviction_horizon_ms: int = Field(0, ge=0)
    #: Ops after which the server makes a checkpoint, if the state is not larger; 0 makes none unasked.
    checkpoint_every: int = Field(10_000, ge=0)
    #: Seconds between two garbage collections of every scope; 0 collects only when asked.
    gc_interval_s: int = Field(0, ge=0)
    #: Database connections of one server process.
    pool_size: int = Field(10, ge=2)

    def limits(self) -> dict[str, int]:
        """What `GET /v1/limits` gives, and a 413 repeats."""
        return {
            "max_body_bytes": self.max_body_bytes,
            "max_ops_per_request": self.max_ops_per_request,
            "max_op_bytes": self.max_op_bytes,
            "max_nesting": MAX_PAYLOAD_DEPTH,
            "max_clock_skew_ms": self.max_clock_skew_ms,
        }
