"""Text for places that have room for a line: cut to a length, and with the right plural."""


def shortened(text: object, length: int = 200) -> str:
    """Return the text with at most ``length`` characters; what was cut off is shown by an ellipsis."""
    text = str(text)
    return text if len(text) <= length else text[: length - 1] + "…"


def counted(count: int, noun: str) -> str:
    """Return a number of things: ``1 item``, ``3 items``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
