"""Groups of settings: keywords with a TypedDict as their hint."""

from typing import TypedDict

import pytest

from games.core.arguments import check_arguments


class Oven(TypedDict, total=False):
    heat: float
    fan: bool
    minutes: int | None


@check_arguments
def bake(cake: str, *, oven: Oven = {"heat": 180.0, "fan": False, "minutes": 40}):  # noqa: B006
    return cake, oven


@check_arguments
def bake_fast(cake: str, *, oven: Oven = {"fan": True, "minutes": 20}, **settings):  # noqa: B006
    return bake(cake, oven=oven, **settings)


def test_settings_that_a_call_leaves_out_have_the_defaults_of_the_function():
    assert bake("plum")[1] == {"heat": 180.0, "fan": False, "minutes": 40}
    assert bake("plum", oven={"heat": 200})[1] == {"heat": 200, "fan": False, "minutes": 40}
    assert bake_fast("plum", oven=Oven(minutes=None))[1] == {"heat": 180.0, "fan": True, "minutes": None}


def test_a_member_beside_its_group_is_refused_in_one_line():
    for function in (bake, bake_fast):
        with pytest.raises(TypeError) as error:
            function("plum", minutes=3)
        assert str(error.value) == "minutes: got 3; oven={'minutes': ...} is needed"


def test_a_change_of_a_result_leaves_the_defaults_as_they_are():
    bake("plum")[1]["heat"] = 0
    assert bake("plum")[1]["heat"] == 180.0


@pytest.mark.parametrize(
    ("oven", "message"),
    [
        (200, "oven: got 200; a dict with some of heat, fan, minutes is needed"),
        (None, "oven: got None; a dict with some of heat, fan, minutes is needed"),
        ({"heta": 1.0}, "oven: got 'heta'; did you mean heat?"),
        ({3: 1.0}, "oven: got 3; one of heat, fan, minutes is needed"),
        ({"heat": "hot"}, "heat: got 'hot'; a number is needed"),
        ({"fan": 1}, "fan: got 1; True or False is needed"),
    ],
)
def test_another_type_or_name_is_refused_in_one_line(oven, message):
    for function in (bake, bake_fast):
        with pytest.raises(TypeError) as error:
            function("plum", oven=oven)
        assert str(error.value) == message
