"""A change of scopes, queues, schedules and documents that is applied as one step."""

from msgspec import Struct

from penstock.model.documents import Document
from penstock.model.queue import Queue, Schedule
from penstock.model.settings import QueueSettings

# The kind of the documents that record what a topology owns.
TOPOLOGY = "topology"


class NewTopologyQueue(Struct, frozen=True):
    """A queue to create, in a scope that exists or is created by the same change."""

    scope: str
    name: str
    settings: QueueSettings


class TopologySchedule(Struct, frozen=True):
    """A schedule to save, on a queue that exists or is created by the same change."""

    scope: str
    queue: str
    schedule: Schedule


class TopologyChange(Struct, frozen=True, kw_only=True):
    """Writes of one transaction, which applies only if the directory is still at this version."""

    tenant: str
    directory_version: int
    new_scopes: tuple[str, ...] = ()
    new_queues: tuple[NewTopologyQueue, ...] = ()
    # Queues with their settings as they were read, and the new settings.
    changed_queues: tuple[tuple[Queue, QueueSettings], ...] = ()
    # Queues that hold no unfinished message.
    deleted_queues: tuple[Queue, ...] = ()
    schedules: tuple[TopologySchedule, ...] = ()
    deleted_schedules: tuple[Schedule, ...] = ()
    # Saved by their version, as the guards of a Change.
    documents: tuple[Document, ...] = ()
    # Kind and name.
    deleted_documents: tuple[tuple[str, str], ...] = ()

    @property
    def settings(self) -> list[QueueSettings]:
        """The settings of all queues that it creates or changes."""
        new = [each.settings for each in self.new_queues]
        return new + [settings for _, settings in self.changed_queues]
