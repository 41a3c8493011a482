"""Rules: what a publish promised is what was stored and delivered."""

from collections import defaultdict
from collections.abc import Iterator

from .events import Publish
from .history import History, Operation
from .lives import Evidence, Life
from .report import Kind, Violation

Publishes = list[Operation[Publish]]


def lost(evidence: Evidence) -> Iterator[Violation]:
    """What was confirmed is in the dump, in a place or finished."""
    if not evidence.dumped:
        return
    kept = {stored.id for stored in evidence.history.stored}
    for name, id in _confirmed(evidence.history):
        if id not in kept:
            text = f"message {id}: {name} was confirmed, the store does not have it"
            yield Violation(Kind.LOST, text, (id,))
    for stored in evidence.history.stored:
        if stored.places == () and not any(row.final for row in stored.rows):
            text = f"message {stored.id} ({stored.label}) is in no place and never ended"
            yield Violation(Kind.LOST, text, (stored.id,))


def _confirmed(history: History) -> Iterator[tuple[str, int]]:
    """The calls that were told the id of a message, and that id."""
    for publish in history.publishes:
        if publish.ok and publish.answer.id is not None:
            yield f"publish {publish.name} ({publish.call.label})", publish.answer.id
    for redrive in history.redrives:
        if redrive.ok and redrive.answer.id is not None:
            yield f"redrive {redrive.name}", redrive.answer.id
    for fire in history.fires:
        if fire.ok and fire.answer.id is not None:
            yield f"fire {fire.name} ({fire.call.schedule})", fire.answer.id


def vanished(evidence: Evidence) -> Iterator[Violation]:
    for life in evidence.lives.values() if evidence.dumped else ():
        if life.deliveries and not life.stored:
            text = f"message {life.id}: {life.deliveries[-1].text} had it, the store does not"
            yield Violation(Kind.VANISHED, text, (life.id,))


def refused_but_delivered(evidence: Evidence) -> Iterator[Violation]:
    for label, publishes in evidence.labels.items():
        ids = evidence.found.get(label)
        if ids and not any(publish.possible for publish in publishes):
            text = f"{label}: publish {publishes[0].name} was refused"
            yield Violation(
                Kind.REFUSED_BUT_DELIVERED,
                f"{text} ({publishes[0].answer.code}) and yet it exists as {sorted(ids)}",
                tuple(sorted(ids)),
            )


def phantom(evidence: Evidence) -> Iterator[Violation]:
    """Nothing exists that nobody published, redrove or fired."""
    ticks = {(fire.call.schedule, fire.call.tick) for fire in evidence.history.fires}
    parents = {life.id for life in evidence.lives.values() if life.redriven}
    fired = {fire.answer.id for fire in evidence.history.fires}
    for life in evidence.lives.values():
        if not life.labels or (life.publishes and not life.child):
            continue
        if not (life.id in fired or _redriven(life, parents) or _ticked(evidence, life, ticks)):
            text = f"message {life.id} ({', '.join(life.labels)}) was never published"
            yield Violation(Kind.PHANTOM, text, (life.id,))


def _redriven(life: Life, parents: set[int]) -> bool:
    return life.child and (not life.stored or life.stored.parent in parents)


def _ticked(evidence: Evidence, life: Life, ticks: set[tuple[str, int]]) -> bool:
    """Without a dump a fired message cannot be told from a phantom."""
    stored = life.stored
    if stored is None:
        return not evidence.dumped and bool(evidence.history.fires or evidence.history.schedules)
    if stored.schedule is None or stored.tick is None:
        return False
    schedule = evidence.history.schedules.get(stored.schedule)
    if schedule is None or not schedule.ticks:
        return (stored.schedule, stored.tick) in ticks
    within = min(schedule.ticks) <= stored.tick <= max(schedule.ticks)
    return not within or stored.tick in schedule.ticks


def duplicate_id(evidence: Evidence) -> Iterator[Violation]:
    """One id is one body, for ever."""
    labels: dict[int, set[str]] = defaultdict(set)
    for label, ids in evidence.found.items():
        for id in ids:
            labels[id].add(label)
    for id, names in labels.items():
        if len(names) > 1:
            text = f"message {id} has {len(names)} bodies: {', '.join(sorted(names))}"
            yield Violation(Kind.DUPLICATE_ID, text, (id,))


def duplicate_label(evidence: Evidence) -> Iterator[Violation]:
    """One publish is one message."""
    for label, ids in evidence.found.items():
        publishes = [publish for publish in evidence.labels.get(label, ()) if publish.possible]
        if publishes and len(ids) > len(publishes):
            text = f"{label}: publish {publishes[0].name} became messages {sorted(ids)}"
            yield Violation(Kind.DUPLICATE_LABEL, text, tuple(sorted(ids)))


def dedup_broken(evidence: Evidence) -> Iterator[Violation]:
    """One key in one queue is one message: the window outlasts the run."""
    keyed: dict[tuple[str, str], Publishes] = defaultdict(list)
    for publish in evidence.history.publishes:
        if publish.call.dedup is not None:
            keyed[publish.call.queue, publish.call.dedup].append(publish)
    for (queue, key), publishes in keyed.items():
        ids = _ids(evidence, publishes)
        if len(ids) > 1:
            names = ", ".join(publish.name for publish in publishes)
            text = f"dedup key {key!r} of {queue}: {names} became messages {sorted(ids)}"
            yield Violation(Kind.DEDUP_BROKEN, text, tuple(sorted(ids)))


def _ids(evidence: Evidence, publishes: Publishes) -> set[int]:
    answered = {publish.answer.id for publish in publishes if publish.ok and publish.answer.id}
    found = [evidence.found.get(publish.call.label, set()) for publish in publishes]
    return {id for id in answered if id is not None}.union(*found)


def batch_torn(evidence: Evidence) -> Iterator[Violation]:
    """After a crash all items of a batch exist, or none."""
    batches: dict[str, Publishes] = defaultdict(list)
    for publish in evidence.history.publishes if evidence.dumped else ():
        if publish.call.batch is not None and publish.possible:
            batches[publish.call.batch].append(publish)
    for batch, publishes in batches.items():
        missing = [p.call.label for p in publishes if not evidence.found.get(p.call.label)]
        if missing and any(_surely_by(evidence, publish) for publish in publishes):
            text = f"batch {batch}: {len(missing)} of {len(publishes)} are missing: {missing[0]}"
            yield Violation(Kind.BATCH_TORN, text)


def _surely_by(evidence: Evidence, publish: Operation[Publish]) -> bool:
    """Its message exists, and no other call can have published it."""
    label = publish.call.label
    return bool(evidence.found.get(label)) and evidence.labels[label] == [publish]


def body_corrupt(evidence: Evidence) -> Iterator[Violation]:
    for life in evidence.lives.values():
        broken = [delivery.text for delivery in life.deliveries if not delivery.handed.intact]
        if life.stored and not life.stored.intact:
            broken.append("the store")
        if broken:
            text = f"message {life.id}: another body than published in {', '.join(broken)}"
            yield Violation(Kind.BODY_CORRUPT, text, (life.id,))


def early_delivery(evidence: Evidence) -> Iterator[Violation]:
    """Nothing is delivered before it is due, at first or after a nack."""
    slack = int(evidence.plan.due_slack * 1_000_000)
    for life in evidence.lives.values():
        for fence, due_at in _due(life) if not life.redriven else ():
            for delivery in life.deliveries:
                if delivery.fence > fence and delivery.handed.claimed_at + slack < due_at:
                    early = (due_at - delivery.handed.claimed_at) / 1_000_000
                    text = f"message {life.id}: {delivery.text} came {early:.3f} s before due"
                    yield Violation(Kind.EARLY_DELIVERY, text, (life.id,))


def _due(life: Life) -> Iterator[tuple[int, int]]:
    for publish in life.publishes[:1]:
        if publish.call.due_at is not None and not life.child:
            yield 0, publish.call.due_at
    for settle in life.settles:
        if settle.accepted and settle.call.verb == "nack" and settle.answer.due_at is not None:
            yield settle.call.fence, settle.answer.due_at
