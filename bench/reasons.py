"""Why a figure may fall short: told on the page beside by how much it does."""

SLOW_MACHINE = (
    "the bound is absolute and was set on a machine about twice as fast: the hand-written loop"
    " itself takes the reference's figure here"
)
REASONS: dict[str, dict[str, str]] = {
    "sqlite": {
        "latency_p50_ms": SLOW_MACHINE,
        "bulk": "a message is written to two tables, and its ticket to an index; the reference"
        " writes one row",
    },
    "postgres": {
        "publish_one": "message and ticket are two rows where the bare insert is one, and both"
        " sides wait for the same disk",
        "bulk": "message and ticket are rows of two tables where the reference fills one; the"
        " spread is wide",
        "bulk_mixed": "as `bulk`, and every entry brings its own type, rank and moments",
        "backlog_1m": "less than the spread of single turns",
        "client_cpu_us": "a worker also calls a handler, renews leases and settles under a fence;"
        " and " + SLOW_MACHINE.partition(":")[0],
        "cpu_us": SLOW_MACHINE,
        "latency_p50_ms": "a NOTIFY goes out after the commit, never in it, or commits would wait"
        " for each other: one round trip more than the reference, which tells in the same"
        " transaction; and " + SLOW_MACHINE,
        "latency_p99_ms": "not understood beyond the round trip above; the reference itself took"
        " longer than the bound in this run",
    },
    "mariadb": {
        "latency_p50_ms": "a publish and a claim, each with its wait for the disk, take most of it"
        " here; without `wake=` the server looks for news every few milliseconds. The reference,"
        " which polls every 10 ms, takes longer",
        "latency_p99_ms": "as the median; the reference misses it, too",
        "idle_cpu_percent": "a worker that waits asks its server to look, 10 times a second;"
        " `wake=redis://` does without",
    },
    "redis": {
        "latency_p50_ms": SLOW_MACHINE,
        "latency_p99_ms": "the disk, which is waited for at the publish and at the claim; the"
        " reference took longer in this run",
        "backlog_1m": "not looked into; probably the longer walk in a set of a million",
    },
}
