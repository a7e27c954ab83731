"""The pages, in the order of the navigation, under the question that a group of them asks."""

from collections.abc import Mapping

from interp.apps.dashboard.page import Page
from interp.apps.dashboard.views import (
    attention,
    attribution,
    heads,
    memories,
    overview,
    patching,
    prompt,
    runs,
    tracing,
)

PAGES: Mapping[str, tuple[Page, ...]] = {
    "Look": (overview.PAGE, prompt.PAGE, attention.PAGE, heads.PAGE, memories.PAGE, attribution.PAGE),
    "Change": (patching.PAGE, tracing.PAGE),
    "Keep": (runs.PAGE,),
}
"""Group → its pages. A page to come is a module in `views` and a name here."""


def page_of(key: str) -> Page:
    """The page of this key."""
    return next(page for page in all_pages() if page.key == key)


def all_pages() -> list[Page]:
    """Every page."""
    return [page for group in PAGES.values() for page in group]
