"""The files for Prometheus and Grafana name metrics that a server has."""

import json
import re
from pathlib import Path

import pytest

OPS = Path(__file__).parents[2] / "ops"
SOURCE = Path(__file__).parents[2] / "src" / "penstock" / "http"
NAMED = re.compile(r"\bpenstock_[a-z_]+\b")
# What the client library adds to the name of a counter or histogram.
SUFFIXES = ("_total", "_bucket", "_sum", "_count")


def list_known() -> set[str]:
    files = [*(SOURCE / "metrics").glob("*.py"), SOURCE / "state.py"]
    return {name for file in files for name in re.findall(r'"(penstock_\w+)"', file.read_text())}


def expressions() -> list[str]:
    rules = (OPS / "prometheus-rules.yml").read_text()
    board = json.loads((OPS / "grafana-dashboard.json").read_text())
    return [
        *re.findall(r"^ +expr: (.+)$", rules, re.MULTILINE),
        *(target["expr"] for panel in board["panels"] for target in panel["targets"]),
        *(each["query"] for each in board["templating"]["list"] if each["type"] == "query"),
    ]


@pytest.mark.parametrize("text", expressions())
def test_every_metric_that_is_named_exists(text: str) -> None:
    names = NAMED.findall(text)
    assert names
    for name in names:
        plain = next((name.removesuffix(end) for end in SUFFIXES if name.endswith(end)), name)
        assert plain in list_known(), name


def test_every_rule_says_what_is_wrong() -> None:
    text = (OPS / "prometheus-rules.yml").read_text()
    rules = text.split("- alert: ")[1:]
    assert len(rules) >= 9
    for rule in rules:
        assert re.search(r"severity: (warning|critical)", rule)
        assert re.search(r'summary: ("?)\S.*\.\1$', rule, re.MULTILINE)
