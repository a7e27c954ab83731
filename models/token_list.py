"""The pieces of a text as a list that notebooks can show."""

import html

_STYLE = "display:inline-block;border:1px solid #8888;border-radius:3px;padding:0 .3em;margin:1px;white-space:pre"


class TokenList(list[str]):
    """One string per token, in order; a plain list that also draws itself, with the spaces visible."""

    def _repr_html_(self) -> str:
        return "".join(
            f'<span title="position {position}" style="{_STYLE}">{html.escape(_visible(piece))}</span>'
            for position, piece in enumerate(self)
        )


def _visible(piece: str) -> str:
    return piece.replace(" ", "·").replace("\n", "↵").replace("\t", "⇥") or "∅"
