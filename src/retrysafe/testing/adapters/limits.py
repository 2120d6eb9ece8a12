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
    "test_frozen_in_its_transaction": _ONE_AT_A_TIME,
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

_ONE_FIELD = "a response of Django's has one field of a name, but for cookies: values of a list are joined"

_NO_LENGTH = "Django takes a body without `Content-Length` for an empty one"

_DJANGO: Limits = {
    "test_a_header_that_is_there_twice": _ONE_FIELD,
    "test_a_body_over_the_limit_without_a_length": _NO_LENGTH,
    "test_a_chunked_body_under_the_limit": _NO_LENGTH,
}

DJANGO_GTHREAD: Limits = {**GTHREAD, **_DJANGO}

DJANGO_SYNC: Limits = {**SYNC, **_DJANGO}

# It measures a body, and Django is told how long it is.
DJANGO_WAITRESS: Limits = {**WAITRESS, "test_a_header_that_is_there_twice": _ONE_FIELD}

_HANDLER_READS_AHEAD = "Django's handler reads the whole body before it calls a middleware"

DJANGO_ASYNC: Limits = {
    "test_a_header_that_is_there_twice": _ONE_FIELD,
    "test_a_refused_request_does_not_read_the_body": _HANDLER_READS_AHEAD,
    "test_a_body_over_the_limit": _HANDLER_READS_AHEAD,
    "test_a_body_over_the_limit_without_a_length": _HANDLER_READS_AHEAD,
}

_BLOCKING_VIEWS: Limits = {
    "test_a_stream_without_a_key_is_not_held": "Django's handler collects a stream from a view that is not "
    "`async def` before it sends any of it"
}

DJANGO_ASYNC_TX: Limits = {**DJANGO_ASYNC, **_BLOCKING_VIEWS}

ADAPTERS: Mapping[str, Mapping[str, Limits]] = {
    "asgi": {"uvicorn": NONE},
    "django": {
        "gunicorn gthread": DJANGO_GTHREAD,
        "gunicorn sync": DJANGO_SYNC,
        "waitress": DJANGO_WAITRESS,
    },
    "django-async": {"uvicorn": DJANGO_ASYNC, "uvicorn in transactional mode": _BLOCKING_VIEWS},
    "fastapi": {"uvicorn": NONE},
    "flask": {"gunicorn gthread": GTHREAD, "gunicorn sync": SYNC, "waitress": WAITRESS},
    "wsgi": {"gunicorn gthread": GTHREAD, "gunicorn sync": SYNC, "waitress": WAITRESS},
}
"""By adapter and server."""
