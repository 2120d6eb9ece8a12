"""python -m tools.failover [NAME ...]: what a fail-over loses, measured on real servers.

Clients send requests to a guarded application, and repeat what is refused, while the servers behind its store
are killed, promoted and moved.  Afterwards every request whose client was told the result is repeated: it has
to be a replay.  With `--write PAGE`, the table on that page is replaced by what was measured.
"""
