"""Who is asking: `Authorization: Bearer alice` is alice, whose organisation is in `X-Organisation`."""

from typing import Any

from django.http import HttpRequest
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed

from retrysafe.django.guarded.coroutines import is_awaited, mark_awaited


class Person:
    """A user without a table."""

    is_authenticated = True
    is_active = True

    def __init__(self, name: str) -> None:
        self.pk = name


def person_of(request: HttpRequest) -> Person | None:
    words = request.headers.get("Authorization", "").split()
    return Person(words[1]) if len(words) == 2 and words[0] == "Bearer" else None


class SignIn:
    """A middleware that sets `request.user`."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response
        if is_awaited(get_response):
            mark_awaited(self)

    def __call__(self, request: Any) -> Any:
        if (person := person_of(request)) is not None:
            request.user = person
        return self.get_response(request)


class Bearer(BaseAuthentication):
    """The same for REST framework."""

    def authenticate(self, request: Any) -> Any:
        person = person_of(request)
        if person is not None and person.pk == "revoked":
            raise AuthenticationFailed("these credentials are not valid")
        return None if person is None else (person, None)

    def authenticate_header(self, request: Any) -> str:
        return "Bearer"


def organisation_of(request: HttpRequest) -> str | None:
    return request.headers.get("X-Organisation")
