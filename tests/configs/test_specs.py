"""Specs against the type hints of what they name."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypedDict

import pytest

from configs import one_of
from configs.specs import Range, Registry, change


def cake(
    guest: str,
    *,
    layers: int = 2,
    sugar: float = 0.5,
    salt: Any = 0.1,
    vegan: bool = False,
    icing: str = "",
    form: Literal["round", "square"] = "round",
    heights: Sequence[int] = (),
    slices: tuple[float, ...] = (),
    candles: int | None = None,
    butter: float | Sequence[float] = 1.0,
    bake: Callable[[float], float] | None = None,
    guessed=(1, 2),
    anything=None,
    oven: str = "",
) -> dict[str, Any]:
    if layers < 1:
        raise ValueError(f"layers: got {layers}; a whole number of at least 1 is needed\nand so on")
    return {name: value for name, value in locals().items() if name != "bake"}


def registry(**options):
    found: Registry[dict[str, Any]] = Registry("cake", given=("oven",), **options)
    found.register("cake", cake)
    found.register("tall-cake", cake, layers=9)
    return found


FITS = {
    "layers": (3, 1),
    "sugar": (1, 0.25),
    "salt": (2, 1e-3),
    "vegan": (True, False),
    "icing": ("", "lemon"),
    "form": ("round", "square"),
    "heights": ([], [1, 2], (3,)),
    "slices": ([0.5, 1], ()),
    "candles": (None, 3),
    "butter": (0.5, [0.5, 1]),
    "guessed": ([1, "x"], ()),
    "anything": (None, 1, "x", [{}]),
}
REFUSED = {
    "layers": ((True, 2.0, "2", None), "a whole number is needed"),
    "sugar": ((True, "1", None, 1e999, [1, 2]), "a number is needed"),
    "salt": ((False, "1"), "a number is needed"),
    "vegan": ((1, "True"), "True or False is needed"),
    "icing": ((1, None), "text in quotes is needed"),
    "form": (("oval", None, []), "one of round, square is needed"),
    "heights": ((1, [1.5], [True], "12"), "a list of whole numbers is needed"),
    "slices": ((0.5, ["a"]), "a list of numbers is needed"),
    "candles": ((1.5, "3"), "a whole number or None is needed"),
    "butter": (("all", ["a"], None), "a number or a list of numbers is needed"),
    "guessed": ((1, "x"), "a list of values is needed"),
}


@pytest.mark.parametrize("setting", FITS)
def test_values_that_a_type_hint_allows_are_taken(setting):
    for value in FITS[setting]:
        assert registry().make("party", f"cake({setting}={value!r})", "Ada")[setting] == value


@pytest.mark.parametrize("setting", REFUSED)
def test_values_that_a_type_hint_excludes_are_refused(setting):
    values, needed = REFUSED[setting]
    for value in values:
        text = "1e999" if value == 1e999 else repr(value)
        with pytest.raises(ValueError, match=r"^party: ") as error:
            registry().make("party", f"cake({setting}={text})", "Ada")
        assert str(error.value) == f"party: cake: {setting}: got {value!r}; {needed}"


def test_defaults_and_what_is_given_or_fixed_are_the_factorys_own():
    assert [*registry().settings("cake")] == [*FITS]  # no function, and nothing that the caller gives
    made = registry().make("party", "tall-cake(sugar=0)", "Ada", oven="hot", fridge="cold")
    assert (made["guest"], made["layers"], made["sugar"], made["oven"]) == ("Ada", 9, 0, "hot")
    with pytest.raises(ValueError, match=r"^party: tall-cake has no setting 'layers'; it takes sugar, salt"):
        registry().make("party", "tall-cake(layers=3)", "Ada")


class Oven(TypedDict, total=False):
    heat: float
    fan: bool
    shelf: int


def roast(*, oven: Oven = {"heat": 180.0, "fan": False}, salt: float = 0.1):  # noqa: B006
    return oven, salt


def test_the_settings_of_a_group_stand_beside_the_others():
    found: Registry[Any] = Registry("roast")
    found.register("roast", roast)
    assert {name: setting.default for name, setting in found.settings("roast").items()} == {
        "heat": 180.0, "fan": False, "salt": 0.1
    }  # fmt: skip
    assert found.make("dinner", "roast(fan=True, salt=0)") == ({"fan": True}, 0)
    assert found.make("dinner", "roast") == ({"heat": 180.0, "fan": False}, 0.1)
    for spec, words in {
        "roast(oven={})": "dinner: roast has no setting 'oven'; it takes heat, fan, salt",
        "roast(shelf=2)": "dinner: roast has no setting 'shelf'; it takes heat, fan, salt",
        "roast(heat='hot')": "dinner: roast: heat: got 'hot'; a number is needed",
    }.items():
        with pytest.raises(ValueError, match=f"^{re.escape(words)}$"):
            found.make("dinner", spec)


def test_a_range_stands_for_a_number_where_it_may():
    name, settings = registry(ranges=True).read("party", "cake(sugar=[0, 1], butter=[0, 1], heights=[1, 2])")
    assert (name, settings["sugar"]) == ("cake", Range(0.0, 1.0))
    assert settings["heights"] == [1, 2]
    for bad in ("[1, 0]", "[1, 1]", "[1]", "[True, 2]"):
        with pytest.raises(ValueError, match=r"sugar: got \[.*; a number, or \[lowest, highest\] of a range is needed"):
            registry(ranges=True).read("party", f"cake(sugar={bad})")


def test_a_refusal_of_the_factory_is_one_line():
    with pytest.raises(ValueError, match=r"^party: cake: layers: got 0; a whole number of at least 1 is needed$"):
        registry().make("party", "cake(layers=0)", "Ada")


def test_a_spec_with_other_settings():
    assert change("cake(layers=2, vegan=True)", layers=3, icing="x") == "cake(layers=3, vegan=True, icing='x')"


def test_of_many_names_the_nearest_or_the_first_are_shown():
    names = [f"a{number}" for number in range(100)]
    assert one_of("a99", names).startswith("did you mean a99")
    assert one_of("xyz", names) == f"one of {', '.join(names[:40])}, ... (100 names) is needed"
    assert one_of("xyz", names[:40]) == f"one of {', '.join(names[:40])} is needed"
