"""A receiver of messages that keeps them, see `observations.facts.Messages`."""

from __future__ import annotations

import attrs


@attrs.frozen
class KeptMessages:
    """Keeps the level and the text of each message, in their order."""

    lines: list[tuple[str, str]] = attrs.field(factory=list)

    def of(self, level: str) -> list[str]:
        """Return the messages of one level."""
        return [text for found, text in self.lines if found == level]

    def debug(self, sentence: str) -> None:
        """Keep a detail."""
        self.lines.append(("debug", sentence))

    def info(self, sentence: str) -> None:
        """Keep progress."""
        self.lines.append(("info", sentence))

    def warning(self, sentence: str) -> None:
        """Keep a warning."""
        self.lines.append(("warning", sentence))

    def error(self, text: str) -> None:
        """Keep a failure."""
        self.lines.append(("error", text))
