"""Targets of each store, for a disk and an otherwise idle machine."""

from bench.table import Target

# For a file on disk.
SQLITE = {
    "publish_one": Target("ratio", ">=", 0.45),
    "publish_64_callers": Target("ratio", ">=", 8),
    "bulk": Target("ratio", ">=", 0.58),
    "drain": Target("ratio", ">=", 0.75),
    "client_cpu_us": Target("value", "<=", 5),
    "drain_beside_peer": Target("ratio", ">=", 5),
    "drain_threads": Target("ratio", ">=", 0.8),
    "drain_two_workers": Target("ratio", ">=", 1),
    "smaller_share": Target("value", ">=", 40),
    "drain_by_verbs": Target("ratio", ">=", 0.75),
    "backlog_1m": Target("ratio", ">=", 0.9),
    "latency_p50_ms": Target("ratio", "<=", 1.6),
    "latency_p99_ms": Target("ratio", "<=", 1.6),
    "idle_cpu_percent": Target("value", "<=", 1),
    # The default lease plus 2 seconds.
    "recovery_s": Target("value", "<=", 32),
    "memory_growth_mb": Target("value", "<=", 5),
}


POSTGRES = {
    "publish_one": Target("ratio", ">=", 0.72),
    "publish_64_callers": Target("ratio", ">=", 5),
    "bulk": Target("ratio", ">=", 0.57),
    "bulk_mixed": Target("ratio", ">=", 0.41),
    "publish_two_inserts": Target("ratio", ">=", 0.9),
    "drain": Target("ratio", ">=", 0.9),
    "client_cpu_us": Target("value", "<=", 5),
    "drain_threads_by_hand": Target("ratio", ">=", 0.8),
    "drain_one_core": Target("ratio", ">=", 0.7),
    "drain_two_workers": Target("ratio", ">=", 1),
    "smaller_share": Target("value", ">=", 40),
    "cpu_us": Target("value", "<=", 20),
    "wal_bytes": Target("value", "<=", 1_250),
    "commits": Target("value", "<=", 0.02),
    "backlog_1m": Target("ratio", ">=", 0.9),
    "drain_among_1000": Target("ratio", ">=", 1),
    "drain_old_snapshot": Target("ratio", ">=", 0.75),
    "old_snapshot_flat": Target("value", ">=", 0.9),
    "latency_p50_ms": Target("ratio", "<=", 1.6),
    "latency_p99_ms": Target("ratio", "<=", 1.6),
    "idle_cpu_percent": Target("value", "<=", 1),
    # The default lease plus 2 seconds.
    "recovery_s": Target("value", "<=", 32),
    "memory_growth_mb": Target("value", "<=", 5),
}


REDIS = {
    "publish_one": Target("ratio", ">=", 0.5),
    "publish_64_callers": Target("ratio", ">=", 5),
    "bulk": Target("ratio", ">=", 0.4),
    "drain": Target("ratio", ">=", 0.4),
    "drain_two_workers": Target("ratio", ">=", 1),
    "smaller_share": Target("value", ">=", 40),
    "drain_threads": Target("ratio", ">=", 0.8),
    "backlog_1m": Target("ratio", ">=", 0.9),
    "latency_p50_ms": Target("value", "<=", 2.5),
    "latency_p99_ms": Target("value", "<=", 6),
    "idle_cpu_percent": Target("value", "<=", 1),
    # The default lease plus 2 seconds.
    "recovery_s": Target("value", "<=", 32),
    "memory_growth_mb": Target("value", "<=", 5),
}


# The hand-written loop moves tickets from table to table, and keeps what it ended.
MARIADB = {
    "publish_one": Target("ratio", ">=", 0.8),
    "publish_64_callers": Target("ratio", ">=", 5),
    "bulk": Target("ratio", ">=", 0.5),
    "drain": Target("ratio", ">=", 0.8),
    "drain_threads_by_hand": Target("ratio", ">=", 0.7),
    "drain_one_core": Target("ratio", ">=", 0.7),
    "drain_two_workers": Target("ratio", ">=", 1),
    "smaller_share": Target("value", ">=", 40),
    "commits": Target("value", "<=", 0.02),
    "backlog_1m": Target("ratio", ">=", 0.9),
    "drain_among_1000": Target("ratio", ">=", 0.9),
    "latency_p50_ms": Target("value", "<=", 2.5),
    "latency_p99_ms": Target("value", "<=", 6),
    "idle_cpu_percent": Target("value", "<=", 1),
    # The default lease plus 2 seconds.
    "recovery_s": Target("value", "<=", 32),
    "memory_growth_mb": Target("value", "<=", 5),
}


# One server process, 64 connections; the reference is an echo of the same body.
HTTP = {
    "batch_publish": Target("ratio", ">=", 0.6),
    "batch_consume": Target("ratio", ">=", 0.6),
    "parked_cpu_percent": Target("value", "<=", 1),
    "parked_wake_p50_ms": Target("value", "<=", 4),
    "crowded_rss_mb": Target("value", "<=", 300),
    "crowded_p99_ms": Target("ratio", "<=", 3),
}
HTTP_SQLITE = {
    "publish": Target("ratio", ">=", 0.35),
    "claim_complete": Target("ratio", ">=", 0.35),
    **HTTP,
}
HTTP_POSTGRES = {
    "publish": Target("ratio", ">=", 0.4),
    "claim_complete": Target("ratio", ">=", 0.4),
    **HTTP,
}


PIPELINE = {
    "extract": Target("ratio", ">=", 0.7),
    "run": Target("ratio", "<=", 6),
    "next_hour": Target("ratio", "<=", 3),
}


TARGETS: dict[str, dict[str, Target]] = {
    "sqlite": SQLITE,
    "postgres": POSTGRES,
    "mariadb": MARIADB,
    "redis": REDIS,
    "http-sqlite": HTTP_SQLITE,
    "http-postgres": HTTP_POSTGRES,
    "pipeline": PIPELINE,
}
