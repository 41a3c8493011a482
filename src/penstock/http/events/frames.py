"""Frames of server-sent events, as bytes."""

KEEPALIVE = b": ping\n\n"
SERVER_STOPS = b": the server stops\n\n"


def make_frame(event: str, data: str, id: str | None, retry: int | None = None) -> bytes:
    """Encodes one event. `data` is JSON, which has no line breaks; `retry` is in milliseconds."""
    lines = [f"event: {event}", f"data: {data}"]
    if id is not None:
        lines.append(f"id: {id}")
    if retry is not None:
        lines.append(f"retry: {retry}")
    return "\n".join([*lines, "", ""]).encode()
