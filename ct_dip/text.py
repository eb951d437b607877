"""Text of unknown length, for places that have room for a line."""


def shortened(text: object, length: int = 200) -> str:
    """Return the text with at most ``length`` characters; what was cut off is shown by an ellipsis."""
    text = str(text)
    return text if len(text) <= length else text[: length - 1] + "…"
