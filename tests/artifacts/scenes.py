"""What tests of artifacts begin with."""

from penstock.artifacts.rules import DeliveryPrefix
from penstock.artifacts.storage import ArtifactStorage
from penstock.artifacts.upload import Content, Upload

SHELF = DeliveryPrefix("default", 7, 3)


def keep(
    place: ArtifactStorage,
    shelf: DeliveryPrefix = SHELF,
    name: str = "a.txt",
    content: Content = b"a",
) -> None:
    upload = Upload(name, place.begin(), 2**40)
    upload.fill(content)
    place.keep(upload.path, shelf, name)
    upload.discard()


def read(
    place: ArtifactStorage, shelf: DeliveryPrefix = SHELF, name: str = "a.txt"
) -> bytes | None:
    reading = place.open(shelf, name)
    if reading is None:
        return None
    found = b"".join(reading.pieces)
    reading.close()
    assert len(found) == reading.size
    return found
