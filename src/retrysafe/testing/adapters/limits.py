"""What a server keeps an adapter from doing: declared here with its reason, and shown in the table.

An adapter's suite names one of these as its `cannot`.  With `RETRYSAFE_LONG=1` such a test is run all the
same, and has to fail: a declaration that is not true any more is noticed.
"""

from collections.abc import Mapping

Limits = Mapping[str, str]
"""Names of tests, and why each cannot succeed."""

NONE: Limits = {}

_CONTINUES = "it responds to `Expect: 100-continue` itself, before it calls the application"

GTHREAD: Limits = {"test_a_refused_request_does_not_read_the_body": _CONTINUES}

_ONE_AT_A_TIME = "a worker serves one request at a time, and this asks a single worker two things at once"

SYNC: Limits = {
    **GTHREAD,
    "test_a_connection_is_used_again": "it closes every connection after one response",
    "test_frozen_and_overtaken": _ONE_AT_A_TIME,
    "test_frozen_and_held": _ONE_AT_A_TIME,
}

SYNC_ALONE: Limits = {
    **SYNC,
    "test_two_principals_do_not_block_each_other": _ONE_AT_A_TIME,
    "test_a_stream": _ONE_AT_A_TIME,
    "test_a_stream_over_the_limit": _ONE_AT_A_TIME,
}
"""With one worker there is no second request while the first one runs: nothing can be in flight."""

_READS_AHEAD = "it reads the whole body before it calls the application"

WAITRESS: Limits = {
    "test_a_refused_request_does_not_read_the_body": _CONTINUES,
    "test_a_body_over_the_limit": _READS_AHEAD,
    "test_a_body_over_the_limit_without_a_length": _READS_AHEAD,
}

ADAPTERS: Mapping[str, Mapping[str, Limits]] = {
    "asgi": {"uvicorn": NONE},
    "fastapi": {"uvicorn": NONE},
    "flask": {"gunicorn gthread": GTHREAD, "gunicorn sync": SYNC, "waitress": WAITRESS},
    "wsgi": {"gunicorn gthread": GTHREAD, "gunicorn sync": SYNC, "waitress": WAITRESS},
}
"""By adapter and server."""
