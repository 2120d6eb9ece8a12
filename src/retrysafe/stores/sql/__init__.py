"""Stores in SQL databases: statements, and what executes them.

- `statements.py` loads a dialect's `.sql` files, the only place where SQL is written.
- `operations.py` says which statements make up an operation, in which order; once for all of them.
  `admin_operations.py` says the same of what operators do.
- `store.py` is the store as the contract wants it, `keeper.py` the lease keeper's end of it, `cleanup.py`
  removes expired records, `connecting.py` opens a connection without holding a caller up.
- `codec.py` turns rows into records and refuses those that make no sense.
- A folder per dialect has its statements (`schema.sql`, `records.sql`, `leases.sql`, `admin.sql`,
  `doctor.sql`, `fragments.sql`), and beside them what executes them.

A new driver is an executor: something that runs a batch of named statements and gives their rows.  It is
never a second set of statements, nor a second set of operations.
"""
