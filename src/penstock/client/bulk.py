"""Bulk actions over HTTP."""

from collections.abc import Sequence

from penstock.client.transport import RemoteGroup
from penstock.model.bulk import BulkAction, BulkVerb
from penstock.model.changes import Horizon
from penstock.wire.bulk import BulkList, BulkView, format_horizon, make_bulk_action


class RemoteBulk(RemoteGroup):
    """Implements `BulkInterface` by HTTP calls."""

    async def start(
        self,
        verb: BulkVerb | str,
        *,
        filter: str | None = None,
        ids: Sequence[int] | None = None,
        queue: str | None = None,
        to_scope: str | None = None,
        priority: int | None = None,
        rate: float | None = None,
        dry_run: bool = False,
        name: str | None = None,
        as_of: Horizon | None = None,
        scope: str = "default",
    ) -> BulkAction:
        given = {
            "verb": str(verb),
            "filter": filter,
            "ids": None if ids is None else [str(id) for id in ids],
            "queue": queue,
            "to_scope": to_scope,
            "priority": priority,
            "rate": rate,
            "dry_run": dry_run,
            "name": name,
            "horizon": None if as_of is None else format_horizon(as_of),
        }
        sent = {field: value for field, value in given.items() if value is not None}
        # A repeated start would begin a second action.
        started = await self.send(
            "POST", "/v1/bulk", sent, gives=BulkView, scope=scope, again=False
        )
        return make_bulk_action(started, "default")

    async def get(self, id: int) -> BulkAction:
        found = await self.send("GET", f"/v1/bulk/{id}", gives=BulkView)
        return make_bulk_action(found, "default")

    async def list_actions(self, *, active: bool = False, limit: int = 50) -> list[BulkAction]:
        query = {"active": str(active).lower(), "limit": str(limit)}
        found = await self.send("GET", "/v1/bulk", gives=BulkList, query=query)
        return [make_bulk_action(each, "default") for each in found.actions]

    async def pause(self, id: int) -> BulkAction:
        return await self._change(id, "pause")

    async def resume(self, id: int) -> BulkAction:
        return await self._change(id, "resume")

    async def abort(self, id: int) -> BulkAction:
        return await self._change(id, "abort")

    async def _change(self, id: int, verb: str) -> BulkAction:
        changed = await self.send("POST", f"/v1/bulk/{id}/{verb}", {}, gives=BulkView)
        return make_bulk_action(changed, "default")
