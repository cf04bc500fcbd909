"""The settings: one table that the loader, the error messages, ``worker config`` and the README all read.

Each field of ``Settings`` is its own declaration: kind, default, help. ``SETTINGS`` is read off those fields, so a
setting can't be loaded and not documented, or the other way round. ``load`` reports every wrong setting at once,
because a person who mends one a restart gives up. Nothing here talks to Kafka: whether a topic exists or a password
is right is not a question about a setting.

A secret's value is never in a message, a ``repr`` or a row; neither is the value of an unknown name (it may be a
misspelt password) nor what stands in a ``_FILE`` variable that can't be read (it may be the password itself).
"""

# ruff: noqa: RUF009 - the calls in the dataclass are field specifiers, as dataclasses.field itself

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from dotenv.parser import parse_stream

from worker import kinds
from worker.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from worker.kinds import Kind

PREFIX = "WORKER_"
HIDDEN = "********"

InputFormat = Literal["json", "text"]
OutputFormat = Literal["both", "message", "messages"]
Guarantee = Literal["at-least-once", "exactly-once"]
StartFrom = Literal["earliest", "latest"]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["json", "text"]
SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]

_NEEDED_BY_OAUTH = ("sasl_oauth_token_url", "sasl_oauth_client_id", "sasl_oauth_client_secret")
# Kubernetes gives every container these for a Service called "worker" (service links); they are no typos.
_KUBERNETES = re.compile(r"WORKER_(SERVICE_.*|PORT(_.*)?)")


class Setting(NamedTuple):
    """One setting, as people see it."""

    name: str
    kind: Kind
    default: str | None
    """The default as one would write it; None: not set, ``default_text`` says what then happens."""
    default_text: str
    help: str
    secret: bool

    @property
    def variable(self) -> str:
        """The environment variable."""
        return PREFIX + self.name

    @property
    def attribute(self) -> str:
        """The field of ``Settings``."""
        return self.name.lower()


class Row(NamedTuple):
    """A setting in force; ``value`` is None when not set."""

    name: str
    value: str | None
    origin: str
    default_text: str


def _setting(kind: Kind, default: str | None, text: str, *, unset: str = "none", secret: bool = False) -> Any:  # noqa: ANN401 - a field specifier stands for a value of any type
    return field(
        default=None if default is None else kind.parse(default),
        repr=not secret,
        metadata={"setting": (kind, default, unset if default is None else f"`{default}`", text, secret)},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings in force. ``load`` and ``from_mapping`` check; the constructor takes what it is given."""

    brokers: tuple[str, ...] = _setting(kinds.BROKERS, "localhost:9092", "where the cluster is")
    group_id: str = _setting(kinds.NAME, "text-to-message", "the consumer group")
    instance_id: str | None = _setting(kinds.KAFKA_NAME, None, "static membership: a name that only this instance has")
    input_topic: str = _setting(kinds.KAFKA_NAME, "text-events", "where events come from")
    output_topic: str = _setting(kinds.KAFKA_NAME, "messages", "where messages go")
    dead_letter_topic: str = _setting(
        kinds.KAFKA_NAME, None, "where events go that can't become an outcome", unset="`<input topic>.dead-letter`"
    )
    input_format: InputFormat = _setting(kinds.one_of(InputFormat), "json", "how an event is written")
    output_format: OutputFormat = _setting(kinds.one_of(OutputFormat), "both", "what an output record holds")
    text_field: str = _setting(kinds.NAME, "text", "the member with the text")
    role_field: str = _setting(kinds.NAME, "role", "the member (format `text`: the header) with the role")
    tool_call_id_field: str = _setting(
        kinds.NAME, "tool_call_id", "the member (format `text`: the header) with the call id"
    )
    guarantee: Guarantee = _setting(kinds.one_of(Guarantee), "at-least-once", "what a failure may do to an event")
    start_from: StartFrom = _setting(
        kinds.one_of(StartFrom), "earliest", "where a group without a committed offset starts"
    )
    create_topics: bool = _setting(kinds.BOOLEAN, "true", "make topics that are missing")
    partitions: int | None = _setting(
        kinds.whole(1, 10_000), None, "partitions of a topic that is made", unset="the input topic's count, else 4"
    )
    replication_factor: int | None = _setting(
        kinds.whole(1, 32_767), None, "replicas of a topic that is made", unset="the broker's default"
    )
    compression: Compression = _setting(kinds.one_of(Compression), "none", "how written batches are compressed")
    commit_interval: float = _setting(kinds.duration("1ms", "60s"), "1s", "how often offsets are committed")
    shutdown_timeout: float = _setting(kinds.duration("100ms", "60m"), "25s", "how long a stop may take")
    stall_timeout: float = _setting(
        kinds.duration("100ms", "60m"), "60s", "how long a partition may stand still before `/healthz` says so"
    )
    http_host: str = _setting(kinds.LISTEN, "127.0.0.1", "where health, metrics and the status page listen")
    http_port: int = _setting(kinds.whole(0, kinds.MAX_PORT), "8080", "their port; 0 is off")
    log_level: LogLevel = _setting(kinds.one_of(LogLevel), "info", "what is logged")
    log_format: LogFormat | None = _setting(
        kinds.one_of(LogFormat), None, "how a log line is written", unset="`json` when not a terminal, else `text`"
    )
    security_protocol: SecurityProtocol = _setting(
        kinds.one_of(SecurityProtocol), "PLAINTEXT", "how the worker talks to the cluster"
    )
    sasl_mechanism: SaslMechanism | None = _setting(kinds.one_of(SaslMechanism), None, "how it logs in")
    sasl_username: str | None = _setting(kinds.NAME, None, "the user")
    sasl_password: str | None = _setting(kinds.SECRET, None, "the user's password", secret=True)
    sasl_oauth_token_url: str | None = _setting(kinds.URL, None, "where `OAUTHBEARER` gets its token")
    sasl_oauth_client_id: str | None = _setting(kinds.NAME, None, "the client there")
    sasl_oauth_client_secret: str | None = _setting(kinds.SECRET, None, "the client's secret", secret=True)
    sasl_oauth_scope: str | None = _setting(kinds.NAME, None, "what the token is to be good for")
    ssl_ca_file: str | None = _setting(kinds.FILE, None, "whom to trust (PEM)", unset="the system's authorities")
    ssl_cert_file: str | None = _setting(kinds.FILE, None, "the worker's certificate (PEM)")
    ssl_key_file: str | None = _setting(kinds.FILE, None, "its private key (PEM)")
    ssl_key_password: str | None = _setting(kinds.SECRET, None, "the private key's password", secret=True)

    origins: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """Where each value that is no default came from, by setting name."""

    def __post_init__(self) -> None:
        """Fill in the one default that depends on another setting."""
        if not self.dead_letter_topic:
            object.__setattr__(self, "dead_letter_topic", f"{self.input_topic}.dead-letter")


SETTINGS: tuple[Setting, ...] = tuple(
    Setting(each.name.upper(), *each.metadata["setting"]) for each in fields(Settings) if "setting" in each.metadata
)
_VARIABLES = {
    **{setting.variable: setting for setting in SETTINGS},
    **{f"{setting.variable}_FILE": setting for setting in SETTINGS if setting.secret},
}


class _Source(NamedTuple):
    values: Mapping[str, str]
    origin: str = "environment"
    where: str = ""
    """What a message adds to the name."""


class _Found(NamedTuple):
    text: str
    origin: str
    where: str


def load(environ: Mapping[str, str], env_file: Path | None = None) -> Settings:
    """Read the environment, then the env file for what it leaves open; SettingsError names all that is wrong."""
    problems: list[str] = []
    sources = [_Source(environ)]
    if env_file is not None:
        sources.append(_Source(_read_env_file(env_file, problems), f"env-file {env_file}", f" (in {env_file})"))
    problems += [problem for source in sources for problem in _unknown(source)]
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    wrong: set[str] = set()
    for setting in SETTINGS:
        try:
            found = _find(setting, sources)
            if found is not None:
                values[setting.attribute] = _parse(setting, found)
                origins[setting.name] = found.origin
        except SettingsError as error:
            problems += error.problems
            wrong.add(setting.attribute)
    settings = Settings(**values, origins=origins)
    problems += [text for names, text in _cross_checks(settings) if not wrong & names]
    if problems:
        raise SettingsError(problems)
    return settings


def from_mapping(values: Mapping[str, str]) -> Settings:
    """Load from names without their prefix, as tests and the demo write them."""
    return load({PREFIX + name: value for name, value in values.items()})


def _unknown(source: _Source) -> Iterator[str]:
    for name in sorted(source.values):
        if name.startswith(PREFIX) and name not in _VARIABLES and not _KUBERNETES.fullmatch(name):
            # Compared without the prefix, which would make every name look near.
            known = [variable.removeprefix(PREFIX) for variable in _VARIABLES]
            nearest = difflib.get_close_matches(name.removeprefix(PREFIX).upper(), known, n=1, cutoff=0.0)[0]
            yield f"{name}{source.where}: there is no such setting; the nearest is {PREFIX}{nearest}"


def _find(setting: Setting, sources: list[_Source]) -> _Found | None:
    """Take the first source that has the setting; None where it is not set."""
    for source in sources:
        text = source.values.get(setting.variable)
        path = source.values.get(f"{setting.variable}_FILE") if setting.secret else None
        if text and path:
            both = f"must not be set together with {setting.variable}_FILE"
            raise SettingsError([f"{setting.variable}{source.where}: {both}"])
        if path:
            return _Found(_read_secret(setting, path, source), f"file {path}", source.where)
        if text is not None or path is not None:
            optional = setting.default is None
            return None if optional and not text else _Found(text or "", source.origin, source.where)
    return None


def _parse(setting: Setting, found: _Found) -> object:
    try:
        return setting.kind.parse(found.text)
    except (ValueError, OSError) as error:
        why = f" ({error.strerror})" if isinstance(error, OSError) and error.strerror else ""
        shown = HIDDEN if setting.secret else repr(found.text)
        problem = f"{setting.variable}={shown}{found.where}: must be {setting.kind.must}{why}"
        raise SettingsError([problem]) from None


def _read_secret(setting: Setting, path: str, source: _Source) -> str:
    try:
        text = Path(path).read_bytes().decode()
    except OSError as error:
        why = error.strerror or "unreadable"
    except ValueError:
        why = "not UTF-8 text"
    else:
        return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text
    raise SettingsError([f"{setting.variable}_FILE{source.where}: must be {kinds.FILE.must} ({why})"])


def _read_env_file(path: Path, problems: list[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    try:
        with path.open(encoding="utf-8-sig") as stream:
            for binding in parse_stream(stream):
                # The line's text is not repeated: it may hold a secret.
                if binding.error or (binding.key is not None and binding.value is None):
                    problems.append(f"--env-file {path}, line {binding.original.line}: must be NAME=value")
                elif binding.key is not None and binding.key.startswith(PREFIX):
                    values[binding.key] = binding.value or ""
    except OSError as error:
        problems.append(f"--env-file {path}: must be {kinds.FILE.must} ({error.strerror})")
    except UnicodeDecodeError:
        problems.append(f"--env-file {path}: must be UTF-8 text")
    return values


def _cross_checks(settings: Settings) -> Iterator[tuple[set[str], str]]:
    """Check what no setting can say alone; each problem comes with the attributes that take part."""
    topics = ("input_topic", "output_topic", "dead_letter_topic")
    yield from _must_differ(settings, topics, "topics")
    yield from _must_differ(settings, ("text_field", "role_field", "tool_call_id_field"), "fields")
    if "DEAD_LETTER_TOPIC" not in settings.origins and not kinds.is_kafka_name(settings.dead_letter_topic):
        yield set(topics), "WORKER_DEAD_LETTER_TOPIC: must be set, as the name made from WORKER_INPUT_TOPIC is too long"
    if settings.security_protocol.startswith("SASL_"):
        oauth = settings.sasl_mechanism == "OAUTHBEARER"
        needed = _NEEDED_BY_OAUTH if oauth else ("sasl_mechanism", "sasl_username", "sasl_password")
        asks = (
            "WORKER_SASL_MECHANISM is OAUTHBEARER"
            if oauth
            else f"WORKER_SECURITY_PROTOCOL is {settings.security_protocol}"
        )
        for name in needed:
            if getattr(settings, name) is None:
                takes_part = {name, "security_protocol", "sasl_mechanism"}
                yield takes_part, f"{PREFIX}{name.upper()}: must be set, as {asks}"
    elif settings.sasl_mechanism is not None:
        why = f"has no effect, as WORKER_SECURITY_PROTOCOL is {settings.security_protocol}; set that to SASL_SSL"
        yield {"sasl_mechanism", "security_protocol"}, f"WORKER_SASL_MECHANISM={settings.sasl_mechanism!r}: {why}"
    for name, other in (("ssl_cert_file", "ssl_key_file"), ("ssl_key_file", "ssl_cert_file")):
        if getattr(settings, name) is None and getattr(settings, other) is not None:
            why = f"must be set with {PREFIX}{other.upper()} (one file may hold both)"
            yield {name, other}, f"{PREFIX}{name.upper()}: {why}"


def _must_differ(settings: Settings, names: tuple[str, ...], what: str) -> Iterator[tuple[set[str], str]]:
    seen: dict[str, str] = {}
    for name in names:
        value = getattr(settings, name)
        if value in seen:
            must = f"must differ from {PREFIX}{seen[value].upper()}: the three {what} are never the same"
            yield {name, seen[value]}, f"{PREFIX}{name.upper()}={value!r}: {must}"
        seen.setdefault(value, name)


def rows(settings: Settings) -> list[Row]:
    """Show each setting in force, secrets hidden."""
    shown = []
    for setting in SETTINGS:
        value = getattr(settings, setting.attribute)
        text = None if value is None else HIDDEN if setting.secret else setting.kind.show(value)
        shown.append(Row(setting.variable, text, settings.origins.get(setting.name, "default"), setting.default_text))
    return shown


def markdown_table() -> str:
    """Write the README's table of settings."""
    lines = ["| name | default | what it is | must be |", "|---|---|---|---|"]
    for setting in SETTINGS:
        must = ", ".join(f"`{choice}`" for choice in setting.kind.choices) or setting.kind.must
        lines.append(f"| `{setting.name}` | {setting.default_text} | {setting.help} | {must} |")
    return "\n".join(lines) + "\n"
