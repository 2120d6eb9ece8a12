"""What is handed to a job and what it sends back: ids are made at launch and travel through both."""

import json
import os
import stat
from enum import StrEnum
from pathlib import Path
from uuid import UUID

import pytest
from pydantic import HttpUrl, ValidationError
from pydantic.alias_generators import to_camel

from retrysafe import ConfigurationError
from retrysafe.callbacks.jobs import Callback, Envelope, ExecutionContext, new_callback_id
from retrysafe.callbacks.jobs.request import make_request

URL = "https://service.example/callbacks"


class Status(StrEnum):
    COMPLETED = "completed"
    FAILED = "failed"


class Context(ExecutionContext, frozen=True):
    region: str = "eu"


class Simulation(Envelope, frozen=True):
    context: Context
    model_uri: str
    timestep: int = 60


class Finished(Callback, frozen=True):
    status: Status
    findings: int = 0


def launched() -> Simulation:
    return Simulation.launch(
        run_id="run-1", callback_url=URL, context={"region": "us"}, model_uri="s3://in/1.idf"
    )


def test_ids_are_uuids() -> None:
    """Random ones: two launches never have the same."""
    ids = {new_callback_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(UUID(one).version == 4 and str(UUID(one)) == one for one in ids)


def test_a_launch_makes_the_ids() -> None:
    """A run that is launched twice has two executions, and so two callback ids."""
    first, second = launched(), launched()
    assert first.run_id == second.run_id == "run-1"
    assert first.context.callback_id != second.context.callback_id
    assert UUID(first.context.callback_id).version == 4
    assert UUID(first.context.correlation_id).version == 4
    assert first.context.callback_url == HttpUrl(URL)
    assert first.context.region == "us"
    assert (first.model_uri, first.timestep) == ("s3://in/1.idf", 60)


def test_a_correlation_id_is_taken_over() -> None:
    """A run is traced from where it began, which may be before the launch."""
    envelope = Envelope.launch(run_id="r", callback_url=None, correlation_id="trace-1")
    assert envelope.context.correlation_id == "trace-1"
    assert envelope.context.callback_url is None


@pytest.mark.parametrize(
    "url",
    ["/callbacks", "file:///callbacks", "javascript:alert(1)", "http://", "http://a..b/", "http://host:0/",
     f"http://{'a' * 64}/", "http://\u2603.example/"],
)  # fmt: skip
def test_urls_that_nothing_can_be_sent_to(url: str) -> None:
    """Refused where the job is launched, and where it reads its envelope, and not when its work is done."""
    with pytest.raises(ValidationError, match="callback_url"):
        Envelope.launch(run_id="r", callback_url=url)
    with pytest.raises(ConfigurationError, match="url"):
        make_request(b"", url)


def test_a_misspelt_input_is_refused_at_launch() -> None:
    """Reading keeps unknown fields, so the launch is the place to find it."""
    with pytest.raises(
        ConfigurationError, match=r"Simulation has no field 'modle_uri': expected model_uri, "
    ):
        Simulation.launch(run_id="r", callback_url=None, modle_uri="s3://in/1.idf")
    with pytest.raises(ValidationError, match="model_uri"):
        Simulation.launch(run_id="r", callback_url=None)


def test_a_file_reads_as_it_was_written(tmp_path: Path) -> None:
    """With its own inputs and the fields of its context; and nothing but the file is left in the folder."""
    envelope = launched()
    envelope.write(tmp_path / "envelope.json")
    assert Simulation.read(tmp_path / "envelope.json") == envelope
    assert os.listdir(tmp_path) == ["envelope.json"]


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """Who had opened the old one reads it to its end."""
    path = tmp_path / "envelope.json"
    first, second = launched(), launched()
    first.write(str(path))
    with path.open("rb") as opened:
        second.write(path)
        assert Simulation.model_validate_json(opened.read()) == first
    assert Simulation.read(path) == second


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    """No half file, under whatever name."""
    target = tmp_path / "envelope.json"
    target.mkdir()
    with pytest.raises(OSError, match=r"envelope\.json"):
        launched().write(target)
    assert os.listdir(tmp_path) == ["envelope.json"]


def test_a_job_of_another_user_may_read_it(tmp_path: Path) -> None:
    """Permissions are those of any file: the umask decides."""
    before = os.umask(0o022)
    try:
        launched().write(tmp_path / "envelope.json")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "envelope.json").stat().st_mode) == 0o644


def test_an_envelope_that_makes_no_sense_is_named(tmp_path: Path) -> None:
    """The error says which file, and what is wrong in it."""
    (tmp_path / "envelope.json").write_text('{"context": {}}', encoding="utf-8")
    with pytest.raises(ValidationError, match="run_id") as raised:
        Envelope.read(tmp_path / "envelope.json")
    assert raised.value.__notes__ == [f"in the envelope {tmp_path / 'envelope.json'}"]


class Named(Context, frozen=True, alias_generator=to_camel):
    queue_name: str


class Camel(Envelope, frozen=True, alias_generator=to_camel):
    context: Named
    model_uri: str


class Ended(Callback, frozen=True, alias_generator=to_camel):
    exit_code: int


def test_fields_with_aliases(tmp_path: Path) -> None:
    """They are made by either name, and written as they are read, by a class that knows only the aliases."""
    for fields in ({"model_uri": "s3://in"}, {"modelUri": "s3://in"}):
        for context in ({"queue_name": "q"}, {"queueName": "q"}):
            envelope = Camel.launch(run_id="r", callback_url=URL, context=context, **fields)
            envelope.write(tmp_path / "envelope.json")
            assert Camel.read(tmp_path / "envelope.json") == envelope
            assert Camel.model_validate_json(envelope.model_dump_json()) == envelope
            assert envelope.context.callback_id
    assert '"modelUri":"s3://in"' in (tmp_path / "envelope.json").read_text()
    envelope = Camel.read(tmp_path / "envelope.json")
    callback = envelope.callback(Ended, status="completed", exit_code=3)
    sent = make_request(callback, URL)
    assert sent.callback_id == envelope.context.callback_id
    assert json.loads(sent.body)["exitCode"] == 3
    assert json.loads(sent.body)["callbackId"] == sent.callback_id
    assert Ended.model_validate_json(sent.body) == callback


# --- versions


def test_a_job_reads_an_older_launch() -> None:
    """One that knows no ids: the job then sends none."""
    envelope = Envelope.model_validate_json('{"run_id": "r", "context": {}}')
    assert envelope.context == ExecutionContext()
    callback = envelope.callback(status="completed")
    assert (callback.callback_id, callback.correlation_id) == (None, None)


def test_a_job_reads_a_newer_launch_and_passes_it_on_whole() -> None:
    """What it does not know is still there for a job that it launches."""
    context = '{"callback_id":"c","callback_url":null,"correlation_id":null,"zone":"a"}'
    newer = f'{{"run_id":"r","context":{context},"x":1}}'
    assert Envelope.model_validate_json(newer).model_dump_json() == newer


def test_a_service_reads_an_older_job() -> None:
    """Jobs that echo no id, or an empty one, are as they always were."""
    for echoed in ("", ', "callback_id": null', ', "callback_id": ""'):
        callback = Callback.model_validate_json(f'{{"run_id": "r", "status": "completed"{echoed}}}')
        assert callback == Callback(run_id="r", status="completed")
        assert callback.callback_id is None


def test_a_service_reads_a_newer_job() -> None:
    """What it does not know is ignored, and not stored."""
    callback = Callback.model_validate({"run_id": "r", "status": "completed", "seconds": 3})
    assert "seconds" not in callback.model_dump()


# --- ids


@pytest.mark.parametrize("name", ["callback_id", "correlation_id"])
@pytest.mark.parametrize("kind", [ExecutionContext, Callback])
def test_ids_have_at_most_255_bytes(kind: type[ExecutionContext] | type[Callback], name: str) -> None:
    """Bytes, and not characters: what fits is stored and sent as it is."""
    fields = {"run_id": "r", "status": "s"} if kind is Callback else {}
    longest = "é" * 127 + "e"
    assert getattr(kind.model_validate({**fields, name: longest}), name) == longest
    for long in ("é" * 128, "e" * 256, "\ud800"):
        with pytest.raises(ValidationError, match=name):
            kind.model_validate({**fields, name: long})


def test_the_id_is_described() -> None:
    """People see it in the schema that the service publishes."""
    properties = ExecutionContext.model_json_schema()["properties"]
    assert "processed once" in properties["callback_id"]["description"]
    assert all(one["description"] for one in properties.values())
    assert all(one["description"] for one in Callback.model_json_schema()["properties"].values())


# --- callbacks


def test_a_callback_carries_the_ids_of_its_launch() -> None:
    """The job says how it ended, and nothing that was said at the launch."""
    envelope = launched()
    assert envelope.callback(status="completed", result_uri="s3://out/1.json") == Callback(
        run_id="run-1",
        callback_id=envelope.context.callback_id,
        status="completed",
        result_uri="s3://out/1.json",
        correlation_id=envelope.context.correlation_id,
    )


def test_a_callback_of_the_application() -> None:
    """It may narrow the status and add fields."""
    callback = launched().callback(Finished, status=Status.FAILED, findings=3)
    assert callback.status is Status.FAILED
    assert callback.findings == 3
    assert callback.result_uri == ""
    with pytest.raises(ValidationError, match="status"):
        launched().callback(Finished, status="lost")


def test_values_do_not_change() -> None:
    """An id that was sent is not another one afterwards."""
    with pytest.raises(ValidationError, match="frozen"):
        launched().context.callback_id = "other"  # type: ignore[misc]  # as pyright sees it, too
