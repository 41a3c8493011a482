"""Signals to messages that wait, and the callback tokens that let others send one."""

from collections.abc import Callable

from msgspec.structs import replace

from penstock.broker.interfaces.admin import AdminInterface
from penstock.broker.interfaces.broker import Held
from penstock.broker.queue_cache import QueueCache
from penstock.broker.waiting.live_events import encode_signal_event
from penstock.errors import (
    Conflict,
    IdempotencyConflict,
    InvalidInput,
    InvalidState,
    NotFound,
    PenstockError,
    SignalsFull,
    TokenExpired,
)
from penstock.model.activity import Heading
from penstock.model.message import Moment
from penstock.model.queue import Queue
from penstock.model.waiting import SignalAnswer, SignalDraft
from penstock.rules.callback_tokens import CallbackClaims, make_token, read_token
from penstock.rules.waiting import MAX_SIGNAL_BYTES, check_signal
from penstock.store import Store

MAX_ID = 2**63 - 1


class Signals:
    def __init__(
        self,
        store: Store,
        directory: QueueCache,
        tenant: str,
        admin: AdminInterface,
        resume_soon: Callable[[], None],
    ) -> None:
        self.store = store
        self.directory = directory
        self.tenant = tenant
        self.admin = admin
        self.resume_soon = resume_soon

    async def send(
        self,
        reference: int | str,
        name: str,
        body: bytes = b"null",
        *,
        key: str | None = None,
        scope: str = "default",
    ) -> SignalAnswer:
        """Stores a signal for an unfinished message. It is durable on return."""
        check_signal(name, body, key)
        id, heading, queue = await self._find_receiver(reference, scope)
        draft = SignalDraft(id=id, name=name, body=body, key=key)
        answer = await self._store_signal(draft, heading, queue)
        if answer.code is not None:
            raise explain_signal(draft, answer)
        return answer

    async def _find_receiver(self, reference: int | str, scope: str) -> tuple[int, Heading, Queue]:
        """Finds a message of this tenant by one statement if it has an id and is stored."""
        if isinstance(reference, int) and 0 <= reference <= MAX_ID:
            heading = (await self.store.headings([reference])).get(reference)
            if heading is not None:
                queue = await self.directory.get_by_id(heading.queue_id)
                if queue.scope.tenant == self.tenant:
                    return reference, heading, queue
        message = (await self.admin.get(reference, scope=scope)).message
        heading = Heading(message.type, message.meta.correlation_id, message.queue_id)
        return message.id, heading, await self.directory.get_by_id(message.queue_id)

    async def _store_signal(
        self, draft: SignalDraft, heading: Heading, queue: Queue
    ) -> SignalAnswer:
        event = encode_signal_event(draft, heading, queue)
        answer = await self.store.signal(replace(draft, event=event))
        if answer.code is None and not answer.resumed:
            self.resume_soon()
        return answer

    async def make_token(self, held: Held, name: str, expires_at: Moment) -> str:
        """Makes the token that lets its holder send one signal. Nothing is stored."""
        check_signal(name, b"", None)
        return make_token(await self.store.secret(), CallbackClaims(held.id, name, expires_at))

    async def send_by_token(self, token: str, body: bytes) -> SignalAnswer:
        """Stores the one signal of a token. A repetition is a duplicate."""
        id, name, expires_at = read_token(await self.store.secret(), token)
        if len(body) > MAX_SIGNAL_BYTES:
            raise InvalidInput(f"a signal can have at most {MAX_SIGNAL_BYTES} bytes")
        if expires_at <= await self.store.now():
            raise TokenExpired("the callback URL has expired")
        draft = SignalDraft(id=id, name=name, body=body, key=f"token:{expires_at}")
        heading = (await self.store.headings([id])).get(id)
        if heading is None:
            raise TokenExpired("the message of this callback URL has ended")
        queue = await self.directory.get_by_id(heading.queue_id)
        answer = await self._store_signal(draft, heading, queue)
        if answer.code == IdempotencyConflict.code:
            return replace(answer, duplicate=True, code=None)
        if answer.code in (InvalidState.code, NotFound.code):
            raise TokenExpired("the message of this callback URL has ended")
        if answer.code is not None:
            raise explain_signal(draft, answer)
        return answer


def explain_signal(draft: SignalDraft, answer: SignalAnswer) -> PenstockError:
    match answer.code:
        case NotFound.code:
            return NotFound(f"no message with id {draft.id}")
        case InvalidState.code:
            return InvalidState(f"message {draft.id} is {answer.state}; it takes no more signals")
        case SignalsFull.code:
            return SignalsFull(f"message {draft.id} has too many signals it has not received yet")
        case IdempotencyConflict.code:
            return IdempotencyConflict(
                f"message {draft.id} has a signal {draft.name!r} with this key and another body"
            )
    return Conflict(f"message {draft.id}: {answer.code}")
