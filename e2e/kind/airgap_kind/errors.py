"""What a person can mend."""


class Failure(Exception):
    """A step that cannot be done here: what is wrong, and the remedy."""

    def __init__(self, what: str, remedy: str = "", detail: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy
        self.detail = detail

    def __str__(self) -> str:
        lines = [self.what]
        if self.detail:
            lines.extend(f"    {line}" for line in self.detail.splitlines())
        if self.remedy:
            lines.append(f"Remedy: {self.remedy}")
        return "\n".join(lines)
