"""Texts for columns that cannot hold every text, and back again.

PostgreSQL has no text with a NUL, and neither it nor Parquet one with a lone surrogate, which a key may hold.
A text with one of them is written with the escapes of JSON: backslash, u and four digits, and two backslashes
for one. So is a text that holds a backslash and a u already, and no other: whoever finds these two characters
knows that the text is escaped, and no two texts are written the same.
"""

from __future__ import annotations

import re
from typing import Any

_SPECIAL = re.compile("[\0\ud800-\udfff]|\\\\u")
_ESCAPED = re.compile("[\\\\\0\ud800-\udfff]")
_ESCAPE = re.compile(r"\\(\\|u[0-9a-f]{4})")


def storable(text: str) -> str:
    """The text as a column can hold it."""
    if not _SPECIAL.search(text):
        return text
    return _ESCAPED.sub(lambda found: "\\\\" if found[0] == "\\" else f"\\u{ord(found[0]):04x}", text)


def restored(text: str) -> str:
    """The text that `storable` was given."""
    if "\\u" not in text:
        return text
    return _ESCAPE.sub(lambda found: "\\" if found[1] == "\\" else chr(int(found[1][1:], 16)), text)


def storable_in(value: Any) -> Any:
    """A value of JSON whose texts, names of fields included, are all storable."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, list):
        return [storable_in(each) for each in value]
    if isinstance(value, dict):
        return {storable(name): storable_in(each) for name, each in value.items()}
    return value
