"""Let the help of options flow: docstrings that go over several lines would be broken where they are in the source."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import docstring_parser


@contextmanager
def flowing_help() -> Iterator[None]:
    """Join the lines of options' docstrings while the command line is read.

    The parser that tyro asks leaves later lines indented, which tyro takes for a reason to keep them apart.
    """
    parse = docstring_parser.parse_from_object

    def parse_joined(documented: Any, *options: Any) -> docstring_parser.Docstring:
        parsed = parse(documented, *options)
        for each in parsed.params:
            if each.description is not None:
                each.description = "\n\n".join(" ".join(part.split()) for part in each.description.split("\n\n"))
        return parsed

    vars(docstring_parser)["parse_from_object"] = parse_joined
    try:
        yield
    finally:
        vars(docstring_parser)["parse_from_object"] = parse
