"""Every command explains itself, and the reference says the same."""

import click
import pytest

from penstock.cli.main import COMMANDS, main
from tests.cli.reference import PAGE, list_commands, list_examples, list_options, make_page
from tests.cli.terminal import Terminal

EACH = dict(list_commands())


def test_there_is_every_command_an_operator_was_promised() -> None:
    promised = {
        "enqueue", "send", "status", "list", "show", "explain", "cancel", "redrive", "agents",
        "activity", "trace",
        "purge", "move", "edit", "reprioritise", "bulk list", "bulk show", "bulk pause",
        "bulk resume", "bulk abort", "bulk attach",
        "backup", "migrate",
        "doctor", "bench", "demo", "worker start", "worker stop", "worker list",
        "dlq list", "dlq show", "dlq retry", "dlq purge", "config get", "config set", "config show",
        "serve", "up",
        "queue create", "queue list", "queue show", "queue set", "queue pause", "queue resume",
        "queue drain", "queue archive", "queue delete", "queue prune",
        "schedule list",
        "schedule pause", "schedule resume", "schedule run", "schedule delete", "callback list",
        "callback secret", "callback rotate", "pipeline extract",
        "pipeline compact", "pipeline balance", "pipeline run",
        "pipeline report", "key create", "key list", "key rotate", "key revoke", "role set",
        "role list", "role delete", "trust set", "trust list", "trust delete", "audit list",
        "audit verify", "audit seal", "metrics", "consumers", "anomalies", "alert add",
        "alert list", "alert show", "alert delete", "alert test", "pipeline results", "replay",
        "copy", "queue purge", "schedule create",
        "schema add", "schema check", "schema list", "schema show", "schema bind", "schema unbind",
        "schema delete", "schema draft", "scope create", "scope list", "scope pause",
        "scope resume", "scope archive", "scope unarchive", "apply", "export",
        "inbox list", "inbox show", "inbox claim", "inbox release", "inbox delegate",
        "inbox comment", "inbox request", "decide", "pattern save", "pattern list",
        "human-webhook add", "human-webhook list", "human-webhook delete",
        "pattern delete", "workflow list", "workflow show", "workflow cancel", "workflow redrive",
        "workflow wait", "rule add", "rule coverage", "rule delete", "rule disable", "rule enable",
        "rule backtest", "rule list", "rule show", "rule test", "signal", "steps",
        "subscription add", "subscription delete", "subscription list", "subscription seen", "top",
    }  # fmt: skip
    assert {path.removeprefix("penstock ") for path in EACH} == promised


@pytest.mark.parametrize("path", EACH)
def test_every_command_has_an_example_of_itself(path: str) -> None:
    name = path.removeprefix("penstock dlq ") if path == "penstock dlq show" else path
    assert any(name in example for example in list_examples(EACH[path]))


@pytest.mark.parametrize("path", EACH)
def test_every_command_takes_json_and_explains_its_options(path: str) -> None:
    assert "--json" in [option for each in EACH[path].params for option in each.opts]
    assert [each.opts for each in list_options(EACH[path]) if not each.help] == []


@pytest.mark.parametrize("path", EACH)
def test_the_help_of_every_command_fits_80_columns(terminal: Terminal, path: str) -> None:
    text = terminal.call(*path.split()[1:], "--help").out
    assert [line for line in text.splitlines() if len(line) > 95] == []


def test_the_help_says_exit_codes_and_how_to_complete(terminal: Terminal) -> None:
    text = terminal.call("-h").out
    assert "Exit codes: 0 success, 1 error" in text
    assert "_PENSTOCK_COMPLETE=bash_source" in text
    assert all(name in text for name in COMMANDS)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_what_the_help_says(terminal: Terminal, shell: str) -> None:
    script = terminal.run(_PENSTOCK_COMPLETE=f"{shell}_source").out
    assert "_PENSTOCK_COMPLETE" in script


def test_commands_are_completed(terminal: Terminal) -> None:
    said = terminal.run(
        _PENSTOCK_COMPLETE="bash_complete", COMP_WORDS="penstock queue re", COMP_CWORD="2"
    )
    assert said.out.split() == ["plain,resume"]


@pytest.mark.parametrize(
    "words", [["nonsense"], ["status", "--nonsense"], ["list", "--state", "x"], ["queue"], ["show"]]
)
def test_wrong_usage_is_exit_code_2(terminal: Terminal, words: list[str]) -> None:
    assert "Usage: " in terminal.call(*words, code=2).err


def test_a_command_spelled_wrong_is_guessed(terminal: Terminal) -> None:
    assert "Did you mean 'status'?" in terminal.call("stauts", code=2).err
    assert "No such command 'x'.\n" in terminal.call("x", code=2).err


def test_no_summary_is_cut(terminal: Terminal) -> None:
    assert "..." not in terminal.call("-h").out.partition("Commands:")[2]


def test_the_version_is_the_packages(terminal: Terminal) -> None:
    assert terminal.call("--version").out.startswith("penstock, version ")


def test_the_reference_is_what_the_commands_say() -> None:
    assert PAGE.read_text() == make_page(), "run: python -m tests.cli.reference"


def test_no_group_is_without_a_help() -> None:
    context = click.Context(main)
    groups = [main.get_command(context, name) for name in COMMANDS]
    assert [each.name for each in groups if each is not None and not each.help] == []
