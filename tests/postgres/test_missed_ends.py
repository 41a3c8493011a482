"""An end that another transaction could not see when it was written still resumes who waits."""

import asyncpg
import pytest

from penstock import stores
from penstock.agents.scheduler import Scheduler
from penstock.broker.local import Broker
from penstock.broker.waiting.dependencies import DependentDraft
from penstock.model.message import Draft, State
from penstock.model.store_types import Completion
from tests.servers.postgres import Postgres

pytestmark = pytest.mark.anyio


async def test_a_message_that_ends_in_a_held_transaction_resumes_what_was_published_meanwhile(
    postgres_server: Postgres,
) -> None:
    with postgres_server.database() as url:
        async with Broker(await stores.open(url)) as broker:
            await broker.publish(Draft(name="first"))
            taken = await broker.claim("default", consumer="c")
            (held,) = taken.messages
            own = await asyncpg.connect(url)
            async with own.transaction():
                await broker.acomplete_on(own, Completion(held.id, held.fence))
                draft = DependentDraft(Draft(name="second"), after=("first",))
                (second,) = await broker.publish_dependents([draft])
                await broker.store.resume_held()
            await own.close()
            assert (await broker.store.resume_held()).resumed == 0
            await Scheduler(broker.store, broker.directory, "node").tick()
            await broker.store.resume_held()
            record = await broker.store.get(second.id)
            assert record is not None
            assert record.state is State.READY
