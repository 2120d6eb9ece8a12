"""Processes that control workflows from outside, and are killed or frozen in the middle of it.

Run as a program, it starts a process for each line of JSON that it reads, and writes its process id; it has
imported DBOS by then, which takes longer than all that they do.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import TracebackType
from typing import IO, Any, Self

from dbos import DBOSClient

from retrysafe import Guard, scopes
from retrysafe.operations import InFlight, OutcomeUnknown, Refused
from retrysafe.operations.dbos import Controlled, ControlUnavailable, WorkflowControl

SECRET = "a secret of this application"
PATIENCE = 60.0
"""Seconds until a caller gives up: far more than any test needs on a busy machine."""


class Trapped(DBOSClient):
    """Dies or freezes before or after something that it does: `kill after fork`, `stop after look`."""

    def __init__(self, trap: str | None, **about: Any) -> None:
        self._how, self._when, self._where = (trap or "no never nowhere").split()
        super().__init__(**about)

    def _strike(self, when: str, where: str) -> None:
        if (when, where) == (self._when, self._where):
            self._when = "never"  # again
            os.kill(os.getpid(), signal.SIGKILL if self._how == "kill" else signal.SIGSTOP)
            time.sleep(0.2)  # the signal stops other threads first, and this one must not go on meanwhile

    def _around(self, where: str, what: Any) -> Any:
        self._strike("before", where)
        done = what()
        self._strike("after", where)
        return done

    def list_workflows(self, **about: Any) -> Any:
        found = super().list_workflows(**about)
        self._strike("after", "look")
        return found

    def cancel_workflow(self, *args: Any, **about: Any) -> None:
        self._around("cancel", lambda: super(Trapped, self).cancel_workflow(*args, **about))

    def resume_workflow(self, *args: Any, **about: Any) -> Any:
        return self._around("resume", lambda: super(Trapped, self).resume_workflow(*args, **about))

    def fork_workflow(self, *args: Any, **about: Any) -> Any:
        return self._around("fork", lambda: super(Trapped, self).fork_workflow(*args, **about))


def a_control(said: dict[str, Any]) -> WorkflowControl:
    guard = Guard(
        said["keys"],
        scope=scopes.service("reports"),
        profile="workflow-control",
        secret=SECRET,
        lease=said.get("lease", 30.0),
    )
    client = Trapped(said.get("trap"), system_database_url=said["dbos"])
    return WorkflowControl(guard, client, **said.get("options", {}))


def act(control: WorkflowControl, said: dict[str, Any]) -> Controlled:
    workflow, key = said["workflow"], said["key"]
    match said["action"]:
        case "cancel":
            return control.cancel_workflow(workflow, key=key)
        case "resume":
            return control.resume_workflow(workflow, key=key)
        case _:
            return control.fork_workflow(workflow, said.get("start_step", 2), key=key)


def until_done(control: WorkflowControl, said: dict[str, Any]) -> Controlled:
    """As a client does that retries."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return act(control, said)
        except (InFlight, ControlUnavailable) as refused:
            if time.monotonic() > end:
                raise
            time.sleep(min(refused.retry_after or 0.0, 0.05))


def one(said: dict[str, Any]) -> None:
    """A caller: several threads that make the same call, each until it knows what came of it."""
    control = a_control(said)

    def call() -> None:
        try:
            done = until_done(control, said) if said.get("retries", True) else act(control, said)
            text = json.dumps({**done.payload()})
        except (Refused, OutcomeUnknown, ControlUnavailable) as refused:
            text = json.dumps({"refused": type(refused).__name__})
        with Path(said["outcomes"]).open("a") as file:
            file.write(text + "\n")  # one write: lines of several processes do not mix

    threads = [threading.Thread(target=call) for _ in range(said.get("threads", 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def storm(said: dict[str, Any]) -> None:
    """Several callers, of which one after the other is killed and started again; and then no more."""
    draw = Random(said["seed"])
    running = [_started(one, said) for _ in range(said["callers"])]
    for _ in range(said["kills"]):
        time.sleep(draw.uniform(0.0, 0.15))
        at = draw.randrange(len(running))
        os.kill(running[at], signal.SIGKILL)
        os.waitpid(running[at], 0)
        running[at] = _started(one, said)
    ended = [os.waitpid(pid, 0)[1] for pid in running]
    assert not any(ended), f"callers ended with {ended}"


def _started(work: Any, said: dict[str, Any]) -> int:
    if pid := os.fork():
        return pid
    status = 1
    try:
        work(said)
        status = 0
    except Exception:  # noqa: BLE001 - shown, and the status tells
        traceback.print_exc()
    finally:
        os._exit(status)  # without what the parent does in its end


def main() -> None:
    for line in sys.stdin:
        said = json.loads(line)
        if "wait" in said:
            number = os.waitstatus_to_exitcode(os.waitpid(said["wait"], 0)[1])
        else:
            number = _started(storm if "kills" in said else one, said)
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()


class Callers:
    """The program above, for the tests of a module."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.operations.dbos.callers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        input, output = self._streams()
        input.close()
        self._process.wait()
        output.close()

    def start(self, **said: Any) -> int:
        """The process id of a new caller."""
        return self._ask(said)

    def wait(self, pid: int) -> int:
        """How it ended: zero, or minus the signal."""
        return self._ask({"wait": pid})

    def _ask(self, said: dict[str, Any]) -> int:
        input, output = self._streams()
        input.write(json.dumps(said) + "\n")
        input.flush()
        return int(output.readline())

    def _streams(self) -> tuple[IO[str], IO[str]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout


def outcomes(said: dict[str, Any]) -> list[dict[str, Any]]:
    """What callers were told."""
    return [json.loads(line) for line in Path(said["outcomes"]).read_text().splitlines()]


def there_is_one_fork(
    callers: Callers, forks: Callable[[str], list[str]], said: dict[str, Any], kills: int
) -> None:
    """Fifty callers in five processes retry one fork; the processes are killed so many times."""
    pid = callers.start(**said, action="fork", callers=5, threads=10, kills=kills, seed=1)
    assert callers.wait(pid) == 0
    found = outcomes(said)
    assert len(found) >= 50  # those that were killed had told some of it
    assert len(forks(said["workflow"])) == 1
    assert {one["new_workflow_id"] for one in found} == set(forks(said["workflow"]))


if __name__ == "__main__":
    main()
