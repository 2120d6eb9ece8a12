"""Bearer tokens, and whose they are."""

from django.http import HttpRequest
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from examples.validation_service.validations.models import ApiToken, Organisation


class TokenAuthentication(BaseAuthentication):
    """`request.user` is who the token was made for, `request.auth` the token."""

    def authenticate(self, request: Request) -> tuple[object, ApiToken] | None:
        words = get_authorization_header(request).decode("latin-1").split()
        if len(words) != 2 or words[0].lower() != "bearer":
            return None
        found = ApiToken.objects.select_related("organisation", "user").filter(
            digest=ApiToken.digest_of(words[1]), revoked_at=None, user__is_active=True
        )
        token = found.first()
        if token is None:
            raise AuthenticationFailed("this token is not valid")
        return token.user, token

    def authenticate_header(self, request: Request) -> str:  # noqa: ARG002 - as REST framework has it
        return "Bearer"


def token_of(request: HttpRequest | Request) -> ApiToken | None:
    """The token that REST framework has accepted: it is noted on Django's own request, too."""
    token = getattr(request, "auth", None)
    return token if isinstance(token, ApiToken) else None


def organisation_of(request: HttpRequest) -> int | None:
    """Whose keys they are: see `RETRYSAFE["ORGANISATION"]`.  Any of its users may retry."""
    token = token_of(request)
    return None if token is None else token.organisation_id


def client_of(request: Request) -> Organisation:
    """The organisation of a request that was let in."""
    token = token_of(request)
    assert token is not None, "IsAuthenticated has asked"
    return token.organisation
