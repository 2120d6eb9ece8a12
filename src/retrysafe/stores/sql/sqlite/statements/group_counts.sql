-- Fragment, what a group of records comes to: see record_summaries.sql.
sum(state_number = 1), sum(state_number = 2), sum(state_number = 3), sum(state_number = 4), sum(size)
