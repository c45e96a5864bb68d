"""Evaluation of a traced program with a rule for each of its equations, inside of loops and branches too.

Values are arrays, or what a rule makes of them. The layouts of `scan`, `while` and `cond` are those of JAX's versions
that CI tests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend import core

Rule = Callable[[Any, list[Any]], Sequence[Any]]
"""`(equation, values of its arguments) -> its results`."""
Run = Callable[[Any, Sequence[Any], Sequence[Any]], list[Any]]
"""`(jaxpr, consts, args) -> results`, as `evaluate` with a rule."""
Whole = Callable[[Any], Any]


def evaluate(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any], rule: Rule) -> list[Any]:
    """The results of a jaxpr, equation by equation."""
    environment: dict[Any, Any] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else environment[atom]

    for equation in jaxpr.eqns:
        results = rule(equation, [read(atom) for atom in equation.invars])
        environment.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def as_it_is(equation: Any, values: Sequence[Any]) -> Sequence[Any]:
    """The results of an equation of arrays."""
    result = equation.primitive.bind(*values, **equation.primitive.get_bind_params(equation.params))
    return result if equation.primitive.multiple_results else [result]


def inner_jaxprs(equation: Any) -> list[Any]:
    """The jaxprs of an equation: bodies of loops, branches, functions."""
    values = [x for one in equation.params.values() for x in (one if isinstance(one, tuple | list) else [one])]
    return [x for x in (getattr(value, "jaxpr", value) for value in values) if hasattr(x, "eqns")]


def _inlined(field: str) -> Callable[..., Sequence[Any]]:
    def run_inside(params: dict[str, Any], values: list[Any], run: Run, whole: Whole = lambda x: x) -> Sequence[Any]:
        inner = params[field]
        return run(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), values)

    return run_inside


def _scan(params: dict[str, Any], values: list[Any], run: Run, whole: Whole = lambda x: x) -> Sequence[Any]:
    body = params["jaxpr"]
    if "ft_in" in params:  # jax 0.11
        num_consts, num_carry, _ = map(len, params["ft_in"].unpack())
    else:
        num_consts, num_carry = params["num_consts"], params["num_carry"]
    consts, others = values[:num_consts], [whole(x) for x in values[num_consts:]]

    def step(carry: list[Any], x: list[Any]) -> tuple[list[Any], list[Any]]:
        results = [whole(y) for y in run(body.jaxpr, body.consts, [*consts, *carry, *x])]
        return results[:num_carry], results[num_carry:]

    settings = params["length"], params["reverse"], params["unroll"]
    carry, ys = jax.lax.scan(step, others[:num_carry], others[num_carry:], *settings)
    return [*carry, *ys]


def _while(params: dict[str, Any], values: list[Any], run: Run, whole: Whole = lambda x: x) -> Sequence[Any]:
    condition, body = params["cond_jaxpr"], params["body_jaxpr"]
    of_condition, of_body = params["cond_nconsts"], params["body_nconsts"]
    first, second = values[:of_condition], values[of_condition : of_condition + of_body]
    return jax.lax.while_loop(
        lambda carry: whole(run(condition.jaxpr, condition.consts, [*first, *carry])[0]),
        lambda carry: [whole(x) for x in run(body.jaxpr, body.consts, [*second, *carry])],
        [whole(x) for x in values[of_condition + of_body :]],
    )


def _cond(params: dict[str, Any], values: list[Any], run: Run, whole: Whole = lambda x: x) -> Sequence[Any]:
    def taken(branch: Any) -> Callable[..., list[Any]]:
        return lambda: [whole(x) for x in run(branch.jaxpr, branch.consts, values[1:])]

    return jax.lax.switch(values[0], [taken(branch) for branch in params["branches"]])


INSIDE: dict[str, Callable[..., Sequence[Any]]] = {
    "jit": _inlined("jaxpr"),
    "pjit": _inlined("jaxpr"),
    "closed_call": _inlined("call_jaxpr"),
    "checkpoint": _inlined("jaxpr"),
    "remat2": _inlined("jaxpr"),
    "custom_jvp_call": _inlined("call_jaxpr"),
    "custom_vjp_call": _inlined("call_jaxpr"),
    "scan": _scan,
    "while": _while,
    "cond": _cond,
}
"""`(params, values, run, whole) -> results`, by the name of the primitive.

What a loop carries, scans or returns, and what a branch returns, has to be arrays: `whole` makes them.
"""
