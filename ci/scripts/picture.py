"""Draws what a command prints as SVG: `COMMAND | PYTHON ci/scripts/picture.py COMMAND > reports/run.svg`.

PYTHON is the oracles' environment, `target/mlx/venv/bin/python`; rich comes with it.
"""

import io
import sys

from rich.console import Console
from rich.text import Text

STYLES = [("held", "green"), ("bit-exact", "green"), ("FAIL", "bold red"), ("differ", "yellow"),
          ("not run", "yellow"), ("mlx-parity", "bold")]


def main():
    text = f"$ {sys.argv[1]}\n{sys.stdin.read()}".rstrip("\n")
    width = max(len(line) for line in text.splitlines()) + 1
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
    picture = Text(text)
    for words, style in STYLES:
        picture.highlight_words([words], style)
    console.print(picture, soft_wrap=True)
    # The stylesheet names a font host; a picture in a repository fetches nothing.
    lines = console.export_svg(title=sys.argv[1]).splitlines()
    keep, skipping = [], False
    for line in lines:
        skipping = skipping or "@font-face" in line
        if not skipping:
            keep.append(line)
        if skipping and line.strip() == "}":
            skipping = False
    keep.insert(1, f"    <!-- {sys.argv[1]} | ci/scripts/picture.py; do not edit -->")
    print("\n".join(keep))


if __name__ == "__main__":
    main()
