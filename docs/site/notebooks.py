"""Pages of the notebooks, with the outputs that they keep."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from latex2mathml.converter import convert

from docs.site.links import ROOT, repository, rewritten

FOLDER = "examples/notebooks"
ORDER = ("extortion", "learner", "game", "cheap_talk", "coin_game", "objective", "cluster")


def read(name: str) -> list[dict[str, Any]]:
    """The cells of a notebook, their sources and outputs as whole texts."""
    cells: list[dict[str, Any]] = json.loads(_text_of(name))["cells"]
    return [cell | {"source": "".join(cell["source"])} for cell in cells]


def _text_of(name: str) -> str:
    """A notebook, whose first line installs from the repository if its address is known."""
    text = (ROOT / FOLDER / f"{name}.ipynb").read_text(encoding="utf-8")
    if not repository():
        return text
    line = rf'%pip install -q \\"marl-shaping\1 @ git+{repository()}\\""'
    return re.sub(r'%pip install -q (?:\\")?\.(\[\w+\])?.*"', line, text, count=1)


def title(name: str) -> str:
    """The heading of a notebook."""
    return str(read(name)[0]["source"]).splitlines()[0].removeprefix("# ")


def pages() -> dict[str, str]:
    """A page for each notebook, and their list."""
    listed = [f"- [{title(name)}]({name}.md)" for name in ORDER]
    found = {"notebooks/index.md": "\n".join(["# Notebooks", "", "Each runs in at most two minutes.", "", *listed, ""])}
    return found | {f"notebooks/{name}.md": _page(name) for name in ORDER}


def files() -> dict[str, bytes]:
    """The notebooks themselves, and the pictures in their outputs."""
    found = {f"notebooks/{name}.ipynb": _text_of(name).encode() for name in ORDER}
    for name in ORDER:
        for i, cell in enumerate(read(name)):
            for j, output in enumerate(cell.get("outputs", ())):
                if picture := output.get("data", {}).get("image/png"):
                    found[_picture(name, i, j)] = base64.b64decode("".join(picture))
    return found


def _page(name: str) -> str:
    first, *cells = read(name)
    heading, _, about = first["source"].partition("\n")
    parts = [heading, _links(name), _text(name, about)]
    for i, cell in enumerate(cells, start=1):
        source = cell["source"].strip()
        parts.append(_text(name, source) if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for j, output in enumerate(cell.get("outputs", ())):
            parts.append(_output(name, i, j, output))
    return "\n\n".join(part for part in parts if part) + "\n"


def _text(name: str, source: str) -> str:
    """Markdown whose links are the site's, and whose formulas are MathML, which needs no script."""
    text = rewritten(source.strip(), f"{FOLDER}/{name}.ipynb", f"notebooks/{name}.md")
    text = re.sub(r"\$\$(.+?)\$\$", lambda found: convert(found[1].strip(), display="block"), text, flags=re.S)
    return re.sub(r"(?<![`\w])\$([^$`\n]+)\$", lambda found: convert(found[1]), text)


def _links(name: str) -> str:
    """Ways to run it: the file with Jupyter, and Colab if the address of the repository is known."""
    file = f'<a href="{name}.ipynb" download>{name}.ipynb</a>'
    if not repository():
        return (
            f"To run it, download {file} into the folder of the library's source code, beside `pyproject.toml`; then "
            f"`pip install . jupyterlab` and `jupyter lab {name}.ipynb`."
        )
    address = f"{repository()}/blob/main/{FOLDER}/{name}.ipynb".replace(
        "//github.com", "//colab.research.google.com/github"
    )
    return (
        f"To run it, download {file}; then `pip install jupyterlab` and `jupyter lab {name}.ipynb`. Or "
        f"[open it in Colab]({address}), with the first line below in place of its own."
    )


def _output(name: str, i: int, j: int, output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        heading = next((line for line in _titles(name, i)), f"Figure of the notebook: {title(name)}")
        return f"![{heading}]({_picture(name, i, j).removeprefix('notebooks/')})"
    text = "".join(output.get("text", data.get("text/plain", ())))
    return f"```text\n{text.rstrip()}\n```" if text.strip() else ""


def _titles(name: str, i: int) -> list[str]:
    """Titles that the figure of a cell has in its code, as its description."""
    source = read(name)[i]["source"]
    parts = source.split("title=")[1:] + source.split("plt.title(")[1:]
    titles = [part.split('"')[1] for part in parts if '"' in part]
    return [title for title in titles if "{" not in title]  # a template is no description


def _picture(name: str, i: int, j: int) -> str:
    return f"notebooks/{name}_{i}_{j}.png"
