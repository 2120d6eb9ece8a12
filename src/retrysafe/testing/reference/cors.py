"""What the reference application tells scripts of other origins, in every framework."""

# What they may read: without it, no browser would learn that it saw a replay.
EXPOSED = (
    "ETag, Link, Location, Idempotent-Replayed, Original-Request-Id, Idempotency-Body, "
    "Idempotency-Stored, Retry-After, X-Request-Id"
)
# What they may send.
ALLOWED = "Authorization, Content-Type, Idempotency-Key, X-Request-Id"
METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
