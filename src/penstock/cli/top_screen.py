"""The screen of `penstock top`: the overview of the dashboard in a terminal."""

from collections import Counter, deque
from collections.abc import Iterable
from typing import ClassVar

from msgspec import Struct

from penstock.broker.liveness import is_gone
from penstock.broker.local import Broker
from penstock.errors import StoreError
from penstock.extras import require_extra
from penstock.model.message import MICROS_PER_SECOND, HistoryRow, Moment, State, Verb
from penstock.model.queue import Queue
from penstock.model.store_types import WorkerInfo
from penstock.rules.attention import Attention, AttentionLevel, QueueFacts, find_attention
from penstock.rules.plurals import format_count
from penstock.store import Store

with require_extra("tui"):
    from rich.text import Text
    from textual.app import App, ComposeResult
    from textual.binding import BindingType
    from textual.containers import Vertical
    from textual.widgets import DataTable, Footer, Sparkline, Static

INTERVAL_S = 1.0
RATE_WINDOW_S = 10
SPARK_SAMPLES = 60
PAGE_SIZE = 500
# Pages per second. What a busier store writes beyond them is skipped.
MAX_PAGES = 20
COLUMNS = (
    "queue", "state", "ready", "running", "scheduled", "dead", "oldest", "done/s", "failed/s",
    "slots",
)  # fmt: skip
FAILED_VERBS = frozenset({Verb.NACK, Verb.FAIL, Verb.REJECT, Verb.RECLAIM})
MAX_ATTENTION = 6


class QueueLine(Struct, frozen=True):
    queue: Queue
    depths: dict[str, int]
    waits: float | None
    done: float
    failed: float
    workers: list[WorkerInfo]

    def count(self, place: str) -> int:
        return self.depths.get(place, 0)


class Sampler:
    """Reads counts and recent history of a store."""

    def __init__(self, store: Store, scope: str) -> None:
        self.store = store
        self.broker = Broker(store)
        self.scope = scope
        self.position: int | None = None
        # Completed and failed runs by second and queue.
        self.done: Counter[tuple[int, int]] = Counter()
        self.failed: Counter[tuple[int, int]] = Counter()

    async def read(self) -> tuple[list[QueueLine], list[WorkerInfo]]:
        now = await self.store.now()
        await self.follow(now)
        workers = [each for each in await self.broker.workers() if not is_gone(each, now)]
        depths, since = await self.store.depths(0), await self.store.waiting_since()
        done, failed = sum_window(self.done, now), sum_window(self.failed, now)
        queues = await self.broker.admin.queues(scope=self.scope)
        lines = [
            QueueLine(
                queue,
                {place: count for (id, place), count in depths.items() if id == queue.id},
                # A message may have become ready after `now` was read.
                max(0, now - since[queue.id]) / MICROS_PER_SECOND if queue.id in since else None,
                done[queue.id] / RATE_WINDOW_S,
                failed[queue.id] / RATE_WINDOW_S,
                [worker for worker in workers if worker.serves(queue)],
            )
            for queue in queues
            if not queue.system
        ]
        return lines, workers

    async def follow(self, now: Moment) -> None:
        """Counts the runs of the last seconds, also those before the first call."""
        if self.position is None:
            self.position = await self.find_end()
            await self.look_back(now)
        for _ in range(MAX_PAGES):
            rows = await self.store.recent(self.position, PAGE_SIZE)
            self.count(rows)
            self.position = max([self.position, *(row.position for row in rows)])
            if len(rows) < PAGE_SIZE:
                break
        else:
            self.position = await self.find_end()

    async def look_back(self, now: Moment) -> None:
        begin = find_second(now) - RATE_WINDOW_S
        before = 0 if self.position is None else self.position + 1
        for _ in range(MAX_PAGES):
            rows = await self.store.past(before, 0, PAGE_SIZE)
            self.count(rows)
            if len(rows) < PAGE_SIZE or find_second(rows[-1].at) < begin:
                return
            before = rows[-1].position

    def count(self, rows: Iterable[HistoryRow]) -> None:
        for row in rows:
            key = find_second(row.at), row.queue_id
            if row.state is State.COMPLETED:
                self.done[key] += 1
            elif row.verb in FAILED_VERBS:
                self.failed[key] += 1

    async def find_end(self) -> int:
        low, high = -1, 2**62
        while high - low > 1:
            middle = (low + high) // 2
            if await self.store.recent(middle, 1):
                low = middle
            else:
                high = middle
        return high


def find_second(moment: Moment) -> int:
    return moment // MICROS_PER_SECOND


def sum_window(counted: Counter[tuple[int, int]], now: Moment) -> Counter[int]:
    """Sums the last whole seconds by queue, and forgets older ones."""
    last = find_second(now)
    found: Counter[int] = Counter()
    for second, queue_id in [*counted]:
        if second < last - RATE_WINDOW_S:
            del counted[second, queue_id]
        elif second < last:
            found[queue_id] += counted[second, queue_id]
    return found


class TopScreen(App[None]):
    """Shows the queues of a store, and what needs attention, every second."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #totals { height: 1; padding: 0 1; text-style: bold; }
    #spark { height: 2; margin: 0 1; }
    #attention { height: auto; padding: 0 1; margin-bottom: 1; }
    DataTable { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [("q", "quit", "Quit"), ("p", "pause", "Pause")]

    def __init__(self, store: Store, scope: str, url: str) -> None:
        super().__init__()
        self.sampler = Sampler(store, scope)
        self.url = url
        self.paused = False
        self.done: deque[float] = deque([0.0] * SPARK_SAMPLES, maxlen=SPARK_SAMPLES)

    def compose(self) -> ComposeResult:
        yield Vertical(Static(id="totals"), Sparkline(list(self.done), id="spark"),
                       Static(id="attention"), DataTable(cursor_type="row"))  # fmt: skip
        yield Footer()

    async def on_mount(self) -> None:
        self.query_one(DataTable).add_columns(*COLUMNS)
        await self.update_figures()
        self.set_interval(INTERVAL_S, self.update_figures)

    def action_pause(self) -> None:
        self.paused = not self.paused
        if self.paused:
            self.query_one("#totals", Static).update("paused; press p to resume")

    async def update_figures(self) -> None:
        if self.paused:
            return
        try:
            lines, workers = await self.sampler.read()
        except StoreError as error:
            self.query_one("#totals", Static).update(Text(f"{self.url}: {error}", style="red"))
            return
        self.show_totals(lines, workers)
        facts = [make_facts(line) for line in lines]
        self.query_one("#attention", Static).update(format_attention(find_attention(facts, [])))
        table = self.query_one(DataTable)
        row = table.cursor_row
        table.clear()
        for line in lines:
            table.add_row(*make_cells(line))
        table.move_cursor(row=row)

    def show_totals(self, lines: list[QueueLine], workers: list[WorkerInfo]) -> None:
        def sum_place(place: str) -> int:
            return sum(line.count(place) for line in lines)

        done, slots = sum(line.done for line in lines), sum(worker.slots for worker in workers)
        self.done.append(done)
        self.query_one("#spark", Sparkline).data = list(self.done)
        self.query_one("#totals", Static).update(
            f"{self.url}   done {done:.1f}/s   waiting {sum_place('ready'):,}"
            f"   running {sum_place('lease'):,} of {slots:,} slots   dead {sum_place('dead'):,}"
            f"   {format_count(len(workers), 'worker')}"
        )


def make_facts(line: QueueLine) -> QueueFacts:
    return QueueFacts(
        queue=line.queue.name,
        ready=line.count("ready"),
        dead=line.count("dead"),
        died=0,
        common_error=None,
        waits=line.waits,
        serves=line.queue.serves and not line.queue.scope.paused,
        has_worker=bool(line.workers),
    )


def format_attention(found: list[Attention]) -> Text:
    if not found:
        return Text("✓ nothing needs attention", style="green")
    text = Text()
    for each in found[:MAX_ATTENTION]:
        bad = each.severity is AttentionLevel.BAD
        text.append("✗ " if bad else "! ", style="red" if bad else "yellow")
        text.append(each.subject, style="bold")
        text.append(f" {each.text}\n")
    text.rstrip()
    return text


def make_cells(line: QueueLine) -> list[Text]:
    dead = line.count("dead")
    state = "scope paused" if line.queue.scope.paused else line.queue.state.value
    numbers: list[str | Text] = [
        f"{line.count('ready'):,}",
        f"{line.count('lease'):,}",
        f"{line.count('scheduled'):,}",
        Text(f"{dead:,}", style="bold red" if dead else ""),
        "" if line.waits is None else format_wait(line.waits),
        f"{line.done:.1f}",
        f"{line.failed:.1f}",
        f"{line.count('lease')}/{sum(worker.slots for worker in line.workers)}",
    ]
    cells = [Text(each) if isinstance(each, str) else each for each in numbers]
    for cell in cells:
        cell.justify = "right"
    return [Text(line.queue.name), Text(state, style="" if line.queue.serves else "yellow"), *cells]


def format_wait(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.1f} s"
