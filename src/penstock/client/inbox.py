"""The inbox of a remote server."""

from collections.abc import Mapping
from typing import Any

from penstock.client.transport import RemoteGroup
from penstock.wire.human import (
    HumanPatternList,
    HumanPatternView,
    HumanSteps,
    HumanStepView,
    NewHumanStepResponse,
    StatisticsView,
    View,
)
from penstock.wire.human_webhooks import HumanWebhookList, HumanWebhookView


class RemoteInbox(RemoteGroup):
    """Human steps over HTTP, with the rights of the caller's key."""

    async def request(
        self,
        spec: Mapping[str, Any] | None = None,
        *,
        pattern: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        scope: str = "default",
    ) -> int:
        """Requests a decision by a spec, or by a pattern and its parameters. Returns the id."""
        sent = {
            "spec": spec,
            "pattern": pattern,
            "parameters": parameters or {},
            "correlation_id": correlation_id,
        }
        made = await self.send("POST", "/v1/inbox", sent, gives=NewHumanStepResponse, scope=scope)
        return int(made.id)

    async def list_steps(
        self, *, view: View = "roles", scope: str = "default"
    ) -> list[HumanStepView]:
        """Lists open steps, those that time out first."""
        query = {"view": view, "scope": scope}
        pages = self.transport.read_pages("/v1/inbox", HumanSteps, query)
        return [step async for page in pages for step in page.steps]

    async def get(self, id: int, *, scope: str = "default") -> HumanStepView:
        return await self._send("GET", id, "", None, scope)

    async def decide(
        self,
        id: int,
        choice: str,
        *,
        inputs: Mapping[str, Any] | None = None,
        comment: str = "",
        scope: str = "default",
    ) -> HumanStepView:
        sent = {"choice": choice, "inputs": inputs or {}, "comment": comment}
        return await self._send("POST", id, "/decide", sent, scope)

    async def claim(self, id: int, *, scope: str = "default") -> HumanStepView:
        return await self._send("POST", id, "/claim", None, scope)

    async def release(self, id: int, *, scope: str = "default") -> HumanStepView:
        return await self._send("POST", id, "/release", None, scope)

    async def delegate(self, id: int, to: str, *, scope: str = "default") -> HumanStepView:
        return await self._send("POST", id, "/delegate", {"to": to}, scope)

    async def comment(self, id: int, text: str, *, scope: str = "default") -> HumanStepView:
        return await self._send("POST", id, "/comment", {"text": text}, scope)

    async def count(self, *, scope: str = "default") -> StatisticsView:
        return await self.send("GET", "/v1/inbox/statistics", gives=StatisticsView, scope=scope)

    async def save_pattern(
        self, name: str, spec: Mapping[str, Any], *, description: str = "", scope: str = "default"
    ) -> HumanPatternView:
        return await self.send(
            "PUT",
            f"/v1/human-patterns/{name}",
            {"spec": spec, "description": description},
            gives=HumanPatternView,
            scope=scope,
        )

    async def list_patterns(self, *, scope: str = "default") -> list[HumanPatternView]:
        found = await self.send("GET", "/v1/human-patterns", gives=HumanPatternList, scope=scope)
        return found.patterns

    async def delete_pattern(self, name: str, *, scope: str = "default") -> None:
        await self.transport.exchange("DELETE", f"/v1/human-patterns/{name}", scope=scope)

    async def add_webhook(
        self, name: str, url: str, *, links: bool = False, scope: str = "default"
    ) -> HumanWebhookView:
        """Sends notifications about steps that open from now on."""
        sent = {"name": name, "url": url, "links": links}
        return await self.send(
            "POST", "/v1/human-webhooks", sent, gives=HumanWebhookView, scope=scope
        )

    async def list_webhooks(self, *, scope: str = "default") -> list[HumanWebhookView]:
        found = await self.send("GET", "/v1/human-webhooks", gives=HumanWebhookList, scope=scope)
        return found.webhooks

    async def delete_webhook(self, name: str, *, scope: str = "default") -> None:
        await self.transport.exchange("DELETE", f"/v1/human-webhooks/{name}", scope=scope)

    async def _send(self, method: str, id: int, verb: str, sent: Any, scope: str) -> HumanStepView:
        return await self.send(
            method, f"/v1/inbox/{id}{verb}", sent, gives=HumanStepView, scope=scope
        )
