"""A throw-away Kafka that lets nobody do anything: listeners with a login and with TLS, and access rules.

Listeners: ``SASL`` (SCRAM-SHA-256 only, user ``worker``, password ``right``), ``TLS`` (a good certificate), ``EXPIRED``
and ``ELSEWHERE`` (one for another host), ``MUTUAL`` (asks for ours), ``LOGIN`` and ``SECURE`` (all mechanisms, without
and with TLS). The user ``boss`` may do all, and so may whoever comes over the plain listener or over TLS alone.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import trustme
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from worker.kafka.ports import HOST
from worker.kafka.throwaway import ThrowawayKafka

if TYPE_CHECKING:
    from pathlib import Path

BOSS, PASSWORD = "boss", "S3cret-never-shown_9"
_MECHANISMS = {
    "PLAIN": f'plain.PlainLoginModule required user_{BOSS}="{PASSWORD}";',
    "SCRAM-SHA-256": "scram.ScramLoginModule required;",
    "SCRAM-SHA-512": "scram.ScramLoginModule required;",
    # Takes any token that names its user and its end, signed by nobody.
    "OAUTHBEARER": 'oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";',
}
_USERS = {"worker": "right", BOSS: PASSWORD}

RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.BROKER,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}


class SecuredKafka:
    """The broker, and the authority that signed its certificates."""

    def __init__(self, folder: Path) -> None:
        """Make the certificates; start it with ``with``."""
        self.folder = folder
        self.authority = trustme.CA()
        self.ca_file = str(folder / "ca.pem")
        self.authority.cert_pem.write_to_path(self.ca_file)
        long_ago = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
        good = self.authority.issue_cert(HOST)
        certificates = {
            "TLS": good,
            "MUTUAL": good,
            "EXPIRED": self.authority.issue_cert(HOST, not_before=long_ago, not_after=long_ago + dt.timedelta(days=1)),
            "ELSEWHERE": self.authority.issue_cert("elsewhere.example"),
            "SECURE": good,
        }
        properties = {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:ANONYMOUS;User:{BOSS}",
            **_logins("sasl", "SCRAM-SHA-256"),
            **_logins("login", *_MECHANISMS),
            **_logins("secure", *_MECHANISMS),
            "connections.max.reauth.ms": "3600000",  # a connection ends with its token, if it has one
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^.*CN=([^,]*).*$/$1/",
        }
        for name, certificate in certificates.items():
            prefix = f"listener.name.{name.lower()}.ssl"
            properties[f"{prefix}.keystore.type"] = "PEM"
            properties[f"{prefix}.keystore.location"] = str(self._key_store(name, certificate))
            properties[f"{prefix}.truststore.type"] = "PEM"
            properties[f"{prefix}.truststore.location"] = self.ca_file
        self.kafka = ThrowawayKafka(
            properties=properties,
            listeners={
                **dict.fromkeys(certificates, "SSL"),
                "SASL": "SASL_PLAINTEXT",
                "LOGIN": "SASL_PLAINTEXT",
                "SECURE": "SASL_SSL",
            },
            format_options=[
                option
                for name, password in _USERS.items()
                for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
                for option in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
            ],
        )

    def client_certificate(self, password: str | None = None) -> dict[str, str]:
        """Make a certificate of ``boss`` and its key, encrypted if there is a password; gives the settings for them."""
        made = self.authority.issue_cert("boss.example", common_name=BOSS)
        key = load_pem_private_key(made.private_key_pem.bytes(), None)
        how = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
        stem = f"{BOSS}-{'open' if password is None else 'locked'}"
        certificate, private = self.folder / f"{stem}.pem", self.folder / f"{stem}.key"
        certificate.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how))
        return {"ssl_cert_file": str(certificate), "ssl_key_file": str(private)}

    def _key_store(self, name: str, certificate: trustme.LeafCert) -> Path:
        """Kafka reads a private key in PKCS #8 only."""
        key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path = self.folder / f"{name}.pem"
        path.write_bytes(pem + b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
        return path

    def allow(self, resource: str, name: str, operation: str, *, prefix: bool = False) -> None:
        """Let the user ``worker`` do one thing."""
        binding = AclBinding(
            RESOURCES[resource],
            name,
            ResourcePatternType.PREFIXED if prefix else ResourcePatternType.LITERAL,
            "User:worker",
            "*",
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap})
        for done in admin.create_acls([binding]).values():
            done.result(30)

    def forbid(self, resource: str, name: str, operation: str) -> None:
        """Take back what ``allow`` gave."""
        chosen = AclBindingFilter(
            RESOURCES[resource],
            name,
            ResourcePatternType.ANY,
            "User:worker",
            None,  # type: ignore[arg-type] # from whichever host
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap})
        for done in admin.delete_acls([chosen]).values():
            done.result(30)


def _logins(listener: str, *mechanisms: str) -> dict[str, str]:
    package = "org.apache.kafka.common.security"
    return {
        f"listener.name.{listener}.sasl.enabled.mechanisms": ",".join(mechanisms),
        **{
            f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config": f"{package}.{_MECHANISMS[mechanism]}"
            for mechanism in mechanisms
        },
    }
