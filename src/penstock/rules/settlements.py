"""Validates settlements."""

from msgspec.structs import replace

from penstock.model.fields import MAX_DELAY_S, MAX_RUNS
from penstock.model.message import Fail, Nack, Settlement, SettleReject
from penstock.rules.validation import check_number, clip_traceback, replace_surrogates


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
