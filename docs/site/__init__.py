"""The site: `python -m docs.site` writes its Markdown into build/docs, builds build/site, and checks every page.

Each module here with `pages()` adds one kind of page: a dict from a path below the site, such as `api/learn.md`, to
Markdown, whose links are relative to that path. `__main__` lists these modules, and `mkdocs.yml` the pages.
"""
