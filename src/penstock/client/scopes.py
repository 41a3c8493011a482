"""Scopes over HTTP."""

from urllib.parse import quote

from penstock.broker.scopes import ScopeDetails
from penstock.client.transport import RemoteGroup
from penstock.wire.queues import DescribeScope, Scopes, ScopeState


class RemoteScopes(RemoteGroup):
    """Implements `ScopesInterface` by HTTP calls."""

    async def ensure(
        self, name: str, *, display_name: str | None = None, description: str | None = None
    ) -> ScopeDetails:
        return await self._send("PUT", name, DescribeScope(display_name, description))

    async def get(self, name: str) -> ScopeDetails:
        return await self._send("GET", name)

    async def list_scopes(self) -> list[ScopeDetails]:
        pages = self.transport.read_pages("/v1/scopes", Scopes, {})
        return [make_scope_details(each) async for page in pages for each in page.scopes]

    async def archive(self, name: str) -> ScopeDetails:
        return await self._send("POST", f"{name}/archive")

    async def unarchive(self, name: str) -> ScopeDetails:
        return await self._send("POST", f"{name}/unarchive")

    async def _send(
        self, method: str, path: str, body: DescribeScope | None = None
    ) -> ScopeDetails:
        made = await self.send(method, f"/v1/scopes/{quote(path)}", body, gives=ScopeState)
        return make_scope_details(made)


def make_scope_details(view: ScopeState) -> ScopeDetails:
    return ScopeDetails(view.name, view.state, view.display_name, view.description)
