"""The scope of a key, by a header: none, or exactly the one that was named; and two values are none."""

from retrysafe import scopes
from retrysafe._core.model import Request, Scope
from tools.fuzz.targets import Broken

_tenant = scopes.header("X-Tenant")
_credentials = scopes.credentials(secret="a secret of sixteen")


def check(data: bytes) -> None:
    values = data.split(b"\xfe")
    headers = tuple((b"x-tenant", value) for value in values)
    secrets = tuple((b"authorization", value) for value in values)
    request = Request("POST", "/", b"", (*headers, *secrets))
    answer = _tenant(request)
    secret = _credentials(request)
    assert answer is None or isinstance(answer, Scope)
    scope = scopes.resolve(answer)
    if len(values) > 1:
        if scope is not None or secret is not None:
            raise Broken(f"{values!r} are two owners, and one was chosen")
        return
    text = values[0].decode("latin-1")
    word = text.strip().lower()
    missing = word in ("", "none", "null", "undefined", "anonymous", "anonymoususer")
    expected = None if missing else Scope((("x-tenant", text),))
    if scope != expected:
        raise Broken(f"the owner by {values[0]!r} is {scope!r}, and not {expected!r}")
    if (secret is None) != (not values[0].strip()):
        raise Broken(f"the owner by the credentials {values[0]!r} is {secret!r}")
