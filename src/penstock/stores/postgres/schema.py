"""Checks that a schema still has every column its migrations created."""

import asyncpg

from penstock.errors import StoreUnusable

HELD = """
SELECT relname || '.' || attname AS name
FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
WHERE relnamespace = to_regnamespace('penstock') AND relkind IN ('r', 'p')
    AND attnum > 0 AND NOT attisdropped
"""
# Recorded after a migration, so that older code knows which columns were dropped.
NOTE = f"""
INSERT INTO penstock.fact (name, value)
SELECT 'columns', string_agg(name, ',') FROM ({HELD}) AS held
ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""
LOST = f"""
SELECT string_agg(noted, ', ' ORDER BY noted)
FROM penstock.fact, unnest(string_to_array(value, ',')) AS noted
WHERE name = 'columns' AND noted NOT IN ({HELD})
"""


async def refuse_incomplete(connection: asyncpg.Connection) -> None:
    """Raises at open, not when a statement first needs a missing column."""
    if lost := await connection.fetchval(LOST):
        raise StoreUnusable(f"no column {lost}; restore a backup")
