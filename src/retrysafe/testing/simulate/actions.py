"""What can happen in a world, one thing at a time."""

from typing import Any, Literal, NamedTuple

Kind = Literal[
    "arrive", "step", "lose reply", "lose request", "delay", "deliver", "refuse", "crash", "crash after",
    "cancel", "cancel after", "freeze", "thaw", "renew", "forget", "elapse", "step clock", "purge", "outage",
    "mend", "release", "resolve", "lose lease", "revoke", "drain",
]  # fmt: skip

MEANING: dict[Kind, str] = {
    "arrive": "a request comes in",
    "step": "a request makes its next step",
    "lose reply": "the store does what it was asked, and the reply is lost",
    "lose request": "what was asked of the store never arrives",
    "delay": "what was asked of the store is given up, and still on its way",
    "deliver": "what was given up arrives after all",
    "refuse": "the database refuses a commit",
    "crash": "a worker dies, with all its requests",
    "crash after": "a worker dies right after the store has done what it was asked",
    "cancel": "a request's task is cancelled",
    "cancel after": "the same, right after its step was done",
    "freeze": "a worker is frozen",
    "thaw": "a frozen worker goes on",
    "renew": "a worker's keeper renews the leases that it holds",
    "forget": "a worker's keeper releases what it was told to forget",
    "elapse": "time passes",
    "step clock": "a worker's clock is set to another time",
    "purge": "expired records are removed",
    "outage": "the store is down",
    "mend": "the store is there again",
    "release": "an operator releases an abandoned record",
    "resolve": "an operator settles an abandoned record",
    "lose lease": "a running record's lease is lost in the store",
    "revoke": "a principal may no longer see stored answers",
    "drain": "a worker is about to shut down",
}


class Action(NamedTuple):
    kind: Kind
    who: int = 0
    """The number of a request, a worker or an identity."""
    how: tuple[Any, ...] = ()
    """Of an arrival: identity, what is asked for, worker.  Of time: seconds."""

    def __str__(self) -> str:
        how = f" ({', '.join(map(str, self.how))})" if self.how else ""
        return f"{self.kind} {self.who}{how}"
