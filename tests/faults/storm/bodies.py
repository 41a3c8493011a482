"""Bodies that tell their label, and whether they came back as they went."""

from hashlib import sha256

import msgspec

# What a task without arguments is stored as.
NO_ARGUMENTS = b"{}"
encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(dict[str, str]).decode


def filling(label: str) -> str:
    """Most are short, one of 64 is longer than a page of the database."""
    digest = sha256(label.encode()).hexdigest()
    return digest * (300 if digest.startswith(("00", "01", "02", "03")) else 1)


def body_of(label: str) -> bytes:
    """As a task would store it that takes `label` and `filling`."""
    return encode({"label": label, "filling": filling(label)})


def read(body: bytes) -> tuple[str, bool]:
    """The label, and whether the body is the one that belongs to it."""
    if body == NO_ARGUMENTS:
        return "tick", True
    try:
        label = decode(body)["label"]
    except (msgspec.DecodeError, KeyError):
        return repr(body[:40]), False
    return label, body == body_of(label)
