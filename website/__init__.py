"""The site of the documentation: `python -m mkdocs build --strict` (`make docs`) makes it in build/site.

mkdocs takes the pages of docs/ and calls `hooks`, which adds the reference of the API, made from the modules
as they are at run time (`reference`), and llms.txt (`llms`).
"""
