"""``worker run`` on a cluster that guards itself: each way in works, each wrong credential is named at once.

No secret is ever repeated: every log that is looked at here is searched for the passwords, too.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from base64 import b64encode
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote_plus

import psutil
import pytest
import trustme
from confluent_kafka import KafkaException
from http_help import ask
from kafka_help import committed, create_topic, until
from secured_kafka import BOSS, PASSWORD, SecuredKafka
from token_server import CLIENT, TokenServer
from worker_process import GUARANTEES, ROOT, Line, Worker, bad, event, numbers

from worker.kafka.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from worker_process import MakeLine

# ruff: noqa: S105 - the passwords here are nobody's

pytestmark = pytest.mark.kafka

KEY_PASSWORD = "K3y-never-shown_9"
WRONG = "Wr0ng-never-shown_9"
_SECRETS = (PASSWORD, KEY_PASSWORD, WRONG)
#: Against a hang; a worker gives up on a broker that hangs up after ten seconds, and starts slowly on a busy machine.
_REFUSED_SECONDS = 60.0


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """Give a broker with logins, certificates and access rules."""
    secured = SecuredKafka(tmp_path_factory.mktemp("secured"))
    with secured.kafka:
        topic = create_topic(secured.kafka.bootstrap, "first")
        until(lambda: _groups_are_kept(secured.kafka.bootstrap, topic))
        yield secured


def _groups_are_kept(bootstrap: str, topic: str) -> bool:
    """Whether the cluster has its topic of offsets, which the first question makes."""
    try:
        return committed(bootstrap, "first", topic) == {}
    except KafkaException:
        return False


@pytest.fixture
def guarded_line(guarded: SecuredKafka, tmp_path: Path) -> Iterator[MakeLine]:
    """Give a maker of production lines that are filled and read over the plain listener."""
    lines: list[Line] = []

    def make(**options: Any) -> Line:  # noqa: ANN401 - Line's own
        lines.append(Line(guarded.kafka.bootstrap, tmp_path, **options))
        return lines[-1]

    yield make
    for line in lines:
        line.close()


def login(guarded: SecuredKafka, mechanism: str, *, encrypted: bool = True, **others: str) -> dict[str, str]:
    """The settings with which ``boss`` logs in."""
    return {
        "brokers": guarded.kafka.address("SECURE" if encrypted else "LOGIN"),
        "security_protocol": "SASL_SSL" if encrypted else "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_username": BOSS,
        "sasl_password": PASSWORD,
        **({"ssl_ca_file": guarded.ca_file} if encrypted else {}),
        **others,
    }


def tls(guarded: SecuredKafka, listener: str, **others: str) -> dict[str, str]:
    """The settings for TLS without a login."""
    address = guarded.kafka.address(listener)
    return {"brokers": address, "security_protocol": "SSL", "ssl_ca_file": guarded.ca_file, **others}


def by_token(guarded: SecuredKafka, tokens: TokenServer, *, encrypted: bool = True, **others: str) -> dict[str, str]:
    """The settings with which ``boss`` logs in by a token."""
    settings = login(guarded, "OAUTHBEARER", encrypted=encrypted)
    del settings["sasl_username"], settings["sasl_password"]
    return {
        **settings,
        "sasl_oauth_token_url": tokens.url,
        "sasl_oauth_client_id": CLIENT,
        "sasl_oauth_client_secret": PASSWORD,
        **others,
    }


def works(line: Line, **settings: str) -> Worker:
    """A message and a dead letter come of their events, the stop is clean, no secret is told."""
    line.feed([event(1), bad(2)])
    worker = line.run(**settings)
    line.settle()
    assert (len(line.outputs()), len(line.dead_letters())) == (1, 1)
    assert worker.stop() == 0
    tells_no_secret(worker.text)
    return worker


def tells_no_secret(text: str) -> None:
    """No password stands in it."""
    assert [secret for secret in _SECRETS if secret in text] == []


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_login_over_tls(guarded: SecuredKafka, guarded_line: MakeLine, mechanism: str, guarantee: str) -> None:
    """Each mechanism, over TLS with a private authority, in both guarantees."""
    works(guarded_line(), **login(guarded, mechanism), guarantee=guarantee)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_login_in_the_clear(guarded: SecuredKafka, guarded_line: MakeLine, mechanism: str) -> None:
    """Each mechanism without TLS; with PLAIN the log warns that the password travels in the clear."""
    worker = works(guarded_line(), **login(guarded, mechanism, encrypted=False))
    assert ("in the clear" in worker.text) == (mechanism == "PLAIN")


def test_password_from_a_file(guarded: SecuredKafka, guarded_line: MakeLine, tmp_path: Path) -> None:
    """The password may stand in a file, as Docker and Kubernetes give it."""
    path = tmp_path / "password"
    path.write_text(f"{PASSWORD}\n")
    settings = login(guarded, "SCRAM-SHA-512")
    del settings["sasl_password"]
    works(guarded_line(), **settings, sasl_password_file=str(path))


def test_private_authority(guarded: SecuredKafka, guarded_line: MakeLine) -> None:
    """TLS alone, the broker's certificate signed by a private authority."""
    works(guarded_line(), **tls(guarded, "TLS"))


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_client_certificate(guarded: SecuredKafka, guarded_line: MakeLine, guarantee: str) -> None:
    """The worker shows a certificate."""
    works(guarded_line(), **tls(guarded, "MUTUAL", **guarded.client_certificate()), guarantee=guarantee)


def test_locked_key(guarded: SecuredKafka, guarded_line: MakeLine, tmp_path: Path) -> None:
    """The certificate's key may be encrypted; its password, too, may stand in a file."""
    path = tmp_path / "password"
    path.write_text(KEY_PASSWORD)
    files = guarded.client_certificate(KEY_PASSWORD)
    works(guarded_line(), **tls(guarded, "MUTUAL", **files, ssl_key_password_file=str(path)))


@pytest.fixture(scope="module")
def tokens() -> Iterator[TokenServer]:
    """Give a server of tokens."""
    with TokenServer(BOSS, PASSWORD) as server:
        yield server


@pytest.mark.parametrize(("encrypted", "guarantee"), [(True, "exactly-once"), (False, "at-least-once")])
def test_token(
    guarded: SecuredKafka,
    guarded_line: MakeLine,
    tokens: TokenServer,
    guarantee: str,
    encrypted: bool,  # noqa: FBT001
) -> None:
    """OAUTHBEARER by client credentials."""
    works(guarded_line(), **by_token(guarded, tokens, encrypted=encrypted), guarantee=guarantee)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_token_that_ends(
    guarded: SecuredKafka, guarded_line: MakeLine, tokens: TokenServer, monkeypatch: pytest.MonkeyPatch, guarantee: str
) -> None:
    """A broker ends a connection with its token (KIP-368); the worker goes on with a new one, nothing twice."""
    monkeypatch.setattr(tokens, "lifetime", 3)
    line = guarded_line()
    worker = line.run(**by_token(guarded, tokens), guarantee=guarantee)
    tokens.asked.clear()
    count = 0
    while len(tokens.asked) < 3:
        line.feed([event(count)])
        line.settle()
        count += 1
    assert numbers(line.outputs()) == list(range(count))
    assert worker.stop() == 0
    tells_no_secret(worker.text)


# --- what is wrong is said -------------------------------------------------------------------------------------------


class Wrong(NamedTuple):
    """Something wrong, and what the worker says of it; ``{}`` is the address."""

    settings: Callable[[SecuredKafka], dict[str, str]]
    says: str
    code: int = 1


_NOT_LET_IN = "is not let in by {}: look at WORKER_SASL_USERNAME, WORKER_SASL_PASSWORD and WORKER_SASL_MECHANISM"
_HANGS_UP = "set WORKER_SECURITY_PROTOCOL to what this port speaks (with a login, or TLS?)"

WRONG_CREDENTIALS = {
    "password, SCRAM": Wrong(
        lambda guarded: login(guarded, "SCRAM-SHA-256", sasl_password=WRONG),
        f"{BOSS} {_NOT_LET_IN.format('SCRAM-SHA-256')}",
    ),
    "password, PLAIN": Wrong(
        lambda guarded: login(guarded, "PLAIN", encrypted=False, sasl_password=WRONG),
        f"{BOSS} {_NOT_LET_IN.format('PLAIN')}",
    ),
    "user": Wrong(
        lambda guarded: login(guarded, "SCRAM-SHA-512", sasl_username="nobody"),
        f"nobody {_NOT_LET_IN.format('SCRAM-SHA-512')}",
    ),
    "mechanism": Wrong(
        lambda guarded: login(guarded, "SCRAM-SHA-512", encrypted=False, brokers=guarded.kafka.address("SASL")),
        "the cluster does not take the mechanism SCRAM-SHA-512: set WORKER_SASL_MECHANISM to one that this port takes",
    ),
    "unknown authority": Wrong(
        lambda guarded: tls(guarded, "TLS", ssl_ca_file=_stranger(guarded)["ssl_ca_file"]),
        "the certificate of {} is signed by an authority that is not trusted: "
        "name the authority's certificate in WORKER_SSL_CA_FILE",
    ),
    "no authority": Wrong(
        lambda guarded: {**tls(guarded, "TLS"), "ssl_ca_file": ""},
        "the certificate of {} is signed by an authority that is not trusted: "
        "name the authority's certificate in WORKER_SSL_CA_FILE",
    ),
    "expired certificate": Wrong(
        lambda guarded: tls(guarded, "EXPIRED"),
        "the certificate of {} has expired: have the broker's certificate renewed (or look at this machine's clock)",
    ),
    "host name": Wrong(
        lambda guarded: tls(guarded, "ELSEWHERE"),
        "the certificate of {} is for another address: write in WORKER_BROKERS the name that the certificate holds",
    ),
    "no certificate of ours": Wrong(
        lambda guarded: tls(guarded, "MUTUAL"),
        "{} wants a certificate of us ",
    ),
    "certificate of ours by a stranger": Wrong(
        lambda guarded: {**tls(guarded, "MUTUAL"), **_stranger(guarded), "ssl_ca_file": guarded.ca_file},
        "{} does not accept our certificate ",
    ),
    "key without its password": Wrong(
        lambda guarded: tls(guarded, "MUTUAL", **guarded.client_certificate(KEY_PASSWORD)),
        "WORKER_SSL_KEY_PASSWORD: must be set, as the key in WORKER_SSL_KEY_FILE is encrypted",
        code=2,
    ),
    "key with another password": Wrong(
        lambda guarded: tls(guarded, "MUTUAL", **guarded.client_certificate(KEY_PASSWORD), ssl_key_password=WRONG),
        "WORKER_SSL_KEY_PASSWORD: is not the password of the key in WORKER_SSL_KEY_FILE",
        code=2,
    ),
    "key of another certificate": Wrong(
        lambda guarded: tls(
            guarded, "MUTUAL", **{**guarded.client_certificate(), "ssl_key_file": _stranger(guarded)["ssl_key_file"]}
        ),
        "WORKER_SSL_CERT_FILE, WORKER_SSL_KEY_FILE: not a certificate and its key (",
        code=2,
    ),
    "no certificate in the file": Wrong(
        lambda guarded: {**tls(guarded, "TLS"), "ssl_ca_file": __file__},
        "WORKER_SSL_CA_FILE: holds no certificate that can be read (",
        code=2,
    ),
    "PLAINTEXT to SSL": Wrong(
        lambda guarded: {"brokers": guarded.kafka.address("TLS")}, f"{{}} hangs up on PLAINTEXT: {_HANGS_UP}"
    ),
    "PLAINTEXT to SASL_PLAINTEXT": Wrong(
        lambda guarded: {"brokers": guarded.kafka.address("LOGIN")}, f"{{}} hangs up on PLAINTEXT: {_HANGS_UP}"
    ),
    "SASL_PLAINTEXT to SASL_SSL": Wrong(
        lambda guarded: login(guarded, "PLAIN", encrypted=False, brokers=guarded.kafka.address("SECURE")),
        f"{{}} hangs up on SASL_PLAINTEXT: {_HANGS_UP}",
    ),
    "SSL to PLAINTEXT": Wrong(lambda guarded: tls(guarded, "PLAINTEXT"), f"{{}} hangs up on SSL: {_HANGS_UP}"),
    "SASL_SSL to SASL_PLAINTEXT": Wrong(
        lambda guarded: login(guarded, "PLAIN", brokers=guarded.kafka.address("LOGIN")),
        f"{{}} hangs up on SASL_SSL: {_HANGS_UP}",
    ),
    "SSL to SASL_SSL": Wrong(lambda guarded: tls(guarded, "SECURE"), f"{{}} hangs up on SSL: {_HANGS_UP}"),
    "SASL_PLAINTEXT to PLAINTEXT": Wrong(
        lambda guarded: login(guarded, "PLAIN", encrypted=False, brokers=guarded.kafka.bootstrap),
        "the cluster wants no login here: set WORKER_SECURITY_PROTOCOL to PLAINTEXT or SSL, or use the other port",
    ),
}


def _stranger(guarded: SecuredKafka) -> dict[str, str]:
    """A certificate by an authority that nobody knows, in one file with its key; and that authority."""
    stranger = trustme.CA()
    authority, ours = guarded.folder / "stranger.pem", guarded.folder / "foreign.pem"
    stranger.cert_pem.write_to_path(str(authority))
    stranger.issue_cert("boss.example", common_name=BOSS).private_key_and_cert_chain_pem.write_to_path(str(ours))
    return {"ssl_ca_file": str(authority), "ssl_cert_file": str(ours), "ssl_key_file": str(ours)}


#: These might pass, as a proxy hangs up before its broker is there; so they take a while, side by side.
_HANG_UPS = [what for what, wrong in WRONG_CREDENTIALS.items() if wrong.says.endswith(_HANGS_UP)]


@pytest.mark.parametrize("what", [what for what in WRONG_CREDENTIALS if what not in _HANG_UPS])
def test_wrong_credentials(guarded: SecuredKafka, guarded_line: MakeLine, what: str) -> None:
    """The worker ends within 30 s, says why in one line and what to do, and no more than that."""
    _ends(what, guarded, guarded_line().start(**WRONG_CREDENTIALS[what].settings(guarded)))


def test_wrong_protocols(guarded: SecuredKafka, guarded_line: MakeLine) -> None:
    """The same where the broker only hangs up: none waits for ever for it to be another one."""
    line = guarded_line()
    workers = {what: line.start(**WRONG_CREDENTIALS[what].settings(guarded)) for what in _HANG_UPS}
    for what, worker in workers.items():
        _ends(what, guarded, worker)


def _ends(what: str, guarded: SecuredKafka, worker: Worker) -> None:
    wrong = WRONG_CREDENTIALS[what]
    assert worker.wait(_REFUSED_SECONDS) == wrong.code
    assert worker.last_words().startswith(wrong.says.replace("{}", wrong.settings(guarded).get("brokers", "")))
    assert "Traceback" not in worker.text
    tells_no_secret(worker.text)


def test_wrong_client(guarded: SecuredKafka, guarded_line: MakeLine, tokens: TokenServer) -> None:
    """A client that gets no token is told so, and by which server."""
    worker = guarded_line().start(**by_token(guarded, tokens, sasl_oauth_client_secret=WRONG))
    assert worker.wait(_REFUSED_SECONDS) == 1
    said = f"{tokens.url} gives {CLIENT} no token (401 invalid_client): look at WORKER_SASL_OAUTH"
    assert worker.last_words().startswith(said)
    tells_no_secret(worker.text)


def test_wrong_token(
    guarded: SecuredKafka, guarded_line: MakeLine, tokens: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token that the broker refuses is told from a broker that is away."""
    monkeypatch.setattr(tokens, "age", 1000)
    worker = guarded_line().start(**by_token(guarded, tokens))
    assert worker.wait(_REFUSED_SECONDS) == 1
    said = f"the cluster does not accept the token of {CLIENT}: look at WORKER_SASL_OAUTH_SCOPE"
    assert worker.last_words().startswith(said)
    assert "Traceback" not in worker.text


def test_token_server_comes_late(
    guarded: SecuredKafka, guarded_line: MakeLine, tokens: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the tokens' server is ill the worker waits, and says for what."""
    monkeypatch.setattr(tokens, "answer", (503, b""))
    line = guarded_line()
    line.feed([event(1)])
    worker = line.start(**by_token(guarded, tokens))
    said = worker.wait_for("waiting-for-broker")
    assert said["error"] == f"{tokens.url} gives no token now (503): look at that server"
    tokens.answer = None
    worker.wait_for("partitions-assigned")
    line.settle()
    assert worker.stop() == 0


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
def test_nothing_secret_is_told(
    guarded: SecuredKafka, guarded_line: MakeLine, tokens: TokenServer, mechanism: str
) -> None:
    """Not in the log at its most talkative; not by HTTP, ``config`` or the process's arguments."""
    (port,) = free_ports(1)
    settings = by_token(guarded, tokens) if mechanism == "OAUTHBEARER" else login(guarded, mechanism)
    settings |= {"log_level": "debug", "http_port": str(port), "ssl_key_password": KEY_PASSWORD}
    settings["brokers"] = f"127.0.0.1:1,{settings['brokers']}"  # where nobody is: errors, too
    line = guarded_line()
    payload = "p4yload-never-shown"
    headers = [(payload, payload.encode())]
    line.feed([(payload.encode(), value % payload.encode(), headers) for value in (b'{"text":"%s"}', b"{%s")])
    worker = line.run(**settings)
    line.settle()
    served = [ask(port, path).body for path in ("/", "/metrics", "/healthz", "/readyz")]
    arguments = " ".join(psutil.Process(worker._process.pid).cmdline())
    assert worker.stop() == 0
    shown = subprocess.run(
        [sys.executable, "-m", "worker", "config"],
        env={**os.environ, **{f"WORKER_{name.upper()}": value for name, value in settings.items()}},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert shown.count("********") == 2
    wire = b64encode(f"{quote_plus(CLIENT)}:{PASSWORD}".encode()).decode()
    for text in (worker.text, arguments, shown, *served):
        tells_no_secret(text)
        assert [secret for secret in (wire, "eyJhbGciOi", payload) if secret in text] == []


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_refusal_tells_no_secret(guarded: SecuredKafka, guarded_line: MakeLine, mechanism: str) -> None:
    """Nor when the login fails."""
    worker = guarded_line().start(**login(guarded, mechanism, sasl_password=WRONG, log_level="debug"))
    assert worker.wait(_REFUSED_SECONDS) == 1
    tells_no_secret(worker.text)


def test_a_traceback_tells_no_secret(guarded: SecuredKafka, guarded_line: MakeLine) -> None:
    """Nor when a fault of our own brings one."""
    broken = "from worker.kafka import topics; topics._prepare = None; from worker.cli import main; main(['run'])"
    worker = guarded_line().start(("-c", broken), **login(guarded, "PLAIN", log_level="debug"))
    assert worker.wait(_REFUSED_SECONDS) == 1
    assert "Traceback" in worker.said("worker-failed")[0]["exception"]
    tells_no_secret(worker.text)


# --- access rules -----------------------------------------------------------------------------------------------------

Right = tuple[str, str, str]


_ACL_BLOCKS = re.findall(r"```console\n((?:alias )?allow.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)


class Ruled(NamedTuple):
    """A production line whose worker is the user ``worker``, who may do nothing yet."""

    line: Line
    guarded: SecuredKafka
    guarantee: str

    def needs(self) -> list[Right]:
        """What the README lists as needed, under this line's names."""
        return [
            right for right in self._listed(0) if self.guarantee == "exactly-once" or right[0] != "transactional-id"
        ]

    def spares(self) -> list[Right]:
        """What the README lists as sparing assumptions and work."""
        return self._listed(1)

    def _listed(self, block: int) -> list[Right]:
        line = self.line
        names = {
            "text-events": line.input,
            "messages": line.output,
            "text-events.dead-letter": line.dead,
            "text-to-message": line.group,
            "text-to-message-text-events-": f"{line.group}-{line.input}-",
        }
        return [
            (resource, names[name], re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).upper())
            for operation, rest in re.findall(r"^allow --operation (\w+) (.*)$", _ACL_BLOCKS[block], re.MULTILINE)
            for resource, name in re.findall(r"--(topic|group|transactional-id) (\S+)", rest)
        ]

    def allow(self, *rights: Right) -> None:
        """Grant rights; whatever is for transactional ids is for those that begin so."""
        for resource, name, operation in rights:
            self.guarded.allow(resource, name, operation, prefix=resource == "transactional-id")

    def make_topics(self) -> None:
        """Make the output and the dead-letter topic as an administrator would."""
        for topic in (self.line.output, self.line.dead):
            create_topic(self.line.bootstrap, topic)

    def start(self, **others: str) -> Worker:
        """Start a worker that logs in as ``worker``."""
        settings = login(self.guarded, "SCRAM-SHA-256", encrypted=False, brokers=self.guarded.kafka.address("SASL"))
        settings |= {"sasl_username": "worker", "sasl_password": "right", "create_topics": "false", **others}
        return self.line.start(**settings, guarantee=self.guarantee)

    def done(self, messages: int = 1) -> None:
        """Wait until all is done; each message came with a dead letter."""
        self.line.settle()
        assert (len(self.line.outputs()), len(self.line.dead_letters())) == (messages, messages)


@pytest.fixture(params=GUARANTEES)
def ruled(guarded: SecuredKafka, guarded_line: MakeLine, request: pytest.FixtureRequest) -> Ruled:
    """Give a line of each guarantee, with an event for each outcome waiting."""
    line = guarded_line()
    line.feed([event(1), bad(2)])
    return Ruled(line, guarded, request.param)


def test_least_rights(ruled: Ruled) -> None:
    """What the README lists is enough where the topics are there; their configuration is then taken for the default."""
    ruled.make_topics()
    assert len(ruled.needs()) == (5 if ruled.guarantee == "exactly-once" else 4)
    ruled.allow(*ruled.needs())
    worker = ruled.start()
    ruled.done()
    hidden = {ruled.line.input, ruled.line.output, ruled.line.dead}
    assert {said["topic"] for said in worker.said("topic-config-hidden")} == hidden
    assert worker.stop() == 0


def test_rights_to_the_configuration(ruled: Ruled) -> None:
    """With DescribeConfigs on the three topics nothing is assumed."""
    ruled.make_topics()
    ruled.allow(*ruled.needs(), *(right for right in ruled.spares() if right[2] == "DESCRIBE_CONFIGS"))
    worker = ruled.start()
    ruled.done()
    assert worker.said("topic-config-hidden") == []


def test_rights_to_make_topics(ruled: Ruled) -> None:
    """With Create on the missing topics the worker makes them; without, it says which it may not make."""
    ruled.allow(*ruled.needs())
    without = ruled.start(create_topics="true")
    assert without.wait(_REFUSED_SECONDS) == 1
    assert without.last_words().startswith(f"topic '{ruled.line.output}' is missing and we may not make it: ")
    ruled.allow(*(right for right in ruled.spares() if right[2] == "CREATE"))
    ruled.start(create_topics="true")
    ruled.done()


def _missing_at_the_start(right: Right) -> str:
    resource, name, operation = right
    if resource == "topic":
        return f"topic '{name}' is not there, or we may not see it: grant {operation.title()} on it"
    if resource == "group":
        return f"the cluster does not let us use group {name} (GROUP_AUTHORIZATION_FAILED): grant Read on group {name}"
    return (
        f"the cluster does not let us use transactional id {name}0 (TRANSACTIONAL_ID_AUTHORIZATION_FAILED): "
        f"grant Write on transactional ids that begin with {name}"
    )


def test_each_right_is_needed_at_the_start(ruled: Ruled) -> None:
    """Without one of them the worker ends in one line that names it."""
    ruled.make_topics()
    needs = ruled.needs()
    ruled.allow(*needs)
    for right in needs:
        ruled.guarded.forbid(*right)
        worker = ruled.start()
        assert worker.wait(_REFUSED_SECONDS) == 1
        assert worker.last_words() == _missing_at_the_start(right)
        ruled.allow(right)


def test_each_right_is_needed_later(ruled: Ruled) -> None:
    """Taken away from a worker at work, it says what is refused; given back, it goes on and has lost nothing."""
    ruled.make_topics()
    needs = [right for right in ruled.needs() if right[0] != "group"]
    ruled.allow(*ruled.needs())
    worker = ruled.start()
    ruled.done()
    failing = "write-failed" if ruled.guarantee == "at-least-once" else "session-over"
    for count, right in enumerate(needs, 2):
        resource, name, operation = right
        ruled.guarded.forbid(*right)
        ruled.line.feed([event(1), bad(2)])
        event_said = "fetch-failed" if operation == "READ" else failing
        says = "TransactionalIdAuthorizationFailed" if resource == "transactional-id" else name
        worker.until(lambda what=event_said, says=says: any(says in said["error"] for said in worker.said(what)))
        ruled.allow(right)
        ruled.done(count)
    assert "never retrieved" not in worker.text
    assert worker.stop() == 0


def test_the_group_is_needed_later(ruled: Ruled) -> None:
    """A worker that loses its right to the group ends, and says so: nothing it did could be committed."""
    ruled.make_topics()
    ruled.allow(*ruled.needs())
    worker = ruled.start()
    ruled.done()
    ruled.guarded.forbid("group", ruled.line.group, "READ")
    assert worker.wait(_REFUSED_SECONDS) == 1
    assert ruled.line.group in worker.said("worker-failed")[0]["error"]
    assert "GroupAuthorizationFailedError" in worker.said("worker-failed")[0]["error"]
