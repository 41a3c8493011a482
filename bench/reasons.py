"""Reasons for missed targets, shown on the page."""

SLOW_MACHINE = (
    "the bound is absolute and was set on a machine about twice as fast: the hand-written loop"
    " itself takes the reference's figure here"
)
ONE_THREAD = (
    "one Python thread parses, authenticates, validates, counts and responds, and the speed of"
    " this machine varies by a factor of two. Runs of one afternoon were between "
)
SHARED = (
    "the client, the service and the store have a thread each on two cores, and the reference"
    " has little more than one thread. A message costs the service"
)
SERVICE = {
    "publish": ONE_THREAD + "0.35 and 0.38 on SQLite",
    "claim_complete": ONE_THREAD + "0.31 and 0.34 on SQLite",
}
REASONS: dict[str, dict[str, str]] = {
    "sqlite": {
        "latency_p50_ms": "each side hands its write to the thread that commits and back, about"
        " 0.05 ms each time; the reference commits in its only thread",
        "bulk": "a message is written to two tables, and its ticket to an index; the reference"
        " writes one row. `bulk_two_inserts` compares with both inserts by hand",
    },
    "postgres": {
        "publish_one": "message and ticket are two rows where the bare insert is one, and both"
        " sides wait for the same disk. `publish_two_inserts` compares with both by hand",
        "bulk": "message and ticket are rows of two tables where the reference fills one; the"
        " spread is wide",
        "bulk_mixed": "as `bulk`, and every entry brings its own type, rank and moments",
        "backlog_1m": "less than the spread of single turns",
        "drain_among_1000": "less than the spread of single turns",
        "client_cpu_us": "a worker also calls a handler, renews leases and settles under a fence;"
        " and " + SLOW_MACHINE.partition(":")[0],
        "cpu_us": SLOW_MACHINE,
        "latency_p50_ms": "NOTIFY is sent after the commit, because in it commits would wait for"
        " each other. This is one round trip more than the reference, which notifies in the same"
        " transaction",
        "latency_p99_ms": "not understood beyond the round trip above",
    },
    "mariadb": {
        "latency_p50_ms": "two bare commits of two sessions, one after the other, and the round"
        " trip by which the second hears of the first take 2.1 ms on this machine; the server"
        " works 0.5 ms on a publish, 0.3 on the look for it and 0.9 on its claim. The reference,"
        " which polls every 10 ms, takes longer",
        "latency_p99_ms": "as the median; the reference misses it, too",
        "idle_cpu_percent": "an idle worker polls its server 4 times per second;"
        " `wake=redis://` avoids that",
    },
    "redis": {
        "latency_p50_ms": SLOW_MACHINE + ", with the same steps: two waits for the disk and a"
        " notification in between. Penstock takes 0.4 ms longer",
        "latency_p99_ms": "publish and claim each wait for the disk; the reference took longer"
        " in this run",
        "backlog_1m": "probably memory that no cache holds: a message costs the server 12 us in a"
        " short line and 15 among a million, in reading the body and in freeing the ticket; to"
        " find the first in line takes 0.1 in both",
    },
    "http-sqlite": SERVICE
    | {
        "batch_publish": SHARED + " 5 us with a core of its own and 9 us here, and the store 8 us",
        "batch_consume": SHARED
        + " 8 us with a core of its own and 19 us here, and the store 19 us",
        "parked_cpu_percent": "2,000 connections and the agents of an idle server; in an earlier"
        " run of the same hour it was 0.60",
        "parked_wake_p50_ms": "a publish and a claim each wait for the disk; seven runs of one"
        " afternoon were between 2.6 and 4.3",
    },
    "http-postgres": SERVICE,
    "pipeline": {
        "run": "near the target; the spread between runs is larger than the gap",
        "next_hour": "a cold JVM plans and compiles six tables, and the failures of the whole day"
        " are clustered again; runs were between 3.6 and 4.5",
    },
}
