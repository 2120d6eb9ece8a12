"""What is stored of a callback, and what becomes of the file."""

import asyncio
import json
import os
import stat
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from retrysafe.callbacks.jobs import (
    CallbackChanged,
    Delivered,
    DeliveryFailed,
    DeliveryRefused,
    FolderError,
    deliver_async,
)
from retrysafe.callbacks.jobs import folder as folder_module
from retrysafe.callbacks.jobs.folder import Folder, Held
from retrysafe.callbacks.jobs.request import _digest, make_request
from tests.callbacks.jobs.receiver import Reply, after, always, receiving
from tests.callbacks.jobs.sending import (
    BODY,
    BOTH_PENDING,
    BOTH_WAYS,
    CALLBACK,
    QUICK,
    Deliver,
    DeliverPending,
    blocking,
    pending_blocking,
)

REFUSED = Reply(422, b'{"detail": "used for another body"}', {"X-Should-Retry": "false"})
UNAVAILABLE = Reply(503)


def files(folder: Path) -> list[Path]:
    """All of them, at any depth."""
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def leave(folder: Path, url: str, number: int = 0, horizon: float = 1000.0) -> Path:
    """As a process does that is killed before its first attempt."""
    request = make_request({"callback_id": f"c-{number}"}, url, horizon=horizon)
    held = Folder(folder).hold(request)
    assert held is not None
    held.release()
    return held.path


@BOTH_WAYS
def test_it_is_stored_before_the_first_attempt(send: Deliver, tmp_path: Path) -> None:
    """And removed after the acknowledgement; at no time does it have a credential."""
    folder = tmp_path / "a" / "callbacks"
    seen: list[dict[str, object]] = []
    modes: list[int] = []

    def look(_number: int) -> Reply:
        [stored] = files(folder)
        seen.append(json.loads((folder / stored).read_bytes()))
        modes.append(stat.S_IMODE((folder / stored).stat().st_mode))
        return Reply(200) if len(seen) == 2 else UNAVAILABLE

    before = os.umask(0)
    try:
        with receiving(look) as receiver:
            send(url=receiver.url, folder=folder, headers={"Authorization": "Bearer confidential"})
    finally:
        os.umask(before)
    assert seen[0] == seen[1]
    assert (seen[0]["callback_id"], seen[0]["url"]) == (CALLBACK.callback_id, receiver.url)
    assert "confidential" not in json.dumps(seen)
    assert modes == [0o600] * 2
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert files(folder) == []


def test_it_is_on_the_disk_before_the_first_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its content first, then its name."""
    synced: list[bool] = []
    fsync = os.fsync

    def watch(fd: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(fd).st_mode))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", watch)
    seen: list[list[bool]] = []

    def look(_number: int) -> Reply:
        seen.append(synced.copy())
        return Reply()

    with receiving(look) as receiver:
        blocking(url=receiver.url, folder=tmp_path)
    assert seen == [[False, True]]
    assert synced == [False, True, True]


@BOTH_WAYS
def test_a_refused_one_is_kept(send: Deliver, tmp_path: Path) -> None:
    """Where an operator finds it, and the error says where."""
    with receiving(always(REFUSED)) as receiver, pytest.raises(DeliveryRefused) as raised:
        send(url=receiver.url, folder=tmp_path)
    assert raised.value.file is not None
    assert files(tmp_path) == [raised.value.file.relative_to(tmp_path)]
    assert raised.value.file.parent == tmp_path / "refused"
    assert pending_blocking(tmp_path) == []


@BOTH_WAYS
def test_an_expired_one_is_kept(send: Deliver, tmp_path: Path) -> None:
    with receiving(always(UNAVAILABLE)) as receiver, pytest.raises(DeliveryFailed) as raised:
        send(url=receiver.url, folder=tmp_path, horizon=0.05)
    assert raised.value.file is not None
    assert files(tmp_path) == [raised.value.file.relative_to(tmp_path)]
    assert raised.value.file.parent == tmp_path / "expired"


@BOTH_WAYS
def test_a_restart_continues(send: Deliver, tmp_path: Path) -> None:
    """With what was stored: its first attempt, and so its horizon, is that of the first process."""
    with receiving(always(Reply())) as receiver:
        path = leave(tmp_path, receiver.url, horizon=1e-9)
        with pytest.raises(DeliveryFailed, match="ended before this process began"):
            send({"callback_id": "c-0"}, url=receiver.url, folder=tmp_path)
        assert receiver.requests == []
        assert files(tmp_path) == [Path("expired", path.name)]
        # Whoever asks for the same again after that, begins anew.
        assert isinstance(send({"callback_id": "c-0"}, url=receiver.url, folder=tmp_path), Delivered)
    assert files(tmp_path) == []


@BOTH_WAYS
@pytest.mark.parametrize("where", ["", "refused", "expired"])
def test_another_body_under_the_same_id(send: Deliver, tmp_path: Path, where: str) -> None:
    """A job that was restarted after its work, and worked again, does not replace what it said first."""
    with receiving(always(Reply())) as receiver:
        path = leave(tmp_path, receiver.url)
        (tmp_path / where).mkdir(exist_ok=True)
        path.rename(tmp_path / where / path.name)
        with pytest.raises(
            CallbackChanged, match=r"callback 'c-0' is stored with another body in .*\.json: "
        ):
            send({"callback_id": "c-0", "status": "failed"}, url=receiver.url, folder=tmp_path)
        with pytest.raises(CallbackChanged, match="with another URL"):
            send({"callback_id": "c-0"}, url=receiver.url + "/2", folder=tmp_path)
    assert receiver.requests == []
    assert files(tmp_path) == [Path(where, path.name)]


def test_callbacks_without_an_id_are_their_content(tmp_path: Path) -> None:
    """Two of them with different contents do not disturb each other."""
    with receiving(after(4, UNAVAILABLE)) as receiver:
        for body in (b"1", b"1", b"2"):
            held = Folder(tmp_path).hold(make_request(body, receiver.url))
            assert held is not None
            held.release()
        assert len(files(tmp_path)) == 2
        found = pending_blocking(tmp_path)
    assert [(one.outcome, one.callback_id) for one in found] == [("delivered", None)] * 2
    assert set(receiver.bodies) == {b"1", b"2"}


# --- pending


@BOTH_PENDING
def test_what_was_left_is_delivered(pending: DeliverPending, tmp_path: Path) -> None:
    """The oldest first, with the headers that this process gives."""
    with receiving(always(Reply())) as receiver:
        paths = [leave(tmp_path, receiver.url, number) for number in range(5)]
        for at, path in enumerate(paths):
            os.utime(path, (at + 1, at + 1))
        found = pending(tmp_path, headers={"Authorization": "Bearer new"})
    assert [(one.file, one.outcome, one.callback_id) for one in found] == [
        (path, "delivered", f"c-{number}") for number, path in enumerate(paths)
    ]
    assert [json.loads(body)["callback_id"] for body in receiver.bodies] == [f"c-{n}" for n in range(5)]
    assert {request.headers["authorization"] for request in receiver.requests} == {"Bearer new"}
    assert files(tmp_path) == []


@BOTH_PENDING
def test_every_end_is_reported(pending: DeliverPending, tmp_path: Path) -> None:
    """One that is refused, expired, damaged or held by another process keeps no other waiting."""
    with receiving(always(Reply())) as receiver, receiving(always(REFUSED)) as refusing:
        delivered = leave(tmp_path, receiver.url, 0)
        refused = leave(tmp_path, refusing.url, 1)
        expired = leave(tmp_path, receiver.url, 2, horizon=1e-9)
        damaged = leave(tmp_path, receiver.url, 3)
        damaged.write_bytes(damaged.read_bytes()[:-10])
        busy = Folder(tmp_path).hold(make_request({"callback_id": "c-4"}, receiver.url))
        assert busy is not None
        found = {one.file.relative_to(tmp_path): one for one in pending(tmp_path)}
        busy.release()
    assert {path: one.outcome for path, one in found.items()} == {
        Path(delivered.name): "delivered",
        Path("refused", refused.name): "refused",
        Path("expired", expired.name): "expired",
        Path(damaged.name): "damaged",
        Path(busy.path.name): "busy",
    }
    assert "is damaged: expected JSON" in found[Path(damaged.name)].detail
    assert "used for another body" in found[Path("refused", refused.name)].detail
    assert [len(receiver.requests), len(refusing.requests)] == [1, 1]
    assert files(tmp_path) == sorted(path for path in found if path != Path(delivered.name))


@BOTH_PENDING
def test_one_that_waits_keeps_no_other_waiting(pending: DeliverPending, tmp_path: Path) -> None:
    """A receiver that is away for long does not hold up what goes elsewhere; patience ends the wait."""
    with (
        receiving(always(Reply(503, headers={"Retry-After": "1000"}))) as away,
        receiving(after(3, UNAVAILABLE)) as receiver,
    ):
        left = leave(tmp_path, away.url, 0)
        os.utime(left, (1, 1))
        leave(tmp_path, receiver.url, 1)
        found = pending(tmp_path, patience=100)
    assert [one.outcome for one in found] == ["left", "delivered"]
    assert found[0].detail == "not acknowledged within 100 s"
    assert (len(away.requests), len(receiver.requests)) == (1, 4)
    assert files(tmp_path) == [Path(left.name)]


@BOTH_PENDING
def test_a_receiver_says_when(pending: DeliverPending, tmp_path: Path) -> None:
    """To all that are pending as to one."""
    with receiving(after(2, Reply(503, headers={"retry-after-ms": "150"}))) as receiver:
        for number in range(2):
            leave(tmp_path, receiver.url, number)
        began = time.monotonic()
        assert [one.outcome for one in pending(tmp_path)] == ["delivered"] * 2
        assert time.monotonic() - began >= 0.15
    assert len(receiver.requests) == 4


def test_no_patience_is_one_attempt_each(tmp_path: Path) -> None:
    """What is left is free for the next process."""
    with receiving(always(UNAVAILABLE)) as receiver:
        for number in range(3):
            leave(tmp_path, receiver.url, number)
        for _ in range(2):
            assert [one.outcome for one in pending_blocking(tmp_path, patience=0)] == ["left"] * 3
    assert len(receiver.requests) == 6


def test_more_than_are_held_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others have their turn."""
    monkeypatch.setattr("retrysafe.callbacks.jobs.pending.AT_ONCE", 2)
    with receiving(after(2, UNAVAILABLE)) as receiver:
        for number in range(7):
            leave(tmp_path, receiver.url, number)
        assert [one.outcome for one in pending_blocking(tmp_path)] == ["delivered"] * 7
    assert len(receiver.requests) == 9


@BOTH_PENDING
def test_many_that_wait_keep_no_other_waiting(
    pending: DeliverPending, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than can be held at a time go to a receiver that is away, and one that is newer goes elsewhere."""
    monkeypatch.setattr("retrysafe.callbacks.jobs.pending.AT_ONCE", 3)
    tried: list[int] = []

    def script(number: int) -> Reply:
        tried.append(len(away.requests))
        return Reply() if number > 2 else UNAVAILABLE

    with (
        receiving(always(Reply(503, headers={"Retry-After": "1000"}))) as away,
        receiving(script) as receiver,
    ):
        for number in range(5):
            os.utime(leave(tmp_path, away.url, number, horizon=2), (number, number))
        leave(tmp_path, receiver.url, 5)
        found = pending(tmp_path)
    assert [one.outcome for one in found] == ["expired"] * 5 + ["delivered"]
    assert found[5].delivered is not None
    assert found[5].delivered.attempts == 3
    assert tried == [5] * 3  # long before the horizon of the others ended
    assert len(away.requests) == 10  # with the attempt at the end, which those that were released have, too


@pytest.mark.parametrize("outcome", ["busy", "gone", "damaged", "anew"])
def test_one_that_was_released_and_is_another_now(
    outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two attempts others may have it: it is not sent behind their back."""
    monkeypatch.setattr("retrysafe.callbacks.jobs.pending.AT_ONCE", 1)
    taken: list[Held] = []

    def script(_number: int) -> Reply:
        """While the second one is sent, which is held, the first one has been released."""
        if len(receiver.requests) == 2:
            held = Folder(tmp_path).take(path)
            assert isinstance(held, Held)
            taken.append(held)
            if outcome != "busy":
                held.remove()
                held.release()
            if outcome == "damaged":
                path.write_bytes(b"")
            if outcome == "anew":
                leave(tmp_path, receiver.url, horizon=5)
            return Reply()
        return Reply(503, headers={"retry-after-ms": "500"})

    with receiving(script) as receiver:
        path = leave(tmp_path, receiver.url)
        os.utime(path, (1, 1))
        leave(tmp_path, receiver.url, 1)
        found = pending_blocking(tmp_path)
        taken[0].release()
    first = [] if outcome in ("gone", "anew") else [outcome]
    assert [one.outcome for one in found] == [*first, "delivered"]
    assert len(receiver.requests) == 2
    assert path.exists() == (outcome != "gone")


@BOTH_PENDING
def test_again(pending: DeliverPending, tmp_path: Path) -> None:
    """When the receiver is repaired, what was given up can be sent after all, with a new horizon."""
    with receiving(always(REFUSED)) as refusing:
        leave(tmp_path, refusing.url, 0)
        assert [one.outcome for one in pending(tmp_path)] == ["refused"]
        expired = leave(tmp_path, refusing.url, 1)
        (tmp_path / "expired").mkdir()
        expired.rename(tmp_path / "expired" / expired.name)
        refusing.script = always(Reply())
        assert pending(tmp_path) == []
        assert [one.outcome for one in pending(tmp_path, again=True)] == ["delivered"] * 2
        assert len(refusing.requests) == 3
    assert files(tmp_path) == []


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """No job has left anything yet."""
    assert pending_blocking(tmp_path / "callbacks") == []


# --- damage and trouble


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is damaged: expected JSON"),
        (b"\x00" * 500, "is damaged: expected JSON"),
        (b"[" * 100_000, "is damaged: expected JSON"),
        (b"[]", "is damaged: expected a JSON object"),
        (b'{"version": 2}', "has version 2: this release knows version 1"),
        (b'{"version": 1, "url": "http://elsewhere/"}', "does not have the digest that it names"),
    ],
)
def test_damaged_files_are_reported_and_kept(tmp_path: Path, content: bytes, message: str) -> None:
    """Not sent, not removed, not overwritten, however often one looks."""
    path = tmp_path / f"{'0' * 32}.json"
    path.write_bytes(content)
    for _ in range(2):
        [found] = pending_blocking(tmp_path)
        assert found.outcome == "damaged"
        assert message in found.detail
        assert found.file == path
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"body": "a"}, "base64"),
        ({"body": "é"}, "ASCII"),
        ({"url": "http://[::1"}, "url is not valid"),
        ({"url": f"http://{'a' * 64}/"}, "url is not valid"),
        ({"horizon": float("nan")}, "horizon"),
        ({"horizon": 1e9}, "horizon must be"),
        ({"callback_id": "\ud800"}, "UTF-8"),
        ({"url": 5}, "a field is missing or of another type"),
    ],
)
def test_values_that_were_never_written(tmp_path: Path, changed: dict[str, object], message: str) -> None:
    """Under a digest that fits: they keep no other callback from its delivery."""
    with receiving(always(Reply())) as receiver:
        path = leave(tmp_path, receiver.url)
        leave(tmp_path, receiver.url, 1)
        content = {**json.loads(path.read_bytes()), **changed}
        del content["sha256"]
        path.write_text(json.dumps({**content, "sha256": _digest(content)}), encoding="utf-8")
        os.utime(path, (1, 1))
        found = pending_blocking(tmp_path)
    assert [one.outcome for one in found] == ["damaged", "delivered"]
    assert message in found[0].detail
    assert files(tmp_path) == [Path(path.name)]


def test_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    """Anywhere in the file."""
    path = leave(tmp_path, "http://127.0.0.1:9/")
    whole = path.read_bytes()
    for position in range(0, len(whole), 7):
        changed = bytearray(whole)
        changed[position] ^= 0x01
        path.write_bytes(changed)
        [found] = pending_blocking(tmp_path, patience=0, timeout=1)
        assert found.outcome == "damaged", bytes(changed)


def test_a_job_replaces_its_own_damaged_file(tmp_path: Path) -> None:
    """It has the whole callback; the damaged one is kept beside."""
    with receiving(always(Reply())) as receiver:
        path = leave(tmp_path, receiver.url)
        path.write_bytes(b"damaged")
        blocking({"callback_id": "c-0"}, url=receiver.url, folder=tmp_path)
    assert len(receiver.requests) == 1
    [kept] = files(tmp_path)
    assert kept.parent == Path("damaged")
    assert (tmp_path / kept).read_bytes() == b"damaged"


def test_unfinished_files_are_removed_after_an_hour(tmp_path: Path) -> None:
    """They are of a process that was killed while it wrote; one that is younger may still be written."""
    old, young = tmp_path / ".a.json.0.tmp", tmp_path / ".b.json.0.tmp"
    for path in (old, young):
        path.write_bytes(b"{")
    os.utime(old, (1, 1))
    assert pending_blocking(tmp_path) == []
    assert files(tmp_path) == [Path(young.name)]


@contextmanager
def unprivileged() -> Generator[int]:
    """As a user for whom permissions count."""
    if os.geteuid() != 0:
        yield os.geteuid()
        return
    os.seteuid(65534)
    try:
        yield 65534
    finally:
        os.seteuid(0)


@BOTH_WAYS
def test_a_folder_that_cannot_be_written(send: Deliver, tmp_path: Path) -> None:
    """The error says which, why, and what is needed.  Nothing is sent: a restart could not continue."""
    folder = tmp_path / "callbacks"
    folder.mkdir()
    folder.chmod(0o555)
    tmp_path.chmod(0o755)
    for above in tmp_path.parents:
        if not above.stat().st_mode & 0o001 and os.geteuid() == 0:
            above.chmod(above.stat().st_mode | 0o111)
    with receiving(always(Reply())) as receiver, unprivileged() as user, pytest.raises(FolderError) as raised:
        send(url=receiver.url, folder=folder)
    assert str(raised.value).startswith(f"callbacks cannot be written in {folder}: Permission denied. ")
    assert f"the user {user} may write" in str(raised.value)
    assert receiver.requests == []


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "callbacks").write_text("", encoding="utf-8")
    with pytest.raises(FolderError, match=r"cannot be written in .*callbacks: File exists"):
        blocking(url="http://127.0.0.1:9/", folder=tmp_path / "callbacks")
    with pytest.raises(FolderError, match=r"cannot be read in .*callbacks: Not a directory"):
        pending_blocking(tmp_path / "callbacks")


def test_a_file_that_cannot_be_removed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The callback was delivered all the same; a later duplicate does no harm."""
    folder = tmp_path / "callbacks"

    def take_away(_number: int) -> Reply:
        folder.rename(tmp_path / "elsewhere")
        return Reply(200)

    with receiving(take_away) as receiver:
        assert isinstance(blocking(url=receiver.url, folder=folder), Delivered)
    assert (
        "was acknowledged and could not be removed, so it will be delivered again: No such file"
        in caplog.text
    )


# --- one process at a time


@BOTH_WAYS
def test_a_second_delivery_waits_for_the_first(send: Deliver, tmp_path: Path) -> None:
    """Never two at the same time; when the first has ended, the receiver says that it was a duplicate."""
    first_is_in = threading.Event()
    second_waits = threading.Event()

    def script(number: int) -> Reply:
        if number == 1:
            first_is_in.set()
            assert second_waits.wait(30)
        return Reply(200, b'{"idempotent_replayed": %s}' % (b"true" if number > 1 else b"false"))

    with receiving(script) as receiver:
        first = threading.Thread(target=blocking, kwargs={"url": receiver.url, "folder": tmp_path})
        first.start()
        assert first_is_in.wait(30)
        assert Folder(tmp_path).hold(make_request(CALLBACK, receiver.url)) is None
        assert [one.outcome for one in pending_blocking(tmp_path)] == ["busy"]
        with pytest.raises(CallbackChanged):
            send(CALLBACK.model_copy(update={"status": "failed"}), url=receiver.url, folder=tmp_path)
        assert len(receiver.requests) == 1
        second_waits.set()
        result = send(url=receiver.url, folder=tmp_path)
        first.join()
    assert isinstance(result, Delivered)
    assert result.duplicate
    assert receiver.bodies == [BODY] * 2
    assert files(tmp_path) == []


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    """A process forked meanwhile has the descriptor; the lock ends with the delivery all the same."""
    held = Folder(tmp_path).hold(make_request(b"", "http://127.0.0.1:9/"))
    assert held is not None
    end, child_waits = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(child_waits)
        os.read(end, 1)
        os._exit(0)
    os.close(end)
    try:
        held.release()
        again = Folder(tmp_path).take(held.path)
        assert again != "busy"
        assert again != "gone"
        again.release()
    finally:
        os.close(child_waits)
        os.waitpid(child, 0)


def test_a_file_that_is_gone_once_it_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its holder has delivered it between our opening and our locking it: it is not delivered again."""
    held = Folder(tmp_path).hold(make_request(b"", "http://127.0.0.1:9/"))
    assert held is not None
    lock = folder_module._lock

    def late(fd: int) -> bool:
        held.remove()
        held.release()
        return lock(fd)

    monkeypatch.setattr(folder_module, "_lock", late)
    assert Folder(tmp_path).take(held.path) == "gone"


def test_a_file_that_is_another_once_it_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delivered, and stored anew by a third process that was killed: what is stored is what is delivered."""
    first = Folder(tmp_path).hold(make_request({"callback_id": "c"}, "http://127.0.0.1:9/"))
    assert first is not None
    first.release()
    later = make_request({"callback_id": "c", "status": "later"}, "http://127.0.0.1:9/")
    opened = folder_module._open_locked

    def late(path: Path) -> int | None:
        monkeypatch.setattr(folder_module, "_open_locked", opened)
        path.unlink()
        anew = Folder(tmp_path).hold(later)
        assert anew is not None
        anew.release()
        return opened(path)

    monkeypatch.setattr(folder_module, "_open_locked", late)
    with pytest.raises(CallbackChanged):
        Folder(tmp_path).hold(make_request({"callback_id": "c"}, "http://127.0.0.1:9/"))


def test_cancellation_leaves_the_file(tmp_path: Path) -> None:
    """And frees it, so that another process can deliver it at once."""

    async def main(url: str, wait: threading.Event) -> None:
        sending = asyncio.ensure_future(deliver_async(CALLBACK, url=url, folder=tmp_path, back_off=QUICK))
        assert await asyncio.to_thread(wait.wait, 30)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending

    for within in ("attempt", "pause"):
        arrived = threading.Event()

        def script(_number: int, arrived: threading.Event = arrived, within: str = within) -> Reply:
            arrived.set()
            if within == "attempt":
                assert receiver.over.wait(30)
            return Reply(503, headers={"Retry-After": "1000"})

        with receiving(script) as receiver:
            asyncio.run(main(receiver.url, arrived))
            assert len(receiver.requests) == 1
        [stored] = files(tmp_path)
        with receiving(always(Reply())) as receiver:
            held = Folder(tmp_path).take(tmp_path / stored)
            assert not isinstance(held, str)
            assert held.request.body == BODY
            held.remove()
            held.release()
        assert files(tmp_path) == []


def test_cancellation_while_the_file_is_written(tmp_path: Path) -> None:
    """A thread cannot be stopped, so the cancellation waits for it, and the lock is free afterwards."""

    async def main() -> None:
        for _ in range(50):
            sending = asyncio.ensure_future(
                deliver_async(CALLBACK, url="http://127.0.0.1:9/", folder=tmp_path, back_off=QUICK)
            )
            await asyncio.sleep(0)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            for path in Folder(tmp_path).files():
                held = Folder(tmp_path).take(path)
                assert held != "busy"
                assert held != "gone"
                held.release()

    asyncio.run(main())
    assert len(files(tmp_path)) <= 1
