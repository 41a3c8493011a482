-- Finds the few messages that ended without being completed.
-- floor: 3

CREATE INDEX penstock_history_unsuccessful ON penstock_history (id)
    WHERE final = 1 AND state <> 'completed';
