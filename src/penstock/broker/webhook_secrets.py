"""Derives and rotates the secrets that sign a tenant's webhooks."""

import hmac
from base64 import b64encode
from hashlib import sha256

import msgspec
from msgspec import Struct

from penstock.broker.audit import note_changes
from penstock.errors import Busy
from penstock.model.documents import Document
from penstock.model.message import Moment
from penstock.rules.callbacks import SigningSecrets
from penstock.store import Store

KIND = "callback_secret"
# How long a replaced secret still signs beside the new one.
ROTATION_OVERLAP_S = 24 * 3_600
PREFIX = "whsec_"
# Hexadecimal digits that identify a store.
STORE_MARK = 12


class SecretRotation(Struct, frozen=True):
    """The number and time of the last rotation. Secrets are derived, not stored."""

    number: int = 0
    at: Moment = 0


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(SecretRotation).decode


class WebhookSecrets:
    def __init__(self, store: Store) -> None:
        self.store = store

    async def secrets(self, tenant: str) -> SigningSecrets:
        turn, _ = await self._load_rotation(tenant)
        key, until = await self.store.secret(), turn.at + ROTATION_OVERLAP_S * 1_000_000
        current = derive_secret(key, tenant, turn.number)
        if turn.number and await self.store.now() < until:
            return SigningSecrets(current, derive_secret(key, tenant, turn.number - 1), until)
        return SigningSecrets(current)

    async def rotate(self, tenant: str) -> SigningSecrets:
        """Rotates the secret. The previous one stays valid for a day."""
        turn, version = await self._load_rotation(tenant)
        body = encode(SecretRotation(turn.number + 1, await self.store.now()))
        new = Document(kind=KIND, name=tenant, body=body, version=version)
        note_changes({"secret": turn.number}, {"secret": turn.number + 1})
        if not all(await self.store.save_documents([new])):
            raise Busy(
                f"the secret of tenant {tenant!r} is being rotated by another request; try again"
            )
        return await self.secrets(tenant)

    async def make_id(self, number: int) -> str:
        """Returns the webhook-id of a callback. Receivers drop ids they have seen, and the numbers
        of two stores are the same, so the id names its store."""
        mark = hmac.digest(await self.store.secret(), b"webhook-id", sha256).hex()[:STORE_MARK]
        return f"{mark}-{number}"

    async def _load_rotation(self, tenant: str) -> tuple[SecretRotation, int]:
        """Returns the last rotation and its document version."""
        found = await self.store.document(KIND, tenant)
        return (SecretRotation(), 0) if found is None else (decode(found.body), found.version or 0)


def derive_secret(key: bytes, tenant: str, number: int) -> str:
    text = f"callback {number} {tenant}".encode()
    return PREFIX + b64encode(hmac.digest(key, text, sha256)).decode()
