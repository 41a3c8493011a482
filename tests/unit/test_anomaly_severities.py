"""The severities of anomalies are a promise: alerts select by them."""

from penstock.model.anomalies import SEVERITIES

# The twelve kinds of Relay.
RELAY = {
    "flash_message": "info",
    "large_payload": "info",
    "bulk_enqueue": "info",
    "bulk_move": "info",
    "burst_dequeue": "info",
    "long_processing": "warning",
    "near_dlq": "warning",
    "zombie_message": "warning",
    "bulk_delete": "warning",
    "dlq_movement": "critical",
    "lock_stolen": "critical",
    "queue_cleared": "critical",
}
OTHERS = {
    "lost_lease": "warning",
    "poison_message": "critical",
    "stuck_consumer": "critical",
    "retry_storm": "critical",
    "no_consumer": "warning",
    "unknown_task": "warning",
    "export_stalled": "warning",
    "feed_stalled": "warning",
    "detector_failed": "warning",
    "routing_loop": "warning",
    "rule_suspended": "critical",
    "unusual_throughput": "warning",
    "unusual_failures": "critical",
    "unusual_wait": "warning",
    "unusual_run": "warning",
}


def test_each_kind_has_its_severity() -> None:
    assert SEVERITIES == RELAY | OTHERS
