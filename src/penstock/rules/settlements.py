"""Validates settlements."""

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.errors import InvalidInput
from penstock.model.fields import MAX_DELAY_S, MAX_RUNS, MAX_WORD_LENGTH
from penstock.model.message import Fail, Nack, Settlement, SettleReject
from penstock.rules.validation import check_number, check_text, clip_traceback, replace_surrogates

MAX_SEEN_KEYS = 100
# How long the key of a completed message is remembered.
SEEN_WINDOW_S = 86_400.0


def make_seen_key(key: str) -> str:
    """Returns how a key is stored, apart from dedup and unique keys."""
    return f"seen:{key}"


def check_seen(keys: Sequence[str]) -> None:
    if len(keys) > MAX_SEEN_KEYS:
        raise InvalidInput(f"{len(keys)} keys; a message records at most {MAX_SEEN_KEYS}")
    for key in keys:
        check_text("key", key, MAX_WORD_LENGTH)


def check_settlement(settlement: Settlement) -> Settlement:
    """Validates a settlement. Texts are clipped: a long error must not make the settle fail."""
    if isinstance(settlement, Nack):
        check_number("delay", settlement.delay, 0.0, MAX_DELAY_S)
        check_number("max_attempts", settlement.max_attempts, 1, MAX_RUNS, whole=True)
        check_number("max_total", settlement.max_total, 0.0, MAX_DELAY_S)
    texts = {field: getattr(settlement, field, None) for field in ("error", "reason")}
    given = {field: replace_surrogates(text) for field, text in texts.items() if text is not None}
    if isinstance(settlement, Nack | Fail | SettleReject) and settlement.traceback is not None:
        given["traceback"] = clip_traceback(str(settlement.traceback))
    return replace(settlement, **given) if given else settlement
