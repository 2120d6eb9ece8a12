"""Replays that differ from the first response."""

from collections.abc import Callable

from retrysafe._core import decisions, headers, protocol
from retrysafe._core.model import Final, Record, Response
from retrysafe._core.steps import Result
from tools.planted.bug import HOLD, REASONED, Plant, Planted, patching

Alter = Callable[[Record, Response], Record]


def replaying(alter: Alter) -> Plant:
    """What is made of a record before it is sent again."""

    def plant(real: Callable[[Record], Result]) -> Callable[[Record], Result]:
        return lambda record: real(record if record.response is None else alter(record, record.response))

    return patching(protocol, "_replayed", plant)


def _without_status(record: Record, response: Response) -> Record:
    return record._replace(response=response._replace(status=200))


def _without_headers(record: Record, response: Response) -> Record:
    return record._replace(response=response._replace(headers=()))


def _from_a_dictionary(record: Record, response: Response) -> Record:
    return record._replace(response=response._replace(headers=tuple(dict(response.headers).items())))


def _in_another_order(record: Record, response: Response) -> Record:
    return record._replace(response=response._replace(headers=tuple(sorted(response.headers))))


def _as_text(record: Record, response: Response) -> Record:
    return record._replace(response=response._replace(body=response.body.decode("utf-8", "ignore").encode()))


def _cut_off(record: Record, response: Response) -> Record:
    return record._replace(response=response._replace(body=response.body[:8]))


def _unmarked(record: Record, response: Response) -> Record:
    return record._replace(omitted=False, response=response)


def _unless_empty(record: Record, response: Response) -> Record:
    """What is falsy counts as missing."""
    return record if response.body else record._replace(response=None)


def _strictly_as_text(record: Record, response: Response) -> Record:
    return record._replace(response=response._replace(body=response.body.decode().encode()))


def _of_nothing(real: Callable[[Record], Result]) -> Callable[[Record], Result]:
    return lambda record: real(record)._replace(reply=None)


def _keeps_no_status(real: Callable[..., Final]) -> Callable[..., Final]:
    def final(*args: object, **kwargs: object) -> Final:
        made = real(*args, **kwargs)
        return made._replace(response=made.response._replace(status=200))

    return final


def _keeps_a_beginning(real: Callable[..., Final]) -> Callable[..., Final]:
    def final(*args: object, **kwargs: object) -> Final:
        made = real(*args, **kwargs)
        return made._replace(response=made.response._replace(body=made.response.body[:8]))

    return final


def _keeps_cookies(real: Callable[[bytes], bool]) -> Callable[[bytes], bool]:
    return lambda name: name == b"set-cookie" or real(name)


def _not_a_replay(real: Callable[[Record], Result]) -> Callable[[Record], Result]:
    def replayed(record: Record) -> Result:
        result = real(record)
        return result._replace(verdict="completed", reply=record.response) if record.response else result

    return replayed


PLANTED = (
    Planted(
        "a replay loses its status",
        "fullstackhero/dotnet-starter-kit#1333: a 201 is replayed as 200",
        HOLD,
        replaying(_without_status),
    ),
    Planted(
        "a replay loses its headers",
        "asgi-idempotency-header 0.2.0 loses them",
        HOLD,
        replaying(_without_headers),
    ),
    Planted(
        "headers are merged into a dictionary",
        "idemkit 1.0.2 and gofiber/fiber#4693: repeated headers collapse",
        HOLD,
        replaying(_from_a_dictionary),
    ),
    Planted(
        "headers change their order",
        REASONED,
        HOLD,
        replaying(_in_another_order),
    ),
    Planted(
        "bodies are stored as text",
        "erp and agents keep JSON and lose bytes; drf-idempotencykey replays binary bodies empty",
        HOLD,
        replaying(_as_text),
    ),
    Planted(
        "bodies that are no text are replayed as an exception",
        REASONED,
        HOLD,
        replaying(_strictly_as_text),
    ),
    Planted(
        "a replay has no response",
        REASONED,
        HOLD,
        patching(protocol, "_replayed", _of_nothing),
    ),
    Planted(
        "bodies are cut off",
        "apache/polaris#3803 truncates what it stores; mikkelchokolate/Veil#66 at 1 MiB",
        HOLD,
        replaying(_cut_off),
    ),
    Planted(
        "a tombstone is replayed as the response",
        "erp: a body above 1 MiB replays as an empty 200",
        HOLD._replace(handler="streams"),
        replaying(_unmarked),
    ),
    Planted(
        "an empty body counts as missing",
        'aws-lambda-powertools 3.37: {}, [], 0, False and "" replay as None',
        HOLD._replace(handler="streams"),
        replaying(_unless_empty),
    ),
    Planted(
        "every success is stored as 200",
        "fullstackhero/dotnet-starter-kit#1333: a 201 is replayed as 200",
        HOLD,
        patching(decisions, "_final", _keeps_no_status),
    ),
    Planted(
        "only the beginning of a body is stored",
        "apache/polaris#3803 truncates what it stores; mikkelchokolate/Veil#66 at 1 MiB",
        HOLD,
        patching(decisions, "_final", _keeps_a_beginning),
    ),
    Planted(
        "cookies are stored and replayed",
        "granit-fx/granit-dotnet#1151, VULN-200: a replay emits the first caller's cookies",
        HOLD,
        patching(headers, "_is_kept", _keeps_cookies),
    ),
    Planted(
        "a replay is not marked as one",
        "KeeperHub/keeperhub#1849: a replayed failure looks like a fresh one",
        HOLD,
        patching(protocol, "_replayed", _not_a_replay),
    ),
)
