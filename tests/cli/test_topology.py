"""The commands apply and export."""

from pathlib import Path

from tests.cli.terminal import Terminal

SHOP = """
name = "shop"
[[queue]]
name = "orders"
max_attempts = 3
[[schedule]]
name = "nightly"
queue = "orders"
cron = "0 3 * * *"
type = "order.cleanup"
"""


def test_a_plan_shows_the_difference_and_exits_with_2(terminal: Terminal) -> None:
    Path("shop.toml").write_text(SHOP)
    plan = terminal.call("apply", "shop.toml", "--plan", code=2)
    assert "+ queue orders\n    max_attempts: 3\n" in plan.out
    assert "topology shop: 2 changed, 0 unchanged" in terminal.call("apply", "shop.toml").out
    assert "0 would change, 2 unchanged" in terminal.call("apply", "shop.toml", "--plan").out
    Path("shop.toml").write_text(SHOP.partition("[[schedule]]")[0].replace("3", "4"))
    plan = terminal.call("apply", "shop.toml", "--plan", "--prune", code=2)
    assert "~ queue orders\n    max_attempts: 3 -> 4\n- schedule orders/nightly\n" in plan.out
    terminal.call("apply", "shop.toml", "--prune")
    assert "no schedules" in terminal.call("schedule", "list").out


def test_an_export_is_applied_without_a_change(terminal: Terminal) -> None:
    terminal.call("apply", "-", stdin=SHOP)
    terminal.call("export", "shop", "--output", "shop.toml")
    assert Path("shop.toml").read_text().startswith('name = "shop"\n\n[[queue]]\nname = "orders"')
    terminal.call("apply", "shop.toml", "--plan")
    assert '"name": "orders"' in terminal.call("export", "--json").out
    refused = terminal.call("apply", "-", stdin=SHOP.replace("shop", "other"), code=1)
    assert "queue orders belongs to topology 'shop'" in refused.err
    broken = terminal.call("apply", "-", stdin=SHOP.replace("max_", "mx_"), code=1)
    assert "queue[1] 'orders' (line 3)" in broken.err
