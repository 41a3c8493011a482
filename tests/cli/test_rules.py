"""The rule and subscription commands."""

from pathlib import Path

from tests.cli.consumer import publish
from tests.cli.terminal import Terminal

RULES = """
[[rule]]
name = "vip"
queue = "mail"
when = "message.type == 'gold'"
do = [{route = "mail-vip"}]

[[rule]]
name = "late"
queue = "mail"
on = "dead"
do = [{copy = "mail-vip"}]
"""


def write_rules(text: str) -> str:
    Path("rules.toml").write_text(text)
    return "rules.toml"


def test_rules_are_tried_saved_and_switched_off(terminal: Terminal) -> None:
    for queue in ("mail", "mail-vip"):
        terminal.call("queue", "create", queue)
    publish(queue="mail", type="gold")
    file = write_rules(RULES)
    tried = terminal.call("rule", "test", file).out
    assert "vip: matched 1 of 1 message" in tried
    assert terminal.call("rule", "add", file).out == "saved vip@1\nsaved late@1\n"
    publish(queue="mail", type="gold")
    covered = terminal.call("rule", "coverage").out.splitlines()
    assert covered[-1].split()[:4] == ["vip", "published", "2", "2"]
    terminal.call("rule", "disable", "vip")
    assert "disabled" in terminal.call("rule", "list").out
    terminal.call("rule", "enable", "vip")
    assert "mail-vip" in terminal.call("rule", "show", "vip").out
    terminal.call("rule", "delete", "vip")
    assert "no rule named 'vip'" in terminal.call("rule", "show", "vip", code=1).err


def test_an_error_names_the_rule_of_the_file_and_nothing_is_saved(terminal: Terminal) -> None:
    for queue in ("mail", "mail-vip"):
        terminal.call("queue", "create", queue)
    mistakes = {
        RULES.replace("copy", "cpy"): "rule 'late': do[0]: Object contains unknown field `cpy`",
        RULES.replace("message.type ==", "message.typ =="): "rule 'vip': when: line 1, column",
        RULES.replace('copy = "mail-vip"', 'copy = "nope"'): "rule 'late': no queue named 'nope'",
    }
    for text, problem in mistakes.items():
        assert problem in terminal.call("rule", "add", write_rules(text), code=1).err
    assert "no rules" in terminal.call("rule", "list").out


def test_rules_of_a_file_are_saved_together_or_not_at_all(terminal: Terminal) -> None:
    for queue in "abc":
        terminal.call("queue", "create", queue)
    there = '[[rule]]\nname = "there"\nqueue = "a"\ndo = [{route = "b"}]\n'
    back = '[[rule]]\nname = "back"\nqueue = "b"\ndo = [{route = "a"}]\n'
    circle = terminal.call("rule", "add", write_rules(there + back), code=1).err
    assert "creates a cycle of unconditional routes" in circle
    twice = terminal.call("rule", "add", write_rules(there + there), code=1).err
    assert "rule 'there' is declared 2 times" in twice
    assert "no rules" in terminal.call("rule", "list").out
    terminal.call("rule", "add", write_rules(there))
    # The circle is gone if the file changes the other rule as well.
    elsewhere = there.replace('"b"', '"c"')
    assert "saved there@2" in terminal.call("rule", "add", write_rules(back + elsewhere)).out


def test_subscriptions_are_added_listed_and_deleted(terminal: Terminal) -> None:
    terminal.call("queue", "create", "events", "kind=broadcast")
    terminal.call("queue", "create", "orders")
    added = ("subscription", "add", "events", "mailer", "--filter", "type:order.*", "--ttl", "7d")
    terminal.call(*added)
    assert "type:order.*" in terminal.call("subscription", "list", "events").out
    assert "not seen" in terminal.call("subscription", "seen", "events", "mailer", "k").out
    terminal.call("subscription", "delete", "events", "mailer")
    refused = terminal.call("subscription", "add", "orders", "mailer", code=1).err
    assert refused.endswith(
        "takes no subscriptions: its setting kind is 'competing', not 'broadcast'\n"
    )
