"""All that a flow needs to know about one guarded call, and all that its decisions may depend on."""

from collections.abc import Callable
from typing import NamedTuple

from retrysafe._core.attempt import DEFAULT_SECRET
from retrysafe._core.model import Claim, Response
from retrysafe._core.problems import Problem
from retrysafe.policy import Policy, RequestRules


class Call(NamedTuple):
    claim: Claim
    policy: Policy
    rules: RequestRules
    describe: Callable[[Problem], Response]
    """Renders a problem that is to be kept as the answer."""
    draining: Callable[[], bool] = lambda: False
    secret: bytes = DEFAULT_SECRET

    def __repr__(self) -> str:
        return f"<Call for {self.claim!r}>"  # the secret is one
