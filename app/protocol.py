"""HTTP as uvicorn speaks it, for ids as long as the protocol lets them be."""

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: Two ids of 64 KiB, every byte of them percent-encoded, and the rest (server.md §4). A longer URL is no HTTP request.
MAX_URL_BYTES = 2 * 3 * 64 * 1024 + 4096
#: What the parser of URLs counts to.
PARSED_BYTES = 2**16 - 1


class LongUrls(HttpToolsProtocol):
    """The parser of URLs takes 64 KiB: of a longer one it gets the path alone."""

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > MAX_URL_BYTES:
            raise ValueError("the URL is too long")

    def on_headers_complete(self) -> None:
        if len(self.url) <= PARSED_BYTES:
            super().on_headers_complete()
            return
        self.url, _, query = self.url.partition(b"?")
        super().on_headers_complete()
        self.scope["query_string"] = query.partition(b"#")[0]
