"""Messages that retention removed: the store knows which batch of a lake has them."""

import pytest

from penstock.broker.archive import LakeBatch, save_batch
from penstock.errors import Archived
from tests.conformance.stage import Stage

pytestmark = pytest.mark.anyio


async def test_a_removed_message_is_told_with_the_batch_that_has_it(stage: Stage) -> None:
    first, second, third = [await stage.completed() for _ in range(3)]
    await stage.travel(1)
    await stage.admin.prune("default")
    await save_batch(stage.store, LakeBatch("other", "/other", 1, third, third))
    await save_batch(stage.store, LakeBatch("l1", "/lake", 4, first, second))
    for id in (first, second):
        with pytest.raises(Archived, match=f"show {id} --lake /lake") as gone:
            await stage.admin.get(id)
        assert gone.value.details == (("lake", "l1"), ("batch", "4"))
    with pytest.raises(Archived, match="batch 1 of lake other"):
        await stage.admin.explain(third)
    limited = stage.broker.limit_admin(lambda scope, queue: True, lambda scope, queue: True)
    with pytest.raises(Archived, match=r"batch 4 of lake l1 has it$"):
        await limited.get(first)


async def test_a_removed_message_without_a_lake_is_archived_all_the_same(stage: Stage) -> None:
    id = await stage.completed()
    await stage.travel(1)
    await stage.admin.prune("default")
    await save_batch(stage.store, LakeBatch("l1", "/lake", 4, id + 1, id + 9))
    with pytest.raises(Archived, match=r"removed by retention$"):
        await stage.admin.get(id)
