-- Fragment, what a group of records comes to.
-- Arguments: now
sum({standing} = 'abandoned'), sum({standing} = 'in_progress'), sum({standing} = 'completed'),
sum({standing} = 'failed'), coalesce(sum(length(body)), 0)
