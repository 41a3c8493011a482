"""Workflows on a remote server."""

from collections.abc import Sequence

from penstock.client.transport import RemoteGroup
from penstock.errors import InvalidInput
from penstock.model.workflow import (
    NodeDraft,
    PreparedWorkflow,
    WorkflowStart,
    WorkflowState,
    WorkflowView,
)
from penstock.wire.workflows import (
    NewWorkflow,
    WorkflowChanged,
    WorkflowDetail,
    WorkflowPage,
    WorkflowStarted,
    WorkflowSummary,
    make_new_node,
    read_workflow,
)

NO_TRANSACTION = "a workflow cannot join your transaction over HTTP"


class RemoteWorkflows(RemoteGroup):
    """Starts and manages workflows over HTTP."""

    async def start(
        self,
        name: str,
        nodes: Sequence[NodeDraft],
        *,
        key: str | None = None,
        correlation_id: str | None = None,
        scope: str = "default",
    ) -> WorkflowStart:
        sent = NewWorkflow(
            name=name,
            nodes=[make_new_node(node) for node in nodes],
            key=key,
            correlation_id=correlation_id,
        )
        started = await self.send(
            "POST", "/v1/workflows", sent, gives=WorkflowStarted, scope=scope, again=key is not None
        )
        return WorkflowStart(started.id, tuple(map(int, started.messages)), started.duplicate)

    async def prepare(
        self,
        name: str,
        nodes: Sequence[NodeDraft],
        *,
        key: str | None = None,
        correlation_id: str | None = None,
        scope: str = "default",
    ) -> PreparedWorkflow:
        raise InvalidInput(NO_TRANSACTION)

    def start_on(self, connection: object, prepared: PreparedWorkflow) -> WorkflowStart:
        raise InvalidInput(NO_TRANSACTION)

    async def astart_on(self, connection: object, prepared: PreparedWorkflow) -> WorkflowStart:
        raise InvalidInput(NO_TRANSACTION)

    async def list_summaries(
        self, *, state: WorkflowState | None = None, scope: str = "default"
    ) -> list[WorkflowSummary]:
        """Lists workflows, newest first."""
        query = {"scope": scope, "state": state}
        pages = self.transport.read_pages("/v1/workflows", WorkflowPage, query)
        return [each async for page in pages for each in page.workflows]

    async def get(self, id: str, *, scope: str = "default") -> WorkflowView:
        path = f"/v1/workflows/{id}"
        found = await self.send("GET", path, gives=WorkflowDetail, scope=scope)
        return read_workflow(found, scope)

    async def cancel(self, id: str, *, scope: str = "default") -> int:
        return await self._change(id, "cancel", scope)

    async def redrive(self, id: str, *, scope: str = "default") -> int:
        return await self._change(id, "redrive", scope)

    async def _change(self, id: str, verb: str, scope: str) -> int:
        path = f"/v1/workflows/{id}/{verb}"
        changed = await self.send("POST", path, gives=WorkflowChanged, scope=scope)
        return changed.messages
