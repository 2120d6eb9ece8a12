-- Fragment, how a record stands; of a damaged one, whatever is in its state.
-- The table is called `record` wherever this stands.
CASE WHEN {expired} THEN 'expired' WHEN {abandoned} THEN 'abandoned' ELSE record.state END
