"""Views of Django REST framework: what it makes of responses and exceptions, before the outcome is stored.

A decorated method runs after `initial()`, so authentication, permissions and throttles come before a claim
and before a replay.  What it returns is finalized and rendered in place; what it raises goes through the
project's exception handler; and so does a refusal, so that errors look alike.
"""

import json
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, NoReturn, cast

from django.core.exceptions import RequestDataTooBig, TooManyFieldsSent, TooManyFilesSent
from django.db import connections
from django.http.response import HttpResponseBase
from django.utils.cache import patch_vary_headers
from rest_framework.exceptions import (
    APIException,
    ErrorDetail,
    ParseError,
    UnsupportedMediaType,
    ValidationError,
)
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from retrysafe._core import model
from retrysafe._core.attempt import Attempt
from retrysafe._core.problems import Problem
from retrysafe.django.guarded.exchange import DjangoExchange
from retrysafe.django.guarded.request import FinalResponse, new_response
from retrysafe.errors import ConfigurationError
from retrysafe.events import log

_REFUSED_INPUT = (
    ValidationError,
    ParseError,
    UnsupportedMediaType,
    # Of Django's own, from its parsers.
    RequestDataTooBig,
    TooManyFieldsSent,
    TooManyFilesSent,
)
"""The framework's own validation: nothing has begun."""


class Refused(APIException):
    """A refusal, as the project's exception handler knows others; and the problem, for one that looks."""

    def __init__(self, problem: Problem, response: model.Response) -> None:
        said: dict[str, Any] = json.loads(response.body)
        self.problem = problem
        self.status_code = response.status
        self.default_code = problem.code
        # Text, as of all exceptions but those of validation: an envelope has a place for it.
        self.detail = ErrorDetail(said["detail"], problem.code)


class ApiSurface:
    """One call of a method of an `APIView`."""

    def __init__(self, request: object, args: tuple[object, ...], named: dict[str, object]) -> None:
        assert isinstance(request, Request)
        self._request = request
        view: object = (request.parser_context or {}).get("view")
        if not isinstance(view, APIView):
            raise ConfigurationError(
                "a view of REST framework's was called with a request that has no view: call it by its "
                "route, or by as_view() with a request of APIRequestFactory's"
            )
        self._view = untyped = cast("Any", view)  # whose methods are replaced below
        # Without the view and the request, as a route has called it.
        self._args = tuple(one for one in args if one is not view and one is not request)
        self._named = {name: one for name, one in named.items() if one is not request}
        self._finalize: Any = untyped.finalize_response
        self._is_finished = False
        untyped.finalize_response = self._finalize_once

    def _finalize_once(self, request: Request, response: object, *args: object, **named: object) -> object:
        """What `dispatch` does with what it is returned: of a view's own response it has been done before.

        A project's own `finalize_response` would add to it twice, and looks into data that a replay has not.
        """
        if not self._is_finished and not isinstance(response, FinalResponse):
            return self._finalize(request, response, *args, **named)
        found = cast("HttpResponseBase", response)
        if vary := self._view.headers.get("Vary"):
            patch_vary_headers(found, [name.strip() for name in vary.split(",")])
        return found

    def finish(self, response: object) -> HttpResponseBase:
        found: Any = self._finalize(self._request, response, *self._args, **self._named)
        self._view.response = found
        render: Any = getattr(found, "render", None)
        finished = cast("HttpResponseBase", render() if callable(render) else found)
        self._is_finished = True
        return finished

    def catch(self, error: Exception, attempt: Attempt | None) -> HttpResponseBase:
        if attempt is not None and isinstance(error, _REFUSED_INPUT):
            attempt.not_started()
        try:
            return cast("HttpResponseBase", self._view.handle_exception(error))
        except Exception:
            # The project's handler has no response to it, and `dispatch` is not to ask it a second time.
            self._view.handle_exception = _raise
            raise

    def reply(self, exchange: DjangoExchange, response: model.Response) -> HttpResponseBase:
        sent = new_response(response)
        problem = exchange.reached.reply if exchange.reached is not None else None
        if not isinstance(problem, Problem) or exchange.rules.wire.render_problem is not None:
            return sent  # a replay, or a problem in the form that the project has said for problems
        shown = self._shown(Refused(problem, response))
        if shown is None:
            return sent
        shown.status_code = response.status
        for name, value in sent.headers.items():
            if name not in ("Content-Type", "Content-Length"):
                shown.headers[name] = value
        return shown

    def _shown(self, refused: Refused) -> HttpResponseBase | None:
        """What the project's exception handler makes of a problem; `None`: nothing of its own."""
        try:
            with _leave_unmarked():
                shown: object = self._view.handle_exception(refused)
        except Refused:
            return None  # it knows only exceptions of its own
        except Exception as error:  # noqa: BLE001 - the project's function; the client needs the refusal
            log.error(
                "the project's EXCEPTION_HANDLER failed for %r, the standard problem is sent: %r",
                refused.problem.code,
                error,
                exc_info=error,
            )
            return None
        if isinstance(shown, Response) and shown.data == {"detail": refused.detail}:
            return None  # REST framework's own
        return shown if isinstance(shown, HttpResponseBase) else None


def _raise(error: Exception) -> NoReturn:
    raise error


@contextmanager
def _leave_unmarked() -> Generator[None]:
    """Have a handler mark no transaction: a refused view has none, and a test's is not to be undone."""
    open_now = [one for one in connections.all(initialized_only=True) if one.in_atomic_block]
    marks = [(one, one.needs_rollback) for one in open_now]
    try:
        yield
    finally:
        for connection, marked in marks:
            connection.needs_rollback = marked
