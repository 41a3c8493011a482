"""Settings of the program, from options, the environment, a file or defaults."""

import os
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from penstock.errors import InvalidInput

T = TypeVar("T")
LogLevel = Literal["debug", "info", "warning", "error"]
FILE = "penstock.toml"
PROJECT = "pyproject.toml"


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """All settings. `host` is the variable PENSTOCK_HOST in the environment, and so on."""

    url: str = "sqlite:///penstock.db"
    app: str | None = None
    host: str = "127.0.0.1"
    port: int = 7070
    workers: int = 1
    grace: float = 30.0
    max_request: int = 33_554_432
    head_timeout: float = 15.0
    body_timeout: float = 30.0
    trusted_proxies: tuple[str, ...] = ()
    cors_origin: tuple[str, ...] = ()
    allow_shell: bool = False
    auth: bool = False
    jwt_issuer: str | None = None
    jwt_audience: str | None = None
    jwks_url: str | None = None
    jwt_algorithms: str = "RS256,ES256,EdDSA"
    jwt_tenant_claim: str | None = None
    require_event_types: bool = False
    require_claims: tuple[str, ...] = ()
    token_scopes: str | None = None
    introspect_kind: Literal["rfc7662", "lookup"] = "rfc7662"
    introspect_url: str | None = None
    introspect_client: str | None = None
    introspect_secret: str | None = None
    rate: float = 0.0
    artifacts: str | None = None
    max_artifact: int = 104_857_600
    lake: str | None = None
    allow_private_callbacks: bool = False
    callback_ports: str = "80,443,8080,8443"
    public_url: str | None = None
    environment: str | None = None
    log_level: LogLevel = "info"


class SettingSource(Struct, frozen=True):
    """A value and where it comes from."""

    value: Any
    source: str


def resolve(flags: Mapping[str, Any] | None = None) -> dict[str, SettingSource]:
    """Resolve all settings. Options override the environment, which overrides the file."""
    options = {name: value for name, value in (flags or {}).items() if value not in (None, ())}
    file, written = read_file()
    found: dict[str, SettingSource] = {}
    for field in msgspec.structs.fields(Settings):
        name, variable = field.name, f"PENSTOCK_{field.name.upper()}"
        if name in options:
            found[name] = SettingSource(options[name], f"--{name.replace('_', '-')}")
        elif os.environ.get(variable):
            found[name] = SettingSource(read(variable, os.environ[variable], field.type), variable)
        elif name in written:
            found[name] = SettingSource(read(f"{file}: {name}", written[name], field.type), file)
        else:
            found[name] = SettingSource(field.default, "default")
    return found


def load_settings(flags: Mapping[str, Any] | None = None) -> Settings:
    return Settings(**{name: each.value for name, each in resolve(flags).items()})


def read_file() -> tuple[str, dict[str, Any]]:
    """Read penstock.toml, or [tool.penstock] in pyproject.toml, of the working directory."""
    for name in (FILE, PROJECT):
        if os.path.exists(name):
            written = load(name)
            table = written if name == FILE else written.get("tool", {}).get("penstock", {})
            if table or name == FILE:
                refuse_unknown(name, table)
                return name, table
    return FILE, {}


def load(path: str) -> dict[str, Any]:
    import tomllib

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path}: {error}") from None


def refuse_unknown(name: str, table: Mapping[str, Any]) -> None:
    known = Settings.__struct_fields__
    if unknown := table.keys() - set(known):
        raise InvalidInput(
            f"{name}: unknown setting {', '.join(sorted(unknown))};"
            f" valid settings are {', '.join(known)}"
        )


def read(where: str, value: Any, kind: Any) -> Any:
    """Convert a value to the type of the setting. Commas separate the items of a list."""
    if kind == tuple[str, ...] and isinstance(value, str):
        value = [each.strip() for each in value.split(",")]
    try:
        return msgspec.convert(value, kind, strict=not isinstance(value, str))
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{where}: {error}") from None
