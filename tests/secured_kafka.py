"""A throw-away Kafka that lets nobody do anything: listeners with a login and with TLS, and access rules.

Listeners: ``SASL`` (SCRAM-SHA-256, user ``worker``, password ``right``), ``TLS`` (a good certificate), ``EXPIRED`` and
``ELSEWHERE`` (one for another host), ``MUTUAL`` (asks for ours). Whoever comes over the plain one may do all.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import trustme
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from worker.kafka.ports import HOST
from worker.kafka.throwaway import ThrowawayKafka

if TYPE_CHECKING:
    from pathlib import Path

# ruff: noqa: S106 - the passwords here are nobody's

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
        }
        properties = {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "listener.name.sasl.sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "listener.name.sasl.scram-sha-256.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "listener.name.mutual.ssl.client.auth": "required",
        }
        for name, certificate in certificates.items():
            prefix = f"listener.name.{name.lower()}.ssl"
            properties[f"{prefix}.keystore.type"] = "PEM"
            properties[f"{prefix}.keystore.location"] = str(self._key_store(name, certificate))
            properties[f"{prefix}.truststore.type"] = "PEM"
            properties[f"{prefix}.truststore.location"] = self.ca_file
        self.kafka = ThrowawayKafka(
            properties=properties,
            listeners={"SASL": "SASL_PLAINTEXT", **dict.fromkeys(certificates, "SSL")},
            format_options=["--add-scram", "SCRAM-SHA-256=[name=worker,password=right]"],
        )

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
