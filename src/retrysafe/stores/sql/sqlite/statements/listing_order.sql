-- Fragment, what an operator has to look at: the abandoned, the oldest of them first; then the youngest.
-- Arguments: now
ORDER BY ({abandoned}) DESC, CASE WHEN {abandoned} THEN created_at ELSE -created_at END
