"""Makes a struct from another one."""

from functools import cache
from typing import Any, TypeVar

from msgspec import Struct

T = TypeVar("T", bound=Struct)


@cache
def find_shared(source: type[Struct], target: type[Struct]) -> tuple[str, ...]:
    fields = set(source.__struct_fields__)
    return tuple(name for name in target.__struct_fields__ if name in fields)


def copy_fields(target: type[T], source: Struct, /, **changes: Any) -> T:
    """Makes a `target` from the fields that it has in common with `source`, and from `changes`."""
    shared = {name: getattr(source, name) for name in find_shared(type(source), target)}
    return target(**{**shared, **changes})
