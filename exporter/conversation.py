"""HTTP on one connection: what is asked, whether it may be, what is answered, within bounded sizes and times.

HTTP itself is h11's.
"""

import asyncio
import logging
from http import HTTPStatus

import h11

from exporter.channel import PIECE_BYTES, Channel
from exporter.exchange import Guard, Handler, Request, Response

MAX_HEAD_BYTES = 16 * 1024
MAX_BODY_BYTES = 64 * 1024


class Conversation:
    """What is said on `channel`: `guard` is asked first, then `handle`; a client may be silent for `idle_seconds`.

    Raises `TimeoutError` and `OSError` when the client is too slow or gone, and h11's errors when it is no client.
    """

    def __init__(self, channel: Channel, handle: Handler, guard: Guard | None, idle_seconds: float) -> None:
        self._channel, self._handle, self._guard = channel, handle, guard
        self._idle_seconds = idle_seconds
        self._connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)

    async def hold(self) -> None:
        """Answer one request after another until either side has enough."""
        connection = self._connection
        while True:
            try:
                async with asyncio.timeout(self._idle_seconds):
                    request = await self._next_request()
            except h11.RemoteProtocolError as error:
                refusal = Response.text(error.error_status_hint, "bad request")
                await self._send(refusal, head_only=False)
                return
            if request is None:
                return
            answer = await self._refusal(request) or self._answer(request)
            await self._send(answer, head_only=request.method == "HEAD")
            if connection.our_state is h11.MUST_CLOSE:
                return
            connection.start_next_cycle()

    async def _refusal(self, request: Request) -> Response | None:
        if self._guard is None:
            return None
        async with asyncio.timeout(self._idle_seconds):
            return await self._guard.refuse(request, certified=self._channel.certified)

    def _answer(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            refusal = Response.text(405, "only GET and HEAD are served here")
            return Response(405, refusal.content_type, refusal.body, {"Allow": "GET, HEAD"})
        try:
            return self._handle(request)
        except Exception:  # a page that fails must not take the connection or the server with it
            logging.getLogger(__name__).exception("the page %s could not be made", request.path)
            return Response.text(500, "this page could not be made; see the log")

    async def _send(self, response: Response, *, head_only: bool) -> None:
        headers = {
            "Content-Type": response.content_type,
            "Content-Length": str(len(response.body)),
            "X-Content-Type-Options": "nosniff",
            **response.headers,
        }
        reason = HTTPStatus(response.status).phrase.encode()
        head = h11.Response(status_code=response.status, headers=list(headers.items()), reason=reason)
        begin = self._connection.send(head) or b""
        body = memoryview(b"" if head_only else response.body)
        if body:
            self._connection.send(h11.Data(data=response.body))
        self._connection.send(h11.EndOfMessage())
        async with asyncio.timeout(self._idle_seconds):
            # Beyond its beginning a page is not copied: it is one for all who read it.
            await self._channel.write(begin + body[:PIECE_BYTES])
            await self._channel.write(body[PIECE_BYTES:])

    async def _next_request(self) -> Request | None:
        """The next whole request, its body read and dropped; `None` when the client is gone."""
        request: Request | None = None
        dropped = 0
        while True:
            event = self._connection.next_event()
            if event is h11.NEED_DATA:
                self._connection.receive_data(await self._channel.read())
            elif isinstance(event, h11.Request):
                path, _, query = event.target.decode("ascii", "replace").partition("?")
                headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
                request = Request(event.method.decode("ascii"), path or "/", query, headers)
            elif isinstance(event, h11.Data):
                dropped += len(event.data)
                if dropped > MAX_BODY_BYTES:
                    raise h11.RemoteProtocolError("body too large", error_status_hint=413)
            elif isinstance(event, h11.EndOfMessage):
                return request
            else:
                return None
