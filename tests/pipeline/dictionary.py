"""The data dictionary: each column of the lake, in table order.

A line is: column | unit | null when | example | meaning. The meanings of message fields come from
model/fields.py.
"""

from msgspec import Struct

from penstock.model.fields import FIELDS

NEVER = "never"


class Column(Struct, frozen=True):
    name: str
    unit: str
    null_when: str
    example: str
    meaning: str


QUEUE = """
queue_id | | never | 3 | The queue. Stays the same when the queue is renamed.
tenant | | the queue was deleted | default | Tenant of the queue.
scope | | the queue was deleted | default | Scope of the queue.
queue | | the queue was deleted | mail | Name of the queue at extraction time.
"""

MESSAGE = f"""
id | | never | 4711 | The message. Unique in the table.
{QUEUE}
type | | never | invoice |
priority | | never | 0 |
created_at | UTC | never | 2026-11-17 09:30:00.125 | When it was published.
body | bytes | never | {{"order":7}} |
content_type | | never | application/json |
name | | it has none | nightly-report |
headers | | it has none | {{"region": "north"}} |
labels | | it has none | {{"shard": "1"}} |
deadline | UTC | it has none | 2026-11-17 12:00:00 |
lease | s | the queue's applies | 300.0 |
timeout | s | it has none | 60.0 |
max_attempts | | the queue's applies | 5 |
max_deliveries | | the queue's applies | 10 |
ordering_key | | it has none | customer-7 |
dedup | | it has none | order-7 |
correlation_id | | it has none | order-7 |
causation_id | | it has none | 4700 |
parent_id | | it has none | 4700 |
traceparent | | it has none | 00-4bf9...-01 |
hops | | never | 0 |
run_at | UTC | it was due at once, or extracted by version 1 | 2026-11-17 09:31:00.125 |
expires_at | UTC | it does not expire, or was extracted by version 1 | 2026-11-18 09:30:00.125 |
"""

EVENT = f"""
position | | never | 9001 | Position of the row. Unique, in the order of the store.
id | | never | 4711 | The message.
{QUEUE}
"""

HISTORY = f"""
{EVENT}
verb | | never | complete | Operation: complete, fail, nack, reject, release, park, wait, decide, reclaim, cancel, expire or redrive.
state | | never | completed | State after the operation.
reason | | there is none | rejected | Short reason code.
error | | there is none | TimeoutError: no answer | Error reported by the consumer.
attempts | | never | 1 | Attempts so far.
deliveries | | never | 1 | Deliveries so far.
consumer | | no consumer held it | worker-1 | Consumer that held the message.
fence | | no consumer held it | 812 | Fence of the claim.
claimed_at | UTC | no consumer held it | 2026-11-17 09:30:01 | When it was claimed.
at | UTC | never | 2026-11-17 09:30:02 | When it happened.
due_at | UTC | it is not scheduled | 2026-11-17 09:31:02 | When the message is due again.
final | | never | true | True if it is the end of the message.
"""

ATTEMPT = f"""
{EVENT}
type | | never | invoice | Type of the message. Empty if the lake does not have the message.
priority | | the lake does not have the message | 0 | Priority of the message.
created_at | UTC | the lake does not have the message | 2026-11-17 09:30:00 | When the message was published.
ready_at | UTC | the lake does not have the message | 2026-11-17 09:30:00 | When this attempt could start: when the message or its retry was due.
claimed_at | UTC | no consumer held it | 2026-11-17 09:30:01 | When it was claimed.
at | UTC | never | 2026-11-17 09:30:02 | When it ended.
due_at | UTC | it is not scheduled | 2026-11-17 09:31:02 | When the message is due again.
verb | | never | nack | As in history.
state | | never | scheduled | As in history.
reason | | there is none | retries_exhausted | As in history.
error | | there is none | TimeoutError: no answer | As in history.
fingerprint | | there is no error | 9f86d081884c7d65 | Hash of the error template; equal for similar errors.
attempts | | never | 1 | As in history.
deliveries | | never | 1 | As in history.
consumer | | no consumer held it | worker-1 | As in history.
final | | never | false | As in history.
correlation_id | | the message has none | order-7 | Correlation id of the message.
body_bytes | bytes | the lake does not have the message | 812 | Size of the body.
lease | s | the queue was deleted | 30.0 | Lease of the message, or of its queue.
attempts_left | | the queue was deleted | 4 | Attempts left, by the current limit of the queue.
rested | | it is the first row of the message | scheduled | Previous state of the message.
wait | s | no consumer held it | 1.0 | From `ready_at` to `claimed_at`.
run | s | no consumer held it | 1.0 | From `claimed_at` to `at`.
alike | | it is not a failure with an error | 2 | How often the message has failed with this fingerprint so far.
alike_consumers | | it is not a failure with an error | 1 | Number of consumers it failed on.
"""

SERIES = f"""
{QUEUE}
type | | never | invoice | Type of the messages.
"""

METRICS_HOUR = f"""
hour | UTC | never | 2026-11-17 09:00:00 | Start of the hour.
{SERIES}
published | messages | never | 120 | Published in the hour.
attempts | attempts | never | 130 | Attempts that ended in the hour.
completed | attempts | never | 118 | Completed the message.
failures | attempts | never | 12 | Failed attempts, including lost leases.
retried | attempts | never | 10 | Failed attempts that will be retried.
lost | attempts | never | 1 | Ended because the lease expired.
failed | messages | never | 0 | Ended as failed.
dead | messages | never | 2 | Became dead letters.
expired | messages | never | 0 | Expired.
cancelled | messages | never | 0 | Cancelled.
redriven | messages | never | 0 | Redriven from the dead letters.
handed_back | attempts | never | 0 | Released or parked by the consumer.
flash | attempts | never | 30 | Completed faster than the rule `flash_under`.
wait_sum | s | no attempt ended | 88.5 | Total wait time.
run_sum | s | no attempt ended | 41.2 | Total run time.
wait_max | s | no attempt ended | 4.1 | Longest wait time.
run_max | s | no attempt ended | 2.0 | Longest run time.
failure_rate | 0 to 1 | no attempt ended | 0.09 | `failures` divided by `attempts`.
retry_rate | 0 to 1 | no attempt ended | 0.08 | `retried` divided by `attempts`.
wait_p50 | s | no attempt ended | 0.4 | Median wait time, accurate to 1 %.
wait_p95 | s | no attempt ended | 2.2 | 95th percentile of the wait time.
wait_p99 | s | no attempt ended | 3.9 | 99th percentile of the wait time.
run_p50 | s | no attempt ended | 0.2 | Median run time, accurate to 1 %.
run_p95 | s | no attempt ended | 1.1 | 95th percentile of the run time.
run_p99 | s | no attempt ended | 1.8 | 99th percentile of the run time.
wait_histogram | | no attempt ended | [{{"bucket": -46, "count": 3}}] | Histogram of wait times; bucket n ends at 1.02^n seconds.
run_histogram | | no attempt ended | [{{"bucket": -80, "count": 3}}] | Histogram of run times.
"""

BACKLOG_MINUTE = f"""
minute | UTC | never | 2026-11-17 09:30:00 | Start of a minute in which the queue changed, or of a day.
{QUEUE}
arrived | messages | never | 12 | Published, or redriven from the dead letters.
left | messages | never | 10 | Ended, or became dead letters.
died | messages | never | 0 | Net change of dead letters.
backlog | messages | never | 302 | Ready, scheduled or claimed at the end of the minute.
dead | messages | never | 41 | Dead letters at the end of the minute.
"""

CONSUMER_HOUR = f"""
hour | UTC | never | 2026-11-17 09:00:00 | Start of the hour.
consumer | | never | worker-1 | The consumer.
{QUEUE}
attempts | attempts | never | 130 | Ended in the hour.
completed | attempts | never | 118 | Completed the message.
failures | attempts | never | 12 | Failed attempts, including lost leases.
lost | attempts | never | 1 | Ended because the lease expired.
busy | s | never | 41.2 | Total run time.
run_max | s | never | 2.0 | Longest run time.
first_at | UTC | never | 2026-11-17 09:00:03 | First claim of these attempts.
last_at | UTC | never | 2026-11-17 09:59:58 | Last end of these attempts.
"""

ANOMALY = f"""
id | | never | 2c26b46b68ffc68ff99b | Id of the anomaly. Stays the same in later runs.
hour | UTC | never | 2026-11-17 09:00:00 | Start of the hour.
kind | | never | dlq_movement | Kind of anomaly.
severity | | never | critical | Severity: info, warning or critical.
{QUEUE}
type | | it is about a consumer | invoice | Type of the messages.
consumer | | it is about a queue | worker-1 | The consumer.
count | | never | 12 | Occurrences in the hour.
value | as the rule | never | 5.0 | Value of the worst case.
threshold | as the rule | never | 1.0 | Threshold of the rule, or the usual value.
message_id | | it is not about a single message | 4711 | Message of the worst case.
first_at | UTC | it is about the hour as a whole | 2026-11-17 09:00:03 | First case.
last_at | UTC | it is about the hour as a whole | 2026-11-17 09:59:58 | Last case.
"""

TRIAGE = f"""
id | | never | fcde2b2edba56bf40860 | Id of the cause on that day. Stays the same in later runs.
day_at | UTC | never | 2026-11-17 00:00:00 | Start of the day.
{SERIES}
fingerprint | | never | 9f86d081884c7d65 | The cause: a hash of the error template.
count | attempts | never | 540 | Failed attempts with this cause.
messages | messages | never | 310 | Messages that failed with this cause.
dead | messages | never | 4 | Of these, became dead letters.
first_at | UTC | never | 2026-11-17 00:10:00 | First failure.
last_at | UTC | never | 2026-11-17 23:50:00 | Last failure.
message_id | | never | 4711 | Example message.
error | | never | TimeoutError: no answer from host-7 | Its error, up to 1,000 characters.
template | | never | TimeoutError: no answer from host-<n> | The error with placeholders for its variable parts.
attributes | | never | [{{"name": "region", "value": "north", "share": 0.9, "usual": 0.3}}] | Attributes that the messages share; empty if there are none.
"""

DAY = """
day | | never | 2026-11-17 | Day of the row in UTC; the partition column.
"""

TEXTS = {
    "message": MESSAGE,
    "history": HISTORY,
    "attempt": ATTEMPT + DAY,
    "metrics_hour": METRICS_HOUR + DAY,
    "backlog_minute": BACKLOG_MINUTE + DAY,
    "consumer_hour": CONSUMER_HOUR + DAY,
    "anomaly": ANOMALY + DAY,
    "triage": TRIAGE + DAY,
}
MEANINGS = {
    "message": "A published message.",
    "history": "An event of a message after its publish: the end of a delivery,"
    " an expiry, a cancel or a redrive.",
    "attempt": "A history row with data of its message and timings.",
    "metrics_hour": "Metrics of a queue and type in an hour.",
    "backlog_minute": "The backlog of a queue in a minute in which it changed.",
    "consumer_hour": "Metrics of a consumer and queue in an hour.",
    "anomaly": "An anomaly in an hour.",
    "triage": "A cause of failures on a day.",
}


def columns_of(table: str) -> list[Column]:
    lines = [line for line in TEXTS[table].splitlines() if line]
    return [make_column(*(cell.strip() for cell in line.split("|"))) for line in lines]


def make_column(name: str, unit: str, null_when: str, example: str, meaning: str) -> Column:
    return Column(name, unit, null_when, example, meaning or FIELDS[name].description)
