-- Finds the few messages that ended without being completed, and reads correlated ones in pages.
-- floor: 3
-- online
CREATE INDEX CONCURRENTLY IF NOT EXISTS history_unsuccessful ON penstock.history (id)
    WHERE final AND state <> 'completed';
CREATE INDEX CONCURRENTLY IF NOT EXISTS message_story ON penstock.message
    ((meta ->> 'correlation_id'), id) WHERE meta ->> 'correlation_id' IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS penstock.message_correlation;
