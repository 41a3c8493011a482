"""Encodes an agent's counts for its last-run record."""

from collections.abc import Mapping

import msgspec


def report(counts: Mapping[str, int]) -> str:
    return msgspec.json.encode(counts).decode()


def read_report(text: str) -> dict[str, int]:
    return msgspec.json.decode(text, type=dict[str, int])
