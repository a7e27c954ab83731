"""What a browser would load to show a page."""

from html.parser import HTMLParser


class Loads(HTMLParser):
    """Collects every attribute by which HTML makes a browser load something."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        loading = ("src", "srcset", "data", "poster", "action") + (("href",) if tag == "link" else ())
        self.found += [value or "" for name, value in attrs if name in loading]
