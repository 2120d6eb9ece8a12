"""Views of Django REST framework: what it makes of responses and exceptions, done before the outcome is stored.

A decorated method runs after `initial()`, so authentication, permissions and throttles come before a claim and
before a replay.  What it returns is finalized and rendered in place; what it raises goes through the project's
exception handler; and so does a refusal, so that errors look alike.
"""

import json
from typing import Any, cast

from django.http.response import HttpResponseBase
from rest_framework.exceptions import APIException, ParseError, UnsupportedMediaType, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from retrysafe._core import model
from retrysafe._core.attempt import Attempt
from retrysafe._core.problems import Problem
from retrysafe.django.exchange import DjangoExchange
from retrysafe.django.request import new_response
from retrysafe.errors import ConfigurationError

_REFUSED_INPUT = (ValidationError, ParseError, UnsupportedMediaType)
"""The framework's own validation: nothing has begun."""


class Refused(APIException):
    """A refusal, for the project's exception handler."""

    def __init__(self, problem: Problem, response: model.Response) -> None:
        self.problem = problem
        self.status_code = response.status
        self.detail = cast("dict[str, Any]", json.loads(response.body))  # type: ignore[assignment]  # a handler's to show
        self.default_code = problem.code
        if problem.retry_after is not None:
            self.wait = max(1, round(problem.retry_after))
        Exception.__init__(self, problem.detail)

    def get_codes(self) -> str:
        return self.problem.code

    def get_full_details(self) -> dict[str, Any]:
        return {"message": self.problem.detail, "code": self.problem.code}


class ApiSurface:
    """One call of a method of an `APIView`."""

    def __init__(self, request: object, args: tuple[object, ...], named: dict[str, object]) -> None:
        assert isinstance(request, Request)
        self._request = request
        view: object = (request.parser_context or {}).get("view")
        if not isinstance(view, APIView):
            raise ConfigurationError(
                "a view of REST framework's was called with a request that has no view: call it by its route, or "
                "by as_view() with a request of APIRequestFactory's"
            )
        self._view = view
        # Without the view and the request, as a route has called it.
        self._args = tuple(one for one in args if one is not view and one is not request)
        self._named = named

    def finish(self, response: object) -> HttpResponseBase:
        found = self._view.finalize_response(
            self._request, cast("Response", response), *self._args, **self._named
        )
        self._view.response = found
        render: Any = getattr(found, "render", None)
        return cast("HttpResponseBase", render()) if callable(render) else found

    def catch(self, error: Exception, attempt: Attempt | None) -> HttpResponseBase:
        if attempt is not None and isinstance(error, _REFUSED_INPUT):
            attempt.not_started()
        return cast("HttpResponseBase", self._view.handle_exception(error))

    def refuse(self, exchange: DjangoExchange, response: model.Response) -> HttpResponseBase:
        """A problem, in the project's own envelope if it has one."""
        sent = new_response(response)
        reply = exchange.reached.reply if exchange.reached is not None else None
        if not isinstance(reply, Problem) or not sent.headers.get("Content-Type", "").endswith("json"):
            return sent
        refused = Refused(reply, response)
        try:
            shown: object = self._view.handle_exception(refused)
        except Refused:
            return sent  # the handler knows only exceptions of its own
        if not isinstance(shown, Response) or shown.data == refused.detail:
            return sent
        for name, value in sent.headers.items():
            if name not in ("Content-Type", "Content-Length") and name not in shown.headers:
                shown.headers[name] = value
        return shown
