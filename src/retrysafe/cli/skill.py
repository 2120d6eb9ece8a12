"""`retrysafe skill`: what an agent has to know about retries, from the rules that are in force."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from retrysafe.cli import output, projects
from retrysafe.cli.application import load
from retrysafe.cli.exits import Exit, Failure

if TYPE_CHECKING:
    from retrysafe._core.model import Request
    from retrysafe._http.routes import Published

_NAME = re.compile("[a-z0-9]+(-[a-z0-9]+)*")
_LONGEST_NAME = 64
_LONGEST_URL = 500
"""The description of a skill has at most 1024 characters, and the address is in it."""
_SOME_SERVICE = "https://service.example"


def skill(
    application: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODULE:ATTRIBUTE]",
            help="The application, a guard, the tools of a server (what idempotent(guard, ...) returned), or "
            "a WorkflowControl: myapp:app. Without it, the library's defaults.",
            show_default=False,
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile", metavar="NAME", help="Instead of an application: a profile, such as agents."
        ),
    ] = None,
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="The name of the skill, and of its folder.")
    ] = "safe-retries",
    url: Annotated[
        str, typer.Option("--url", metavar="URL", help="Where clients reach the service.")
    ] = _SOME_SERVICE,
    factory: Annotated[
        bool, typer.Option("--factory", help="The attribute is a function that returns the application.")
    ] = False,
) -> None:
    """Print a Skill.md for agents: how to use keys, what each response means and what to do then."""
    # Here, because it takes as long to load as all of the command line.
    from retrysafe._http.specification import document
    from retrysafe._http.specification_markdown import skill as rendered
    from retrysafe._http.specification_markdown import with_head

    if len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        raise Failure(
            f"{name!r} is not a valid name of a skill",
            f"It has lower-case letters, digits and single hyphens, and at most {_LONGEST_NAME} characters.",
            Exit.USAGE,
        )
    request = _request_to(url)
    if application is None:
        if factory:
            raise Failure(
                "--factory was given without an application", "Add it: myapp:create_app.", Exit.USAGE
            )
        project = projects.current() if profile is None else None
        published = _of_profile(profile) if project is None else project.published()
    elif profile is not None:
        raise Failure(
            f"both an application and --profile {profile} were given",
            "Give one of them: an application has its profile itself.",
            Exit.USAGE,
        )
    else:
        found = load(application, factory=factory)
        if callable(instruct := getattr(found, "instructions", None)):
            output.write(with_head(name, _about_calls(url), str(instruct())))
            return
        published = _of_application(found, application)
    output.write(rendered(document(published, request), name))


def _about_calls(url: str) -> str:
    """Of tools that agents call and of the control of workflows, which say themselves what holds for keys."""
    where = "" if url == _SOME_SERVICE else f" to {url}"
    return (
        f"How to make calls{where} with a key, so that they can be retried safely. Read it before you make a "
        "call that takes a key, and when one has timed out or failed."
    )


def _request_to(url: str) -> "Request":
    """A request by which the service is reached at this address."""
    from urllib.parse import unquote, urlsplit

    from retrysafe._core.model import Request
    from retrysafe._http.render import service_url

    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    host = ((b"host", parts.netloc.encode(errors="replace")),)
    request = Request("GET", "/", b"", host, parts.scheme, root=unquote(parts.path.rstrip("/")))
    if len(url) > _LONGEST_URL or service_url(request) != url.rstrip("/"):
        raise Failure(
            f"{url!r} is not an address of a service",
            "Write it as clients do, without query: https://api.example.com or https://example.com/api.",
            Exit.USAGE,
        )
    return request


def _of_profile(name: str | None) -> "Published":
    from retrysafe import scopes
    from retrysafe.guard import Guard

    guard = Guard(
        "memory:", scope=scopes.user, profile=name
    )  # each key has an owner, whichever way it is found
    try:
        return guard.routes(None, None).published()
    finally:
        guard.close()


def _of_application(application: object, target: str) -> "Published":
    try:
        found = list(_published(application))
    except Exception as error:  # noqa: BLE001 - the application's own
        raise Failure(
            f"the middlewares of {target} cannot be built: {type(error).__name__}: {error}",
            "Name the guard itself: myapp:guard.",
            Exit.USAGE,
        ) from None
    if not found:
        raise Failure(
            f"{target} has no guard: it is {type(application).__name__}",
            "Name an application that protect() was called for or that has a Middleware, or a Guard; for "
            "tools what idempotent(guard, ...) returned, for workflows the WorkflowControl.",
            Exit.USAGE,
        )
    if len(found) > 1:
        output.notice(f"{target} has {len(found)} guards: this is about the outermost, as is its own page.")
    return found[0]


def _published(application: object) -> Iterator["Published"]:
    """What guards publish, from the outermost middleware inwards."""
    from retrysafe import asgi, wsgi
    from retrysafe.asgi import held as held_asgi
    from retrysafe.guard import Guard
    from retrysafe.wsgi import held as held_wsgi

    seen: set[int] = set()
    inner: object = application
    while inner is not None and id(inner) not in seen:
        seen.add(id(inner))
        if isinstance(inner, Guard):
            yield inner.routes(None, None).published()
        if isinstance(inner, asgi.Middleware | wsgi.Middleware | held_asgi.Holder | held_wsgi.Holder):
            yield inner.published()
        build = getattr(inner, "build_middleware_stack", None)  # Starlette's, and so FastAPI's
        inner = build() if callable(build) else getattr(inner, "app", getattr(inner, "wsgi_app", None))
