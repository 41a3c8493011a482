"""Implements `penstock migrate` for Redis, which has one schema so far."""

from penstock.stores.redis.open import exists, open_store

NEW, INDEX = "schema 1", "index of types"


async def upgrade(url: str, *, plan: bool = False) -> list[str]:
    """Migrates and returns the steps taken; with `plan`, only lists them."""
    new = not await exists(url)
    if new and plan:
        return [NEW]
    async with await open_store(url) as store:
        steps = [NEW] if new else []
        if not await store.lacks_type_index():
            return steps
        if not plan:
            await store.index_types()
        return [*steps, INDEX]
