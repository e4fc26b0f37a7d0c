"""MkDocs hooks of this project's site: ``mkdocs build --strict`` at the top of the repository.

A page that the navigation lists and that is not written yet is left out of the site instead of
failing the build; a page that is written and not listed fails it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Drop the entries of the navigation whose page does not exist."""
    config.nav = _written(config.nav, Path(config.docs_dir))
    return config


def _written(entries: list[Any], folder: Path) -> list[Any]:
    kept = []
    for entry in entries:
        if isinstance(entry, str):
            kept += [entry] if (folder / entry).is_file() else []
            continue
        for title, pages in entry.items():
            if isinstance(pages, str):
                kept += [entry] if (folder / pages).is_file() else []
            elif below := _written(pages, folder):
                kept.append({title: below})
    return kept
