"""The config of a command: what a command asks of it beside its fields, with answers that most configs keep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self


class Part:
    """A config in a config, such as the settings of an evolution."""

    @property
    def without_effect(self) -> Mapping[str, str]:
        """Fields that change nothing, as the others are, with the reason; options of these names are refused."""
        return {}


class CommandConfig(Part):
    """The base of every command's config, a frozen dataclass whose fields are the options of the command.

    Its `__post_init__` raises a ValueError for what does not fit.
    """

    @classmethod
    def class_of(cls, values: Mapping[str, Any]) -> type[CommandConfig]:
        """The class of a config with the fields `values`: another one where a field decides which others there are."""
        del values
        return cls

    @property
    def may_rise(self) -> Mapping[str, list[str]]:
        """Fields that a run may go on with a larger value of, each with the settings that fall over this length."""
        return {}

    @property
    def may_change(self) -> tuple[str, ...]:
        """Fields of the evaluation, that a run may go on with another value of."""
        return ()

    @property
    def reads(self) -> str:
        """The digests of files that fields name, empty if there are none: a result with other files is another one."""
        return ""

    def in_chunks(self) -> Self:
        """The config for a cluster, with chunks of a fixed size."""
        return self

    def check_adds_to(self, before: Any) -> None:
        """Raises ValueError for a config that cannot add to a table that was begun with the config `before`."""
