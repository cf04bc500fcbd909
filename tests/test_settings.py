"""Settings: each wrong one is named with what it must be, none is guessed, no secret is ever shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from worker import settings
from worker.errors import SettingsError
from worker.settings import SETTINGS, Settings, from_mapping, load, rows

if TYPE_CHECKING:
    from pathlib import Path

# ruff: noqa: S105 - the passwords here are nobody's

CONTRACT_DEFAULTS = {
    "BROKERS": "localhost:9092",
    "GROUP_ID": "text-to-message",
    "INSTANCE_ID": None,
    "INPUT_TOPIC": "text-events",
    "OUTPUT_TOPIC": "messages",
    "DEAD_LETTER_TOPIC": "text-events.dead-letter",
    "INPUT_FORMAT": "json",
    "OUTPUT_FORMAT": "both",
    "TEXT_FIELD": "text",
    "ROLE_FIELD": "role",
    "TOOL_CALL_ID_FIELD": "tool_call_id",
    "GUARANTEE": "at-least-once",
    "START_FROM": "earliest",
    "CREATE_TOPICS": "true",
    "PARTITIONS": None,
    "REPLICATION_FACTOR": None,
    "COMPRESSION": "none",
    "COMMIT_INTERVAL": "1s",
    "SHUTDOWN_TIMEOUT": "25s",
    "STALL_TIMEOUT": "60s",
    "HTTP_HOST": "127.0.0.1",
    "HTTP_PORT": "8080",
    "LOG_LEVEL": "info",
    "LOG_FORMAT": None,
    "SECURITY_PROTOCOL": "PLAINTEXT",
    "SASL_MECHANISM": None,
    "SASL_USERNAME": None,
    "SASL_PASSWORD": None,
    "SASL_OAUTH_TOKEN_URL": None,
    "SASL_OAUTH_CLIENT_ID": None,
    "SASL_OAUTH_CLIENT_SECRET": None,
    "SASL_OAUTH_SCOPE": None,
    "SSL_CA_FILE": None,
    "SSL_CERT_FILE": None,
    "SSL_KEY_FILE": None,
    "SSL_KEY_PASSWORD": None,
}
SECRET = "hunter2-$x"


def problems(values: dict[str, str], env_file: Path | None = None) -> tuple[str, ...]:
    """Load what must fail, and give the lines a person would see; no secret is in them."""
    with pytest.raises(SettingsError) as raised:
        load({f"WORKER_{name}": value for name, value in values.items()}, env_file)
    assert SECRET not in str(raised.value)
    return raised.value.problems


def test_defaults() -> None:
    """Without any setting the worker has the documented defaults, all of them and no others."""
    shown = {row.name.removeprefix("WORKER_"): row.value for row in rows(load({}))}
    assert shown == CONTRACT_DEFAULTS
    assert load({}) == Settings()


@pytest.mark.parametrize(
    ("name", "text", "attribute", "value"),
    [
        ("BROKERS", "a:1, b.example:65535", "brokers", ("a:1", "b.example:65535")),
        ("BROKERS", "[::1]:9092", "brokers", ("[::1]:9092",)),
        ("COMMIT_INTERVAL", "250ms", "commit_interval", 0.25),
        ("SHUTDOWN_TIMEOUT", "1.5s", "shutdown_timeout", 1.5),
        ("STALL_TIMEOUT", "2m", "stall_timeout", 120.0),
        ("HTTP_PORT", "0", "http_port", 0),
        ("HTTP_HOST", "::", "http_host", "::"),
        ("CREATE_TOPICS", "FALSE", "create_topics", False),
        ("LOG_LEVEL", "DEBUG", "log_level", "debug"),
        ("SECURITY_PROTOCOL", "ssl", "security_protocol", "SSL"),
        ("PARTITIONS", "12", "partitions", 12),
        ("INPUT_TOPIC", "other", "dead_letter_topic", "other.dead-letter"),
        ("SASL_PASSWORD", " kept as it is\n", "sasl_password", " kept as it is\n"),
    ],
)
def test_value(name: str, text: str, attribute: str, value: object) -> None:
    """A value is read as what it means."""
    assert getattr(from_mapping({name: text}), attribute) == value


@pytest.mark.parametrize(
    ("name", "wrong", "must"),
    [
        ("BROKERS", "", "host:port"),
        ("BROKERS", "localhost", "host:port"),
        ("BROKERS", "localhost:0", "host:port"),
        ("BROKERS", "localhost:65536", "host:port"),
        ("BROKERS", "a:1,,b:2", "host:port"),
        ("BROKERS", "::1:9092", "host:port"),
        ("BROKERS", "[nonsense]:9092", "host:port"),
        ("BROKERS", "kafka://a:9092", "host:port"),
        ("GROUP_ID", "", "a name: not empty"),
        ("GROUP_ID", "two\nlines", "a name: not empty"),
        ("INSTANCE_ID", "a b", "1 to 249 of"),
        ("INPUT_TOPIC", "", "1 to 249 of"),
        ("INPUT_TOPIC", "..", "1 to 249 of"),
        ("OUTPUT_TOPIC", "a/b", "1 to 249 of"),
        ("OUTPUT_TOPIC", "a" * 250, "1 to 249 of"),
        ("DEAD_LETTER_TOPIC", "ä", "1 to 249 of"),
        ("INPUT_FORMAT", "xml", "json or text"),
        ("OUTPUT_FORMAT", "all", "both, message or messages"),
        ("TEXT_FIELD", "", "a name: not empty"),
        ("GUARANTEE", "at-most-once", "at-least-once or exactly-once"),
        ("START_FROM", "0", "earliest or latest"),
        ("CREATE_TOPICS", "yes", "true or false"),
        ("PARTITIONS", "0", "a whole number from 1 to 10000"),
        ("REPLICATION_FACTOR", "1.0", "a whole number from 1 to 32767"),
        ("COMPRESSION", "br", "none, gzip, snappy, lz4 or zstd"),
        ("COMMIT_INTERVAL", "0s", "from 1ms to 60s, a number with ms, s or m"),
        ("COMMIT_INTERVAL", "61s", "from 1ms to 60s, a number with ms, s or m"),
        ("SHUTDOWN_TIMEOUT", "25", "from 100ms to 60m, a number with ms, s or m"),
        ("STALL_TIMEOUT", "1h", "from 100ms to 60m, a number with ms, s or m"),
        ("STALL_TIMEOUT", "-1s", "from 100ms to 60m, a number with ms, s or m"),
        ("HTTP_HOST", "localhost:80", "a host name or address without a port"),
        ("HTTP_PORT", "80x", "a whole number from 0 to 65535"),
        ("HTTP_PORT", "65536", "a whole number from 0 to 65535"),
        ("HTTP_PORT", "1_0", "a whole number from 0 to 65535"),
        ("LOG_LEVEL", "loud", "debug, info, warning or error"),
        ("LOG_FORMAT", "xml", "json or text"),
        ("SECURITY_PROTOCOL", "TLS", "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"),
        ("SASL_MECHANISM", "GSSAPI", "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"),
        ("SASL_OAUTH_TOKEN_URL", "id.example/token", "an address that begins with https:// or http://"),
        ("SASL_OAUTH_TOKEN_URL", "https://", "an address that begins with https:// or http://"),
        ("SASL_OAUTH_TOKEN_URL", "https://id.example:port/", "an address that begins with https:// or http://"),
        ("SASL_OAUTH_TOKEN_URL", "https://me:it@id.example/", "an address that begins with https:// or http://"),
        ("SSL_CA_FILE", "/no/such/file", "a file that can be read (No such file or directory)"),
        ("SSL_CA_FILE", "/", "a file that can be read (Is a directory)"),
    ],
)
def test_wrong_value(name: str, wrong: str, must: str) -> None:
    """A wrong value is one line: the name, the value, what it must be."""
    lines = problems({name: wrong})
    assert len(lines) == 1
    assert lines[0].startswith(f"WORKER_{name}={wrong!r}: must be {must}")


def test_all_at_once() -> None:
    """Every wrong setting is named in one go, so that one restart mends them all."""
    lines = problems({"HTTP_PORT": "x", "LOG_LEVEL": "x", "BROKER": "x", "OUTPUT_TOPIC": "text-events"})
    assert [line.split("=")[0].split(":")[0] for line in lines] == [
        "WORKER_BROKER",
        "WORKER_HTTP_PORT",
        "WORKER_LOG_LEVEL",
        "WORKER_OUTPUT_TOPIC",
    ]


@pytest.mark.parametrize("setting", [each for each in SETTINGS if each.default is None], ids=lambda each: each.name)
def test_empty_is_not_set(setting: settings.Setting) -> None:
    """An empty string leaves an optional setting unset, as templates write it."""
    assert from_mapping({setting.name: ""}) == Settings()


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"OUTPUT_TOPIC": "text-events"}, "WORKER_OUTPUT_TOPIC='text-events': must differ from WORKER_INPUT_TOPIC"),
        (
            {"DEAD_LETTER_TOPIC": "messages"},
            "WORKER_DEAD_LETTER_TOPIC='messages': must differ from WORKER_OUTPUT_TOPIC",
        ),
        ({"INPUT_TOPIC": "a" * 249}, "WORKER_DEAD_LETTER_TOPIC: must be set, as the name made from"),
        ({"ROLE_FIELD": "text"}, "WORKER_ROLE_FIELD='text': must differ from WORKER_TEXT_FIELD"),
        ({"SSL_CERT_FILE": __file__}, "WORKER_SSL_KEY_FILE: must be set with WORKER_SSL_CERT_FILE"),
        ({"SSL_KEY_FILE": __file__}, "WORKER_SSL_CERT_FILE: must be set with WORKER_SSL_KEY_FILE"),
    ],
)
def test_together(values: dict[str, str], line: str) -> None:
    """What is wrong only together is one line too, under the name of the setting to change."""
    lines = problems(values)
    assert len(lines) == 1
    assert lines[0].startswith(line)


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_sasl_needs_a_login(protocol: str) -> None:
    """A protocol with a login names each part of it that is missing."""
    assert problems({"SECURITY_PROTOCOL": protocol, "SASL_USERNAME": "me"}) == (
        f"WORKER_SASL_MECHANISM: must be set, as WORKER_SECURITY_PROTOCOL is {protocol}",
        f"WORKER_SASL_PASSWORD: must be set, as WORKER_SECURITY_PROTOCOL is {protocol}",
    )


def test_a_login_that_would_not_be_used() -> None:
    """A mechanism does nothing without a protocol that has a login: the password would be thought to protect."""
    assert problems({"SASL_MECHANISM": "PLAIN", "SASL_PASSWORD": "it"}) == (
        "WORKER_SASL_MECHANISM='PLAIN': has no effect, as WORKER_SECURITY_PROTOCOL is PLAINTEXT; set that to SASL_SSL",
    )


def test_oauth_needs_a_client() -> None:
    """OAUTHBEARER names each part of its own that is missing, and no user."""
    why = "must be set, as WORKER_SASL_MECHANISM is OAUTHBEARER"
    assert problems({"SECURITY_PROTOCOL": "SASL_SSL", "SASL_MECHANISM": "OAUTHBEARER", "SASL_OAUTH_SCOPE": "x"}) == (
        f"WORKER_SASL_OAUTH_TOKEN_URL: {why}",
        f"WORKER_SASL_OAUTH_CLIENT_ID: {why}",
        f"WORKER_SASL_OAUTH_CLIENT_SECRET: {why}",
    )


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("BROKER", "BROKERS"),
        ("INPUT_TOPICS", "INPUT_TOPIC"),
        ("SASL_PASWORD", "SASL_PASSWORD"),
        ("SASL_PASSWORD_FIL", "SASL_PASSWORD_FILE"),
        ("BROKERS_FILE", "BROKERS"),
        ("PORTITIONS", "PARTITIONS"),
        ("http_port", "HTTP_PORT"),
        ("", None),
    ],
)
def test_unknown_name(name: str, nearest: str | None) -> None:
    """A name that is none is refused with the nearest right one, and without its value: it may be a secret."""
    (line,) = problems({name: SECRET})
    assert line.startswith(f"WORKER_{name}: there is no such setting; the nearest is WORKER_{nearest or ''}")


def test_kubernetes_names() -> None:
    """What Kubernetes sets for a Service called worker is no typo; nor is a name without our prefix."""
    from_service = {
        "WORKER_SERVICE_HOST": "10.0.0.1",
        "WORKER_SERVICE_PORT": "8080",
        "WORKER_SERVICE_PORT_HTTP": "8080",
        "WORKER_PORT": "tcp://10.0.0.1:8080",
        "WORKER_PORT_8080_TCP": "tcp://10.0.0.1:8080",
        "WORKER_PORT_8080_TCP_PROTO": "tcp",
        "WORKERS": "3",
    }
    assert load(from_service) == Settings()


def test_secrets_are_hidden() -> None:
    """A secret is in no row and no repr."""
    loaded = from_mapping({"SASL_PASSWORD": SECRET, "SSL_KEY_PASSWORD": SECRET})
    assert SECRET not in repr(loaded)
    shown = {row.name: row.value for row in rows(loaded)}
    assert shown["WORKER_SASL_PASSWORD"] == "********"
    assert shown["WORKER_SSL_KEY_PASSWORD"] == "********"
    assert SECRET not in str(shown)


@pytest.mark.parametrize(
    ("content", "value"),
    [(b"s3cret", "s3cret"), (b"s3cret\n", "s3cret"), (b"s3cret\r\n", "s3cret"), (b" s3cret \n\n", " s3cret \n")],
)
def test_secret_from_file(tmp_path: Path, content: bytes, value: str) -> None:
    """A secret's file is the secret, but for the one line end that an editor leaves."""
    path = tmp_path / "password"
    path.write_bytes(content)
    loaded = from_mapping({"SASL_PASSWORD_FILE": str(path)})
    assert loaded.sasl_password == value
    assert loaded.origins["SASL_PASSWORD"] == f"file {path}"


@pytest.mark.parametrize(
    ("content", "why"), [(None, "No such file or directory"), (b"\xff", "not UTF-8 text"), (b"\n", "not empty")]
)
def test_unreadable_secret(tmp_path: Path, content: bytes | None, why: str) -> None:
    """A secret's file that gives none is named by its variable; what stands there may be the secret itself."""
    path = tmp_path / SECRET
    if content is not None:
        path.write_bytes(content)
    (line,) = problems({"SASL_PASSWORD_FILE": str(path)})
    assert line.startswith("WORKER_SASL_PASSWORD")
    assert why in line


def test_secret_twice() -> None:
    """A secret given both ways is refused: nobody could tell which one counts."""
    (line,) = problems({"SASL_PASSWORD": SECRET, "SASL_PASSWORD_FILE": SECRET})
    assert line == "WORKER_SASL_PASSWORD: must not be set together with WORKER_SASL_PASSWORD_FILE"


def test_env_file(tmp_path: Path) -> None:
    """An env file fills in what the environment leaves open; only our names count; nothing in it is expanded."""
    path = tmp_path / "worker.env"
    path.write_text(
        "\ufeff# comment\n\nWORKER_GROUP_ID=from-file\nexport WORKER_INPUT_TOPIC=in\n"
        f"WORKER_SASL_USERNAME=\"me\" # comment\nWORKER_SASL_PASSWORD='{SECRET}'\nOTHER=1\n",
        encoding="utf-8",
    )
    loaded = load({"WORKER_GROUP_ID": "from-environment"}, path)
    assert (loaded.group_id, loaded.input_topic, loaded.sasl_username) == ("from-environment", "in", "me")
    assert loaded.sasl_password == SECRET
    origins = {row.name: row.origin for row in rows(loaded)}
    assert origins["WORKER_GROUP_ID"] == "environment"
    assert origins["WORKER_INPUT_TOPIC"] == f"env-file {path}"
    assert origins["WORKER_OUTPUT_TOPIC"] == "default"


def test_environment_wins_over_a_secret_in_an_env_file(tmp_path: Path) -> None:
    """A secret given one way in the environment hides one given the other way in the env file."""
    path = tmp_path / "worker.env"
    path.write_text("WORKER_SASL_PASSWORD_FILE=/no/such/file\n", encoding="utf-8")
    assert load({"WORKER_SASL_PASSWORD": "x"}, path).sasl_password == "x"


def test_wrong_env_file(tmp_path: Path) -> None:
    """What is wrong in an env file is named with the file, and a line that is none by its number alone."""
    path = tmp_path / "worker.env"
    path.write_text(f"WORKER_HTTP_PORT=80x\nWORKER_BROKER={SECRET}\n{SECRET}\nWORKER_SASL_PASSWORD='{SECRET}\n")
    assert problems({}, path) == (
        f"--env-file {path}, line 3: must be NAME=value",
        f"--env-file {path}, line 4: must be NAME=value",
        f"WORKER_BROKER (in {path}): there is no such setting; the nearest is WORKER_BROKERS",
        f"WORKER_HTTP_PORT='80x' (in {path}): must be a whole number from 0 to 65535",
    )


@pytest.mark.parametrize(("content", "why"), [(None, "No such file or directory"), (b"\xff\xfe", "UTF-8 text")])
def test_unreadable_env_file(tmp_path: Path, content: bytes | None, why: str) -> None:
    """An env file that can't be read is a wrong setting like any other."""
    path = tmp_path / "worker.env"
    if content is not None:
        path.write_bytes(content)
    (line,) = problems({}, path)
    assert line.startswith(f"--env-file {path}: must be ")
    assert why in line


def test_markdown_table() -> None:
    """The README's table has a row for each setting, in the order of the declaration."""
    lines = settings.markdown_table().splitlines()
    assert [line.split("`")[1] for line in lines[2:]] == list(CONTRACT_DEFAULTS)
    assert {line.count("|") for line in lines} == {5}
