"""Mutations of the service: its door, its lines, its tokens, its events."""

from tests.mutation.mutation import Mutation

ERRORS, LINES = "tests/http/test_errors.py", "tests/http/test_lines.py"
TOKENS, HUB = "tests/http/test_tokens.py", "tests/http/test_hub.py"
BODIES, PARKING = "tests/http/test_bodies.py", "tests/http/test_parking.py"

HTTP = (
    Mutation("any_host_is_ours", "http/caller.py", "caller_of",
             'name == b"host" and name_of(value) not in NAMES', "False", ERRORS),
    Mutation("any_site_is_the_operator", "http/caller.py", "caller_of",
             'name == b"origin"', "False", ERRORS),
    Mutation("shell_jobs_over_http", "http/producing.py", "refuse_shell",
             "type == SHELL_TYPE and not call.service.limits.allow_shell", "False", ERRORS),
    Mutation("no_retry_after", "http/front.py", "headers_of",
             "if status in RETRY_AFTER:", "if False:", ERRORS),
    Mutation("body_without_a_limit", "http/call.py", "read_body",
             "if len(body) > limits.body:", "if False:", BODIES),
    Mutation("slow_body_waited_for", "http/call.py", "read_body",
             "asyncio.timeout(limits.patience)", "asyncio.timeout(None)", BODIES),
    Mutation("token_of_anybody", "http/tokens.py", "mac",
             "key=self.key_of(subject)", "key=self.secret", TOKENS),
    Mutation("cursor_for_any_filter", "http/tokens.py", "_filter_mac",
             "repr((before, *filter))", "repr(before)", TOKENS),
    Mutation("second_settle_is_a_success", "http/settling.py", "settled",
             "answer.kind is AnswerKind.ALREADY", "False", TOKENS),
    Mutation("last_in_line_is_first", "http/parking.py", "first",
             "in line.values():", "in reversed(line.values()):", LINES),
    Mutation("lease_of_whoever_left", "http/parking.py", "look",
             "await give_back(self.broker, left)", "pass", LINES),
    Mutation("waits_without_a_limit", "http/parking.py", "",
             "wait > 0 and self.waiting >= self.most", "False", LINES),
    Mutation("gone_stays_in_line", "http/claiming.py", "claim",
             "leaving.add_done_callback(lambda _: waiter.fail(Gone()))", "pass", PARKING),
    Mutation("announced_twice", "http/events.py", "is_news",
             "return not announced", "return True", HUB),
    Mutation("told_twice", "http/events.py", "announce",
             "self.listeners and id not in self.known", "self.listeners", HUB),
    Mutation("slow_listener_kept", "http/events.py", "",
             "self.lost.set_result(None)", "pass", HUB),
)  # fmt: skip
