"""Open a report in headless Chromium: `python scripts/report_in_browser.py report.html out`.

Checks that its script draws every timeline without an error, and writes out-light.png, out-dark.png and
out.pdf (the page printed) to look at. Needs `chromium` on the path (Debian: apt-get install chromium).
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DEADLINE_S = 120
CHECK = """<script>
window.addEventListener("error", event => { document.body.dataset.error = event.message; });
</script>"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("page", type=Path)
    parser.add_argument("out", help="what the names of the pictures begin with")
    parser.add_argument("--height", type=int, default=3600, help="of the pictures")
    args = parser.parse_args()
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        parser.error("there is no chromium on the path")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        text = args.page.read_text(encoding="utf-8")
        page.write_text(text.replace("<body>", f"<body>{CHECK}", 1), encoding="utf-8")
        common = [
            *(browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *(f"--user-data-dir={folder}/profile", f"--window-size=1200,{args.height}"),
            "--virtual-time-budget=3000",
        ]
        dom = run([*common, "--dump-dom", page.as_uri()]).stdout
        for scheme, number in (("light", 1), ("dark", 0)):
            shade = f"--blink-settings=preferredColorScheme={number}"
            run([*common, shade, f"--screenshot={args.out}-{scheme}.png", page.as_uri()])
        run([*common, f"--print-to-pdf={args.out}.pdf", "--no-pdf-header-footer", page.as_uri()])
    failed = re.search(r'<body[^>]* data-error="([^"]*)"', dom)
    wanted, drawn = dom.count('data-source="'), dom.count('data-drawn="true"')
    print(f"{drawn} of {wanted} timelines drawn{f'; error: {failed[1]}' if failed else ''}")
    return 0 if drawn == wanted and not failed else 1


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True)


if __name__ == "__main__":
    sys.exit(main())
