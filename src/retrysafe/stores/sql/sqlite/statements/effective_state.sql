-- Fragment, how a record stands; of a damaged one, whatever is in its state.
-- Arguments: now
CASE WHEN {expired} THEN 'expired' WHEN {abandoned} THEN 'abandoned' ELSE state END
