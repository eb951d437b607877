"""YAML that means what it says: no aliases, which multiply, and no key twice, of which one would be lost."""

from typing import Any

import yaml

from ct_dip.errors import InputError
from ct_dip.text import shortened

_LONGEST = 2**20  # characters; a configuration has some hundred


def read_yaml(text: str) -> Any:
    """The value of a YAML text.

    Raises:
        InputError: it is not YAML, or has an alias, an anchor, or a key twice.
    """
    if len(text) > _LONGEST:
        raise InputError(f"it has {len(text):,} characters, expected at most {_LONGEST:,}")
    try:
        return yaml.load(text, _PlainLoader)
    except RecursionError as error:
        raise InputError("it is nested too deeply; write sections with keys") from error
    except (yaml.YAMLError, ValueError) as error:  # a ValueError of numbers and dates that cannot be
        raise InputError(f"it is not YAML: {shortened(' '.join(str(error).split()))}") from error


class _PlainLoader(yaml.SafeLoader):
    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise InputError(
                f"line {event.start_mark.line + 1} has an anchor or alias; write the value itself"
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [self.construct_object(key, deep=True) for key, _ in getattr(node, "value", ())]
        for number, key in enumerate(keys):
            if key in keys[:number]:
                line = node.value[number][0].start_mark.line + 1
                raise InputError(
                    f"key {shortened(repr(key))} is given twice, the second time in line {line}; keep one"
                )
        return super().construct_mapping(node, deep)
