"""Routes for artifacts: upload, list, download."""

from urllib.parse import quote

from starlette.responses import StreamingResponse

from penstock.artifacts.upload import CHUNK_BYTES
from penstock.errors import BodyTooLarge
from penstock.http.context import RequestContext
from penstock.http.handlers.settle import read_lock
from penstock.http.operations import OperationTable
from penstock.rules.access import Right
from penstock.wire.consume import ArtifactsView, ArtifactView, make_artifact_view
from penstock.wire.fields import FileName, Reference, Token

artifacts = OperationTable("artifacts")
BYTES = "application/octet-stream"
# Browsers must not render user content under our origin.
HARMLESS = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "sandbox; default-src 'none'",
    "cache-control": "private, no-store",
}


@artifacts.add(
    "PUT", "/v1/artifacts/{token}/{name:path}", "Upload an artifact", ArtifactView,
    takes=BYTES, status=201, right=Right.CONSUME, scoped=False,
)  # fmt: skip
async def upload_artifact(call: RequestContext, token: Token, name: FileName) -> ArtifactView:
    """Attaches a file to a claimed message. It becomes visible when this delivery completes or
    fails the message, and is dropped if the lease is lost. An upload under the same name replaces
    the file."""
    lock = await read_lock(call, token)
    artifacts, size = call.broker.artifacts, call.content_length
    largest = artifacts.service.limits.size
    if size is not None and size > largest:
        raise BodyTooLarge(f"an artifact can have at most {largest} bytes")
    with call.service.unfinished_uploads.hold(call.caller, count_reserved(size, largest)):
        kept = await artifacts.attach(lock, name, call.pieces(), size=size or 0)
    return make_artifact_view(kept.name, kept.size)


def count_reserved(size: int | None, largest: int) -> int:
    """Returns the bytes an upload counts for. One of unknown length counts as the largest file, and
    a short one as the buffer it is read into."""
    return max(CHUNK_BYTES, largest if size is None else size)


@artifacts.add("GET", "/v1/messages/{reference:path}/artifacts", "List artifacts", ArtifactsView)
async def list_artifacts(call: RequestContext, reference: Reference) -> ArtifactsView:
    record = await call.admin.get(reference, scope=call.scope)
    found = await call.broker.artifacts.list_files(record)
    return ArtifactsView([make_artifact_view(each.name, each.size) for each in found])


@artifacts.add(
    "GET", "/v1/messages/{reference:path}/artifacts/{name}", "Download an artifact", BYTES
)
async def download_artifact(
    call: RequestContext, reference: Reference, name: FileName
) -> StreamingResponse:
    record = await call.admin.get(reference, scope=call.scope)
    reading = await call.broker.artifacts.open(record, name)
    headers = {
        **HARMLESS,
        "content-length": str(reading.size),
        "content-disposition": make_disposition(name),
    }
    return StreamingResponse(call.broker.artifacts.stream_pieces(reading), 200, headers, BYTES)


def make_disposition(name: str) -> str:
    """Builds the header of RFC 6266, with an ASCII name for clients that ignore filename*."""
    plain = "".join(
        each if each.isascii() and each.isprintable() and each not in '"\\%' else "_"
        for each in name
    )
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
