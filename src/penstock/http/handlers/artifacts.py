"""Files that travel with a result: upload, list, download."""

from typing import Annotated
from urllib.parse import quote

from fastapi import Path
from fastapi.responses import StreamingResponse

from penstock.http.handlers.settle import read_lock
from penstock.http.routing import Alone, Called, Reference, RouteTable
from penstock.rules.access import Right
from penstock.wire.artifacts import ArtifactsView, ArtifactView

artifacts = RouteTable("artifacts")
BYTES = "application/octet-stream"
Token = Annotated[str, Path(min_length=1, max_length=200, description="The lock token.")]
FileName = Annotated[str, Path(min_length=1, max_length=255, description="Of the file.")]
# Whatever the bytes are, no browser runs them as a page of ours.
HARMLESS = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "sandbox; default-src 'none'",
    "cache-control": "private, no-store",
}


@artifacts.add(
    "PUT", "/v1/artifacts/{token}/{name:path}", "Attach a file to a message in hand", ArtifactView,
    takes=BYTES, status=201, right=Right.CONSUME,
)  # fmt: skip
async def upload(call: Alone, token: Token, name: FileName) -> ArtifactView:
    """Seen when this delivery completes or fails the message; until then, and if the lease is
    lost, nobody sees it. Under the same name it takes the place of the old."""
    lock = await read_lock(call, token)
    kept = await call.broker.artifacts.attach(lock, name, call.pieces())
    return ArtifactView(kept.name, kept.size)


@artifacts.add(
    "GET", "/v1/messages/{reference:path}/artifacts", "The files of an ended message", ArtifactsView
)
async def list_artifacts(call: Called, reference: Reference) -> ArtifactsView:
    record = await call.admin.get(reference, scope=call.scope)
    found = await call.broker.artifacts.list_files(record)
    return ArtifactsView([ArtifactView(each.name, each.size) for each in found])


@artifacts.add(
    "GET", "/v1/messages/{reference:path}/artifacts/{name}", "A file, to be saved", BYTES
)
async def download(call: Called, reference: Reference, name: FileName) -> StreamingResponse:
    record = await call.admin.get(reference, scope=call.scope)
    reading = await call.broker.artifacts.open(record, name)
    headers = {
        **HARMLESS,
        "content-length": str(reading.size),
        "content-disposition": make_disposition(name),
    }
    return StreamingResponse(call.broker.artifacts.stream_pieces(reading), 200, headers, BYTES)


def make_disposition(name: str) -> str:
    """As RFC 6266 has it: a plain name for old readers, the right one for the others."""
    plain = "".join(
        each if each.isascii() and each.isprintable() and each not in '"\\%' else "_"
        for each in name
    )
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
