"""The words of the data dictionary: each column of the lake, in the order of its table.

A line is: column | unit | null when | example | meaning.
"""

from msgspec import Struct

NEVER = "never"


class Column(Struct, frozen=True):
    name: str
    unit: str
    null_when: str
    example: str
    meaning: str


QUEUE = """
queue_id | | never | 3 | The queue. Stays the same when the queue is renamed.
tenant | | the queue is gone | default | Tenant of the queue.
scope | | the queue is gone | default | Scope of the queue.
queue | | the queue is gone | mail | Name of the queue when the row was extracted.
"""

MESSAGE = f"""
id | | never | 4711 | The message. Unique in the table.
{QUEUE}
type | | never | invoice | Type that the producer gave.
priority | | never | 0 | Higher ones are claimed first.
created_at | UTC | never | 2026-11-17 09:30:00.125 | When it was published.
body | bytes | never | {{"order":7}} | The payload as it was published. May be empty.
content_type | | never | application/json | Media type of the body.
name | | it has none | nightly-report | Name that the producer gave.
headers | | it has none | {{"region": "north"}} | Headers of the message.
labels | | it has none | {{"shard": "1"}} | Labels, by which messages are found.
deadline | UTC | it has none | 2026-11-17 12:00:00 | Expires then. Decides the order where the queue orders by deadline.
lease | s | the queue's applies | 300.0 | Lease of a claim.
timeout | s | it has none | 60.0 | Time limit of one attempt.
max_attempts | | the queue's applies | 5 | Attempts in all, before it is dead.
max_deliveries | | the queue's applies | 10 | Deliveries in all, before it is dead.
ordering_key | | it has none | customer-7 | Messages of one key run one after the other.
dedup | | it has none | order-7 | Deduplication key.
correlation_id | | it has none | order-7 | Groups messages of one story.
causation_id | | it has none | 4700 | What caused the message.
parent_id | | it has none | 4700 | Message that this one came from.
traceparent | | it has none | 00-4bf9...-01 | W3C trace context.
hops | | never | 0 | Hops that the producer gave.
run_at | UTC | it was to run at once, or version 1 extracted it | 2026-11-17 09:31:00.125 | When it was first to run.
expires_at | UTC | it does not expire, or version 1 extracted it | 2026-11-18 09:30:00.125 | When it expires, if it still waits then.
"""

EVENT = f"""
position | | never | 9001 | The row. Unique in the table, and in the order of the store.
id | | never | 4711 | The message.
{QUEUE}
"""

HISTORY = f"""
{EVENT}
verb | | never | complete | What was done: complete, fail, nack, reject, release, park, reclaim, cancel, expire or redrive.
state | | never | completed | State that it led to.
reason | | there is none | rejected | Why, in a word.
error | | there is none | TimeoutError: no answer | Error that the consumer gave.
attempts | | never | 1 | Attempts so far.
deliveries | | never | 1 | Deliveries so far.
consumer | | no consumer held it | worker-1 | Consumer that held the message.
fence | | no consumer held it | 812 | Fence of the claim.
claimed_at | UTC | no consumer held it | 2026-11-17 09:30:01 | When it was claimed.
at | UTC | never | 2026-11-17 09:30:02 | When it happened.
due_at | UTC | it does not wait for a moment | 2026-11-17 09:31:02 | When the message is due again.
final | | never | true | Whether the message ended with it.
"""

ATTEMPT = f"""
{EVENT}
type | | never | invoice | Type of the message. Empty if the lake does not have the message.
priority | | the lake does not have the message | 0 | Priority of the message.
created_at | UTC | the lake does not have the message | 2026-11-17 09:30:00 | When the message was published.
ready_at | UTC | the lake does not have the message | 2026-11-17 09:30:00 | When this attempt could begin: when the message was to run, or when the retry was due.
claimed_at | UTC | no consumer held it | 2026-11-17 09:30:01 | When it was claimed.
at | UTC | never | 2026-11-17 09:30:02 | When it ended.
due_at | UTC | it does not wait for a moment | 2026-11-17 09:31:02 | When the message is due again.
verb | | never | nack | As in history.
state | | never | scheduled | As in history.
reason | | there is none | retries_exhausted | As in history.
error | | there is none | TimeoutError: no answer | As in history.
fingerprint | | there is no error | 9f86d081884c7d65 | The same for errors that differ in particulars only.
attempts | | never | 1 | As in history.
deliveries | | never | 1 | As in history.
consumer | | no consumer held it | worker-1 | As in history.
final | | never | false | As in history.
correlation_id | | the message has none | order-7 | Of the message.
body_bytes | bytes | the lake does not have the message | 812 | Size of the body.
lease | s | the queue is gone | 30.0 | Lease of the message, or of its queue.
attempts_left | | the queue is gone | 4 | Attempts that were left then, by what the queue allows now.
rested | | it is the first row of the message | scheduled | State that the message waited in before.
wait | s | no consumer held it | 1.0 | From `ready_at` to `claimed_at`.
run | s | no consumer held it | 1.0 | From `claimed_at` to `at`.
alike | | it is no failure with an error | 2 | How often the message had failed like this by then.
alike_consumers | | it is no failure with an error | 1 | By how many consumers.
"""

SERIES = f"""
{QUEUE}
type | | never | invoice | Type of the messages.
"""

METRICS_HOUR = f"""
hour | UTC | never | 2026-11-17 09:00:00 | Begin of the hour.
{SERIES}
published | messages | never | 120 | Published in the hour.
attempts | attempts | never | 130 | Ended in the hour, after a claim.
completed | attempts | never | 118 | Completed the message.
failures | attempts | never | 12 | Failed, lost leases included.
retried | attempts | never | 10 | Failed, and the message waits again.
lost | attempts | never | 1 | Ended because the lease ran out.
failed | messages | never | 0 | Ended as failed.
dead | messages | never | 2 | Went to the dead letters.
expired | messages | never | 0 | Expired.
cancelled | messages | never | 0 | Were cancelled.
redriven | messages | never | 0 | Came back from the dead letters.
handed_back | attempts | never | 0 | Released or parked by the consumer.
flash | attempts | never | 30 | Completed sooner than the rule `flash_under`.
wait_sum | s | no attempt ended | 88.5 | Waits in sum.
run_sum | s | no attempt ended | 41.2 | Runs in sum.
wait_max | s | no attempt ended | 4.1 | Longest wait.
run_max | s | no attempt ended | 2.0 | Longest run.
failure_rate | 0 to 1 | no attempt ended | 0.09 | `failures` of `attempts`.
retry_rate | 0 to 1 | no attempt ended | 0.08 | `retried` of `attempts`.
wait_p50 | s | no attempt ended | 0.4 | Median wait, right to 1 %.
wait_p95 | s | no attempt ended | 2.2 | 95 % waited no longer.
wait_p99 | s | no attempt ended | 3.9 | 99 % waited no longer.
run_p50 | s | no attempt ended | 0.2 | Median run, right to 1 %.
run_p95 | s | no attempt ended | 1.1 | 95 % ran no longer.
run_p99 | s | no attempt ended | 1.8 | 99 % ran no longer.
wait_histogram | | no attempt ended | [{{"bucket": -46, "count": 3}}] | Waits by bucket: bucket n ends at 1.02 to the n seconds.
run_histogram | | no attempt ended | [{{"bucket": -80, "count": 3}}] | Runs by bucket.
"""

BACKLOG_MINUTE = f"""
minute | UTC | never | 2026-11-17 09:30:00 | Begin of a minute in which the queue changed, or of a day.
{QUEUE}
arrived | messages | never | 12 | Published, or back from the dead letters.
left | messages | never | 10 | Ended, or went to the dead letters.
died | messages | never | 0 | What the dead letters grew by.
backlog | messages | never | 302 | Waiting, scheduled or claimed at the end of the minute.
dead | messages | never | 41 | Dead letters at the end of the minute.
"""

CONSUMER_HOUR = f"""
hour | UTC | never | 2026-11-17 09:00:00 | Begin of the hour.
consumer | | never | worker-1 | The consumer.
{QUEUE}
attempts | attempts | never | 130 | Ended in the hour.
completed | attempts | never | 118 | Completed the message.
failures | attempts | never | 12 | Failed, lost leases included.
lost | attempts | never | 1 | Ended because the lease ran out.
busy | s | never | 41.2 | Runs in sum.
run_max | s | never | 2.0 | Longest run.
first_at | UTC | never | 2026-11-17 09:00:03 | First claim of these attempts.
last_at | UTC | never | 2026-11-17 09:59:58 | Last end of these attempts.
"""

ANOMALY = f"""
id | | never | 2c26b46b68ffc68ff99b | The anomaly. Stays the same when it is found again.
hour | UTC | never | 2026-11-17 09:00:00 | Begin of the hour.
kind | | never | dead_letter | Kind of anomaly.
severity | | never | critical | How bad it is: info, warning or critical.
{QUEUE}
type | | it is about a consumer | invoice | Type of the messages.
consumer | | it is about a queue | worker-1 | The consumer.
count | | never | 12 | How many there were in the hour.
value | as the rule | never | 5.0 | The farthest case.
threshold | as the rule | never | 1.0 | What the rule allows, or what is usual.
message_id | | it is about no single message | 4711 | The farthest case.
first_at | UTC | it is about the hour as a whole | 2026-11-17 09:00:03 | First case.
last_at | UTC | it is about the hour as a whole | 2026-11-17 09:59:58 | Last case.
"""

TRIAGE = f"""
id | | never | fcde2b2edba56bf40860 | The cause on that day. Stays the same when it is found again.
day_at | UTC | never | 2026-11-17 00:00:00 | Begin of the day.
{SERIES}
fingerprint | | never | 9f86d081884c7d65 | The cause: the same for errors that differ in particulars only.
count | attempts | never | 540 | Attempts that failed by it.
messages | messages | never | 310 | Messages that failed by it.
dead | messages | never | 4 | Of these, went to the dead letters.
first_at | UTC | never | 2026-11-17 00:10:00 | First failure.
last_at | UTC | never | 2026-11-17 23:50:00 | Last failure.
message_id | | never | 4711 | A message as an example.
error | | never | TimeoutError: no answer from host-7 | Its error, up to 1,000 characters.
template | | never | TimeoutError: no answer from host-<n> | The error without its particulars.
attributes | | never | [{{"name": "region", "value": "north", "share": 0.9, "usual": 0.3}}] | What the messages have in common; empty if nothing.
"""

DAY = """
day | | never | 2026-11-17 | Day of the row in UTC. The partition of the table.
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
    "message": "A message, as it was published.",
    "history": "Something that happened to a message after it was published: a delivery that ended,"
    " an expiry, a cancel or a redrive.",
    "attempt": "A row of history with what its message and the rows before it tell.",
    "metrics_hour": "An hour of a queue and type.",
    "backlog_minute": "A minute in which a queue changed.",
    "consumer_hour": "An hour of a consumer and queue.",
    "anomaly": "Something out of the ordinary, in an hour.",
    "triage": "A cause of failures, on a day.",
}


def columns_of(table: str) -> list[Column]:
    lines = [line for line in TEXTS[table].splitlines() if line]
    return [Column(*(cell.strip() for cell in line.split("|"))) for line in lines]
