"""Writes the reference of the routes from the routes: python -m tests.http.reference."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.http.openapi import make_document
from penstock.http.routes import OPERATIONS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "http.md"
BEGIN = "<!-- From here on by python -m tests.http.reference -->\n"
TITLES = {
    "verbs": "Verbs",
    "messages": "Messages",
    "bulk": "Bulk actions",
    "views": "Saved views",
    "waiting": "Steps and signals",
    "workflows": "Workflows",
    "inbox": "Human steps",
    "artifacts": "Artifacts",
    "queues": "Queues",
    "scopes": "Scopes",
    "schedules": "Schedules",
    "schemas": "Schemas",
    "rules": "Routing rules",
    "broadcasts": "Durable subscriptions",
    "topology": "Topology",
    "callbacks": "Callbacks",
    "subscriptions": "Subscriptions",
    "access": "Access",
    "events": "Events",
    "activity": "Activity",
    "metrics": "Metrics and anomalies",
    "alerts": "Alerts",
    "dashboard": "Dashboard",
    "system": "System",
}


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in make_document(OPERATIONS)["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def describe_request(operation: dict[str, Any]) -> str:
    """The noun of its body, and its parameters beside those of the path."""
    content = operation.get("requestBody", {}).get("content", {})
    nouns = [name_schema(media, each["schema"]) for media, each in content.items()]
    given = [each["name"] for each in operation.get("parameters", []) if each["in"] != "path"]
    return ", ".join([*nouns, *(f"`{name}`" for name in given)])


def describe_response(operation: dict[str, Any]) -> str:
    status, answer = next(iter(operation["responses"].items()))
    content = answer.get("content", {})
    return " ".join(
        [status, *(name_schema(media, each["schema"]) for media, each in content.items())]
    )


def name_schema(media: str, schema: dict[str, Any]) -> str:
    name = schema.get("$ref", media).rpartition("/schemas/")[2]
    return f"`{name}`"


def generate() -> str:
    found = list(operations())
    parts = []
    for tag, title in TITLES.items():
        rows = [
            f"| `{method}` | `{path}` | {operation['summary']} | {describe_request(operation)}"
            f" | {describe_response(operation)} |"
            for method, path, operation in found
            if operation["tags"] == [tag]
        ]
        head = ["| method | path | summary | request | response |", "|---|---|---|---|---|"]
        parts.append("\n".join([f"## {title}", "", *head, *rows]) + "\n")
    return "\n".join(parts)


def page() -> str:
    head, _, _ = PAGE.read_text().partition(BEGIN)
    return f"{head}{BEGIN}\n{generate()}"


if __name__ == "__main__":
    PAGE.write_text(page())
