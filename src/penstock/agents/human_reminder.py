"""Reminds people of open human steps, escalates them, and ends those that time out."""

from heapq import heappop, heappush

from penstock.broker.queue_cache import QueueCache
from penstock.broker.waiting.inbox import STATE, Inbox
from penstock.errors import Conflict, NotFound
from penstock.model.message import NEVER, Moment
from penstock.model.queue import HUMAN, Queue
from penstock.model.search import Position, Scan, Source
from penstock.rules import human
from penstock.rules.human import InboxStep
from penstock.runner import report
from penstock.store import Store

# Steps commit out of order, so all of them are read again after this time.
REREAD_S = 60.0
PAGE_SIZE = 500
MAX_STEPS_PER_TICK = 200


class HumanReminder:
    """Keeps in memory when each open step is due next. The stored state of a step decides."""

    name = "human_reminder"
    every = 1.0

    def __init__(self, store: Store, directory: QueueCache, by: str) -> None:
        self.store = store
        self.directory = directory
        self.by = by
        self.due: list[tuple[Moment, int, int]] = []
        self.known: set[int] = set()
        self.reread_at: Moment = 0
        # The last document that was looked at for its message.
        self.forgotten_to = ""

    async def tick(self) -> float:
        queues = [queue for queue in await self.directory.list_queues() if queue.name == HUMAN]
        if not queues:
            return self.every
        now = await self.store.now()
        if now >= self.reread_at:
            self.known.clear()
            self.due.clear()
            self.reread_at = now + int(REREAD_S * 1_000_000)
            await self._forget_removed()
        for queue in queues:
            await self._find_new(queue, now)
        return await self._act_on_due({queue.id: queue for queue in queues}, now)

    async def _forget_removed(self) -> None:
        """Deletes the states of some steps that retention has removed, on with each call."""
        page = await self.store.documents(STATE, self.forgotten_to, PAGE_SIZE)
        self.forgotten_to = page[-1].name if len(page) == PAGE_SIZE else ""
        ids = [int(each.name) for each in page]
        stored = {record.message.id for record in await self.store.get_many(ids)} if ids else set()
        gone = [str(id) for id in ids if id not in stored]
        if gone:
            await self.store.delete_documents(STATE, gone)

    async def _find_new(self, queue: Queue, now: Moment) -> None:
        """Reads the newest steps down to a known one."""
        after: Position | None = Position()
        while after is not None:
            scan = Scan(Source.SCHEDULED, (queue.id,), after, limit=PAGE_SIZE)
            page = await self.store.scan(scan)
            new = [head.id for head in page.heads if head.id not in self.known]
            for id in new:
                self.known.add(id)
                heappush(self.due, (now, id, queue.id))
            after = page.next if new else None

    async def _act_on_due(self, queues: dict[int, Queue], now: Moment) -> float:
        done: dict[str, int] = {}
        for _ in range(MAX_STEPS_PER_TICK):
            if not self.due or self.due[0][0] > now:
                break
            _, id, queue_id = heappop(self.due)
            self.known.discard(id)
            if queue_id in queues and (action := await self._look(queues[queue_id], id, now)):
                done[action] = done.get(action, 0) + 1
        if done and await self.store.claim_tick(self.name, self.every, self.by):
            await self.store.end_tick(self.name, self.by, report(done))
        return 0.0 if self.due and self.due[0][0] <= now else self.every

    async def _look(self, queue: Queue, id: int, now: Moment) -> str | None:
        """Does what a step needs, and remembers when it is due next."""
        inbox = Inbox(self.store, self.directory, queue.scope.tenant)
        try:
            found = await inbox.find_open(id, scope=queue.scope.name)
            due = None if found is None else human.find_due(found.step, now)
            if found is not None and due is None and await inbox.is_abandoned(found):
                due = human.Due("abandon")
            if found is not None and due is not None:
                await inbox.act_on(found, due, now, scope=queue.scope.name)
                found = await inbox.find_open(id, scope=queue.scope.name)
        except (Conflict, NotFound):
            # Another process was first, or a person decided meanwhile.
            found, due = await inbox.find_open(id, scope=queue.scope.name), None
        self._remember(found, id, queue)
        return None if due is None else due.action

    def _remember(self, found: InboxStep | None, id: int, queue: Queue) -> None:
        if found is not None and id not in self.known:
            self.known.add(id)
            next_look = human.find_next_look(found.step)
            if next_look < NEVER:
                heappush(self.due, (next_look, id, queue.id))
