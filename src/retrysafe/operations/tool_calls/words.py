"""What models are told about the keys of tools: in the words of the published specification.

The sentences of the catalogue of problems and of the specification speak of requests and responses.  Here
they speak of calls and results, and of what a tool call has instead of headers: so an agent that knows one
knows the other.
"""

from math import ceil
from typing import NamedTuple

from retrysafe._core.problems import CATALOGUE, COMMON, Code
from retrysafe._http.specification import describe
from retrysafe._http.specification_sections import TITLE
from retrysafe.policy import Required, Rules
from retrysafe.refusals import Refused

REPLAYED = "This is the stored result of the first call with this key. Nothing was done again."
UNSTORED = "This result is true, but it could not be stored. Take it, and do not make the call again."
OMITTED = (
    "The first call with this key was done, but its result was not stored, so it cannot be given again. "
    "Nothing was done again. Check the resource, and do not make the call again with a new key."
)
ANOTHER_KEY = "There is one key in the argument {argument} and a different one in _meta."

_MAKE = "Make one key, such as a UUID, for each action that you intend"
_RETRY = (
    "If no result arrives, make exactly the same call again, with the same key: once the first one has "
    "succeeded, you get its stored result, which says that it is a replay, and nothing is done again."
)
_NEW_INTENT = "Use a new key for a new intent, and for nothing else: a new key is a new call."

_WORDS = (
    ("Wait as long as Retry-After says, then send", "Wait {wait}, then make"),
    ("send the same request again", "make the same call again"),
    ("request", "call"),
    ("Request", "Call"),
    ("response", "result"),
    ("Response", "Result"),
    ("the problem", "the error"),
)


class Terms(NamedTuple):
    """How tools take keys, as far as it is said to models."""

    rules: Rules
    argument: str | None
    meta_key: str
    required: Required
    owned: bool
    """Whether every call has an owner, so that none is refused for the lack of one."""

    def place(self) -> str:
        """Where the key of a call is passed."""
        in_meta = f"the _meta of the call, as {self.meta_key}"
        return in_meta if self.argument is None else f"the argument {self.argument}"


KEY = f"{_MAKE}. {_RETRY} {_NEW_INTENT}"
"""The description of the argument, which a model reads before it calls the tool."""


def explain(refused: Refused, terms: Terms) -> str:
    """Why a call was refused, and what to do about it."""
    code, detail = refused.code, refused.problem.detail
    meaning, advice = CATALOGUE[code].meaning, CATALOGUE[code].advice
    if refused.problem.undone:
        meaning, advice = "", "Everything was undone: send the same request again, with the same key."
    elif code == "key-missing":
        advice = f"Send a key in {terms.place()}, and the same one with every retry. {_MAKE}."
    elif code == "principal-required":
        # Over stdio no client can do anything about it: only the server's own code can say who is there.
        advice = f"{advice} If this server authenticates no clients, its code has to say whose keys they are."
    said = terms.rules.wire.details.get(code, detail if code in _WITH_DETAIL else "")
    parts = (f"{refused.title} ({code}).", meaning, said, advice)
    # Whole seconds, as in `Retry-After`: what is left of a lease is known to the millisecond.
    wait = None if refused.retry_after is None else ceil(refused.retry_after)
    return _spoken(" ".join(part for part in parts if part), wait=_seconds(wait))


_WITH_DETAIL = frozenset[Code]({"key-invalid", "not-done", "handler-failed"})
"""Problems of which each occurrence has a reason of its own."""


def instruct(terms: Terms) -> str:
    """What an agent has to know before it calls a tool that takes keys, as Markdown."""
    rules = terms.rules
    # What is said of headers does not hold here.
    told = describe(rules._replace(policy=rules.policy._replace(store_down="refuse")))
    takes = "need" if terms.required is True else "take"
    which = (
        f"Tools that say so in their _meta {takes} a key."
        if terms.argument is None
        else f"Tools with an argument `{terms.argument}` {takes} a key."
    )
    pass_it = f"{_MAKE}, and pass it in {terms.place()}."
    waits = ""
    if rules.policy.in_flight == "wait":
        waits = f" waits for it, up to {_seconds(rules.policy.wait_for)}; after that it"
    promises = [
        _spoken(told["guarantee"]),
        f"A retry while the first call runs{waits} gets the error in-flight.",
        _spoken(told["interrupted"]),
        _spoken(told["retention"]["text"]),
        "A key belongs to the client that made it, and stands for one call: with other arguments it is "
        "refused with the error key-reused.",
    ]
    if rules.policy.store_down == "run":
        promises.append(
            f"While the server cannot use its store, calls run unprotected. Their results say: {UNSTORED}"
        )
    rows = [
        f"| `{code}` | {_spoken(kind.meaning)} | {_spoken(kind.advice, wait=_AS_SAID)} |"
        for code, kind in CATALOGUE.items()
        if code in possible(terms)
    ]
    steps = (pass_it, _RETRY, _NEW_INTENT)
    parts = [
        f"# {TITLE}",
        which,
        "\n".join(f"{number}. {text}" for number, text in enumerate(steps, 1)),
        "\n".join(f"- {text}" for text in promises),
        "An error that a tool reports itself is its result: it is stored, and each retry gets it again. "
        "These errors come instead of a result:",
        "\n".join(("| Error | What happened | What to do |", "|---|---|---|", *rows)),
    ]
    return "\n\n".join(parts) + "\n"


_AS_SAID = "as long as the error says"


def possible(terms: Terms) -> list[Code]:
    """The refusals that there are under these terms."""
    policy = terms.rules.policy
    in_database = policy.effects == "database"
    impossible: dict[Code, bool] = {
        "key-missing": terms.required is not True,
        "principal-required": terms.owned,
        "outcome-unknown": in_database,
        "previously-failed": policy.failed == "retry",
        "handler-failed": not in_database,
        "replay-forbidden": True,  # who may call a tool is asked before it is called
        "body-too-large": True,
    }
    return [code for code in COMMON if not impossible.get(code, False)]


def _spoken(text: str, *, wait: str = "") -> str:
    for written, spoken in _WORDS:
        text = text.replace(written, spoken)
    return text.replace("{wait}", wait)


def _seconds(number: float | None) -> str:
    return "1 second" if number in (None, 1) else f"{number:g} seconds"
