"""Draw `docs/images/demo-report.png`, the picture in the README, from a report that `interp demo` has written.

    python docs/demo_picture.py [interp-demo/report.html]

Needs the development extra (playwright) and a Chromium on the path.
"""

import base64
import shutil
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

PICTURE = Path(__file__).parent / "images" / "demo-report.png"
WIDTH, HEIGHT, GAP, SCALE = 1040, 1300, 36, 0.6


def crop(page: Page, report: Path, top: str) -> str:
    """The part of the report that begins at the element `top`, as the address of an image."""
    page.goto(report.resolve().as_uri())
    page.wait_for_function("document.documentElement.dataset.drawn")
    start = page.locator(top).first.bounding_box()
    assert start is not None
    clip = {"x": 0, "y": max(start["y"] - 24, 0), "width": WIDTH, "height": HEIGHT}
    image = page.screenshot(full_page=True, clip=clip)  # type: ignore[arg-type]
    return f"data:image/png;base64,{base64.b64encode(image).decode()}"


def main(report: Path) -> None:
    """Two crops side by side: the head of the page, and the lens."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        crops = [crop(page, report, top) for top in ("header", "#tower figure")]
        width, height = 2 * WIDTH + 3 * GAP, HEIGHT + 2 * GAP
        size = {"width": round(width * SCALE), "height": round(height * SCALE)}
        sheet = browser.new_page(viewport=size)  # type: ignore[arg-type]
        look = f"width:{WIDTH}px;border-radius:18px;box-shadow:0 8px 30px #1712"
        images = "".join(f'<img src="{source}" style="{look}">' for source in crops)
        body = f"margin:0;zoom:{SCALE};background:#dfe1ee;display:flex;gap:{GAP}px;padding:{GAP}px"
        sheet.set_content(f'<body style="{body}">{images}</body>')
        PICTURE.parent.mkdir(exist_ok=True)
        sheet.screenshot(path=PICTURE)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "interp-demo/report.html"))
