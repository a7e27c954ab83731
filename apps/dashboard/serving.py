"""What the server adds to Streamlit's own: every page is told where the server is.

Streamlit's front end otherwise guesses: opened by the link of a page, it first asks for a server below the path of that
page, which is not there, and the browser notes two errors.
"""

from typing import TYPE_CHECKING

from starlette.middleware import Middleware
from starlette.types import Message

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_HEAD = b"<head>"
_ROOT = b'<head><script>window.__streamlit={BACKEND_BASE_URL:location.origin+"/"}</script>'


class Rooted:
    """Puts the address of the server into pages of HTML; leaves everything else alone."""

    def __init__(self, app: "ASGIApp") -> None:
        self._app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Pass a request on, and mend what comes back if it is a page."""
        if scope["type"] != "http" or not _asks_for_page(scope):
            await self._app(scope, receive, send)
            return
        page: list[Message] = []

        async def mended(message: Message) -> None:
            if message["type"] == "http.response.start" and _is_page(message):
                page.append(message)
            elif not page:
                await send(message)
            else:
                page.append(message)
                if not message.get("more_body", False):
                    for each in _rooted(page):
                        await send(each)

        plain = [(name, value) for name, value in scope["headers"] if name != b"accept-encoding"]
        await self._app({**scope, "headers": plain}, receive, mended)


def _asks_for_page(scope: "Scope") -> bool:
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])


def _is_page(start: Message) -> bool:
    return any(name.lower() == b"content-type" and value.startswith(b"text/html") for name, value in start["headers"])


def _rooted(page: list[Message]) -> list[Message]:
    """The response with the address in its head."""
    start, *parts = page
    body = b"".join(part.get("body", b"") for part in parts).replace(_HEAD, _ROOT, 1)
    headers = [(name, value) for name, value in start["headers"] if name.lower() not in (b"content-length", b"etag")]
    length = (b"content-length", str(len(body)).encode())
    return [{**start, "headers": [*headers, length]}, {"type": "http.response.body", "body": body}]


ROOTED = Middleware(Rooted)
