"""Draw `docs/images/head-atlas.png`, the picture in `docs/analyses.md`, from an atlas that `interp heads` has saved.

    interp heads --ablate-top 0 --out out && python docs/atlas_picture.py out

Needs the development extra (playwright) and a Chromium on the path.
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from interp.analyses.atlas import HeadAtlas

PICTURE = Path(__file__).parent / "images" / "head-atlas.png"


def main(folder: Path) -> None:
    """The figure, as a browser shows it."""
    figure = HeadAtlas.load(folder).figure()
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": int(figure.layout.height)})
        page.set_content(figure.to_html(include_plotlyjs=True, config={"displayModeBar": False}))
        page.wait_for_selector(".legend")
        page.locator(".plot-container").screenshot(path=PICTURE)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
