"""Saved views of the dashboard: a name for a filter, shared by those who work in a scope."""

import msgspec
from msgspec import Struct

from penstock.broker.documents import decode_document, list_documents
from penstock.broker.queues import QueueAdmin
from penstock.broker.search import select_queues
from penstock.errors import NotFound, Refused
from penstock.model.changes import Change
from penstock.model.documents import Document
from penstock.model.message import Moment
from penstock.rules.filter_parser import parse_filter
from penstock.rules.masking import check_filter
from penstock.rules.validation import check_name, clip
from penstock.store import Store

VIEW = "view"
MAX_VIEWS = 200


class SavedView(Struct, frozen=True):
    """A filter of messages under a name, and who saved it."""

    name: str
    filter: str
    saved_by: str = ""
    saved_at: Moment = 0


class SavedViews:
    """The views of one tenant. A caller cannot save a filter that tests fields masked for it."""

    def __init__(self, store: Store, admin: QueueAdmin) -> None:
        self.store = store
        self.admin = admin
        self.tenant = admin.tenant

    def key(self, name: str, scope: str) -> str:
        return f"{self.tenant}/{scope}/{name}"

    async def list(self, *, scope: str = "default") -> list[SavedView]:
        found = await list_documents(self.store, VIEW, self.key("", scope))
        return [decode_document(each, SavedView) for each in found]

    async def save(self, view: SavedView, *, scope: str = "default") -> SavedView:
        """Replaces a view of the same name. Raises InvalidInput if the filter has an error."""
        check_name("view", view.name)
        now = await self.store.now()
        node = parse_filter(view.filter, now)
        queues = select_queues(node, await self.admin.queues(scope=scope))
        check_filter(node, queues.values(), self.admin.reveals)
        known = await self.list(scope=scope)
        if len(known) >= MAX_VIEWS and view.name not in {each.name for each in known}:
            raise Refused(f"the scope has {MAX_VIEWS} views already; delete one first")
        saved = msgspec.structs.replace(view, saved_at=now)
        body = msgspec.json.encode(saved)
        await self.store.save_documents(
            [Document(kind=VIEW, name=self.key(view.name, scope), body=body)]
        )
        return saved

    async def delete(self, name: str, *, scope: str = "default") -> None:
        if await self.store.document(VIEW, self.key(name, scope)) is None:
            raise NotFound(f"no view named {clip(name)}")
        await self.store.advance(Change(deletes=((VIEW, self.key(name, scope)),)))
