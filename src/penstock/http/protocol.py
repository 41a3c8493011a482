"""Requests whose head does not end are cut off: the parser would keep it, however long."""

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_BYTES = 65_536
MOST_HEADERS = 200
TOO_LONG = "The head of the request is too long."


class Protocol(HttpToolsProtocol):
    # Bytes of the head that is being read.
    head = 0
    in_head = True

    def data_received(self, data: bytes) -> None:
        self.head += len(data)
        super().data_received(data)
        if self.in_head and self.head > MOST_BYTES and not self.transport.is_closing():
            self.send_400_response(TOO_LONG)

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if len(self.headers) > MOST_HEADERS:
            raise ValueError(TOO_LONG)

    def on_headers_complete(self) -> None:
        self.in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self.in_head, self.head = True, 0
        super().on_message_complete()
