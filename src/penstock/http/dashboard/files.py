"""The built files of the dashboard, with their types, versions and compressed forms."""

import gzip
from functools import cached_property, lru_cache
from hashlib import sha256
from importlib.resources import files
from pathlib import PurePosixPath

from penstock.errors import NotFound

MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
}
FOLDER = "dashboard"
MIN_COMPRESSED_BYTES = 1_000
MISSING = (
    "the dashboard's files are missing from this installation of penstock; reinstall the package,"
    " or run ./dev web in a checkout"
)


class WebFile:
    """One file, read once."""

    def __init__(self, name: str, content: bytes) -> None:
        self.content = content
        self.media_type = MEDIA_TYPES.get(PurePosixPath(name).suffix, "application/octet-stream")
        self.etag = f'"{sha256(content).hexdigest()[:20]}"'

    @cached_property
    def compressed(self) -> bytes | None:
        """The content with gzip, or None if that does not pay."""
        if len(self.content) < MIN_COMPRESSED_BYTES:
            return None
        packed = gzip.compress(self.content, 9, mtime=0)
        return packed if len(packed) < len(self.content) else None


@lru_cache(256)
def read_web_file(name: str) -> WebFile:
    """Reads a file below `penstock/dashboard`. Names come from requests."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        raise NotFound("no such file")
    place = files("penstock").joinpath(FOLDER)
    for part in path.parts:
        place = place.joinpath(part)
    try:
        return WebFile(name, place.read_bytes())
    except (OSError, ValueError):
        if name == "index.html":
            raise NotFound(MISSING) from None
        raise NotFound("no such file") from None
