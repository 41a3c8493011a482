"""The broker of one tenant on one store."""

from penstock.broker.artifacts import ArtifactRoom, Artifacts
from penstock.broker.consume import Consumer
from penstock.broker.group_commit import GroupCommit
from penstock.broker.messages import Admin
from penstock.broker.queue_cache import QueueCache
from penstock.outage import Outages
from penstock.store import Store


class Broker(Consumer):
    """Publishes and consumes messages. `admin` manages queues, `artifacts` files."""

    def __init__(
        self,
        store: Store,
        *,
        tenant: str = "default",
        room: ArtifactRoom | None = None,
        outages: Outages | None = None,
    ) -> None:
        self.store = store
        self.outages = outages or Outages()
        self.tenant = tenant
        self.turns = {}
        self.directory = QueueCache(store)
        self.lanes = GroupCommit(store, store.capabilities.max_batch)
        self.admin = Admin(store, self.directory, tenant)
        self.artifacts = Artifacts(store, self.admin, tenant, room)
