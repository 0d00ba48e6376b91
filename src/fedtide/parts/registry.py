"""Names to objects: our own parts, a user's file, or an installed package, all through one door.

A name is looked up as (1) one of ours, (2) `path/to/file.py:attribute`, (3) `package.module:attribute`, (4) an entry
point of the group `fedtide.<kind>` (say `fedtide.scheduler`) that an installed package offers. A class is called with the
arguments given in the experiment; a plain function gets them as keywords with every call. What a part remembers is its
memory, which it is handed and returns; it keeps no other state: a resumed run makes it anew (`fedtide.testing`).

What a user's part raises comes out as one line that names the part and the line of the user's file.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import os
import typing
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, TypeAlias

from fedtide.core.files import is_own_file
from fedtide.core.yaml12 import shown
from fedtide.errors import FedtideError, did_you_mean
from fedtide.parts.arguments import NO_DEFAULT, Parameter, argument_given_elsewhere, checked_arguments, part_parameters
from fedtide.parts.checks import Guarded, is_of_ours, part_error_place, part_errors_reported, part_remembers
from fedtide.parts.kinds import KINDS, builtin_parts
from fedtide.parts.user_code import reading_user_code, user_code_attribute, user_code_folder, user_file_near

Fill: TypeAlias = Callable[[str], Any]  # the value of an experiment's key


class InnerName(str):
    """The name of a part inside another one of ours, which makes it itself: with these arguments, and what the outer one has."""

    args: Mapping[str, Any]
    fill: Fill

    @classmethod
    def of(cls, name: str, args: Mapping[str, Any], fill: Fill) -> InnerName:
        """Return a name that knows how its part is made."""
        made = cls(name)
        made.args, made.fill = args, fill
        return made


def inner_arguments(name: str, args: Mapping[str, Any] | None) -> tuple[dict[str, Any], Fill]:
    """Return the arguments of a part inside one of ours, and how what else it asks for is filled in. args: given beside its name."""
    own = name if isinstance(name, InnerName) else InnerName.of(name, {}, fill_in_nothing)
    return {**own.args, **(args or {})}, own.fill


def fill_in_nothing(key: str) -> Any:
    """Fill in nothing: for a part that is made by itself."""
    raise FedtideError(f"a part asks for {key}, but there is no experiment to take it from; pass it as an argument")


def part(
    kind: str, name: str, args: Mapping[str, Any], fill: Fill = fill_in_nothing, known: Mapping[str, Any] | None = None
) -> Any:
    """Return the part that `name` stands for, made with the user's `args`, and what else it declares filled in.

    A user's own is checked to take what it will be called with, and is guarded; so is one of ours with a user's arguments.
    """
    ours = builtin_parts(kind) if known is None else known
    with reading_user_code(kind, name, "looking at it"):  # even the signature of an object may run code of its own
        made = resolve(kind, name, args, fill, ours)
        if name not in ours:
            for method, parameters in _calls(kind, made).items():
                check_registry_call(kind, name, made, method, parameters)
    return Guarded(kind, name, made) if args or name not in ours else made


def _calls(kind: str, made: Any) -> Mapping[str, tuple[str, ...]]:
    """Return how a part is called: what it is given, by method."""
    known = KINDS[kind]
    if known.fold and not callable(made) and (hasattr(made, "start") or hasattr(made, "when")):
        return known.calls_of_fold
    return known.calls_with_memory if known.memory and part_remembers(made) else known.calls


def check_registry_call(kind: str, name: str, made: Any, method: str, parameters: tuple[str, ...]) -> None:
    """Raise if a user's policy cannot be called as it will be."""
    called = getattr(made, method, None) if method else made
    wanted = f"{method}({', '.join(parameters)})"
    if not callable(called):
        lacks = f"has no method {wanted}" if method else f"cannot be called as {wanted}"
        raise FedtideError(f"{kind}={name!r} {lacks}; a {kind} needs it ({part_error_place(made)})")
    try:
        # not the signature that a decorator copies, which would hide the arguments that were given
        signature = inspect.signature(called, follow_wrapped=False)
    except (TypeError, ValueError):  # it is not written in Python; the guard is there when it is called
        return
    try:
        signature.bind(*parameters)
    except TypeError as error:
        raise FedtideError(
            f"{kind}={name!r} is called as {wanted}, but it takes {method}{signature}: {error} ({part_error_place(made)}); "
            "correct it there"
        ) from error


def resolve(
    kind: str, name: str, args: Mapping[str, Any], fill: Fill = fill_in_nothing, known: Mapping[str, Any] | None = None
) -> Any:
    """Return the part itself, made with `args`, without a guard. known: ours, by name, if they are not the usual ones."""
    return _make(kind, name, find_part(kind, name, builtin_parts(kind) if known is None else known), args, fill)


def check_registry_name(kind: str, name: str) -> None:
    """Raise if a name without a colon is neither one of ours nor an installed package's."""
    if ":" not in name and name not in (ours := builtin_parts(kind)) and name not in (offered := _offered(kind)):
        raise FedtideError(_unknown(KINDS[kind].key, name, [*ours, *offered]))


def find_part(kind: str, name: str, known: Mapping[str, Any]) -> Any:
    """Return the class, function or object that `name` stands for, as it is."""
    if name in known:
        return _ours(kind, name, known[name])
    if ":" in name:
        return user_code_attribute(kind, name)
    offered = _offered(kind)
    if name not in offered:
        raise FedtideError(_unknown(kind, name, [*known, *offered]))
    with reading_user_code(kind, name, "loading it"):
        return offered[name].load()


def _ours(kind: str, name: str, found: Any) -> Any:
    """Return one of ours, which may be named by its place, so that it is imported when it is used."""
    if not isinstance(found, str):
        return found
    module, _, attribute = found.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise FedtideError(
            f"{KINDS[kind].key}={name} needs a package that is not there ({error}): pip install 'fedtide[{name}]'"
        ) from error


def _offered(kind: str) -> dict[str, EntryPoint]:
    """Return what installed packages offer of a kind, by name."""
    return {point.name: point for point in entry_points(group=f"fedtide.{kind}")}


def _unknown(key: str, name: str, names: list[str]) -> str:
    near = did_you_mean(name, names)
    hint = f"; {near}" if near else "."
    elsewhere = [known.key for kind, known in KINDS.items() if name in builtin_parts(kind)]
    hint = f": it is one of {elsewhere[0]}." if elsewhere else hint
    own = "Your own: path/to/file.py:name or package.module:name"
    return f"{key}={name!r} is not known{hint} Known: {', '.join(names)}. {own}"


def part_argument_files(kind: str, name: str, args: Mapping[str, Any]) -> dict[str, str]:
    """Return the arguments of a part, given or by default, that are declared as a Path and name a file that is there.

    Of one of ours only what is given counts, which may be a folder, and not what the experiment has a key for (where
    something of the same content lies). Of a part that cannot be read now there are none: whoever makes it says why.
    """
    ours = builtin_parts(kind)
    is_ours = name in ours
    if is_ours and not any(_is_there(each) for each in args.values()):  # most often: nothing is imported for it
        return {}
    if not is_ours and ":" not in name:
        return {}
    try:
        declared = part_parameters(find_part(kind, name, ours))
    except FedtideError:
        return {}
    paths = [each for each in declared if Path in (each.type, *typing.get_args(each.type))]
    if is_ours:
        paths = [each for each in paths if each.about.key is None and each.name in args]
    given = {each.name: args.get(each.name, each.default) for each in paths}
    named = {each: str(place) for each, place in given.items() if isinstance(place, str | Path)}
    return {
        each: place
        for each, place in named.items()
        if os.path.isfile(user_file_near(place)) or (is_ours and os.path.isdir(user_file_near(place)))
    }


def _is_there(place: Any) -> bool:
    """Say whether something names a file or a folder, in the working folder or beside the form that names it."""
    if not isinstance(place, str | Path) or not str(place).strip():
        return False
    return os.path.exists(place) or os.path.exists(user_code_folder() / place)


def _make(kind: str, name: str, found: Any, args: Mapping[str, Any], fill: Fill) -> Any:
    """Make the part of what was found: a class with its arguments, a function to be called with them besides its own."""
    is_maker = _is_maker(kind, found)
    context = {each: fill(f"run.{each}") for each in KINDS[kind].made_with} if is_maker else {}
    check_part_arguments(kind, name, found, args, is_maker, context)
    given = len(context) if is_maker else len(KINDS[kind].calls.get("", ()))
    all_args = registry_arguments(found, args, fill, f"{kind}={name!r}", given)
    if is_maker and callable(found):
        with part_errors_reported(kind, name, found):
            return found(*context.values(), **all_args)
    if all_args:  # update_wrapper keeps attributes such as needs
        return functools.update_wrapper(functools.partial(found, **all_args), found)
    return found


def _is_maker(kind: str, found: Any) -> bool:
    """Say whether what was found makes the part, rather than being it.

    A class does, and a function of ours that does not take what the part is called with.
    """
    called = KINDS[kind].calls.get("")
    if inspect.isclass(found) or not KINDS[kind].calls or KINDS[kind].made_with:
        return True
    return (
        called is not None
        and inspect.isroutine(found)
        and is_of_ours(found)
        and len(inspect.signature(found).parameters) < len(called)
    )


def own_parameters(kind: str, found: Any) -> list[Parameter]:
    """Return the parameters that an experiment may give to a part, without those that it is made or called with."""
    declared, known = part_parameters(found), KINDS[kind]
    if inspect.isroutine(found) and "round" in known.calls:  # a tracker that is a function of the record
        return declared[len(known.calls["round"]) :]
    if not _is_maker(kind, found):
        return declared[len(_calls(kind, found).get("", ())) :]
    # what makes a PyTorch module takes nothing but its arguments
    return declared[sum(each.default is NO_DEFAULT for each in declared[: len(known.made_with)]) :]


def named_parts(kind: str) -> dict[str, str]:
    """Return every part that has a name, ours and those of installed packages, each with where it comes from."""
    ours = dict.fromkeys(builtin_parts(kind), "fedtide")
    return {**ours, **{name: point.value for name, point in _offered(kind).items() if name not in ours}}


def registry_arguments(found: Any, args: Mapping[str, Any], fill: Fill, label: str, given: int = 0) -> dict[str, Any]:
    """Return what a part is made with: the user's arguments, checked, and what it declares to be filled from elsewhere."""
    declared = {each.name: each for each in part_parameters(found, given)}
    for name in args if fill is not fill_in_nothing else ():
        if name in declared and (remedy := argument_given_elsewhere(declared[name])):
            raise FedtideError(f"{label}: {name}={shown(args[name])} cannot be given here: {remedy}")
    inside = {
        name: _inner(each, args.get(name, each.default), fill, label)
        for name, each in declared.items()
        if each.about.part
    }
    made = {
        name: checked_arguments(declared[name], value, label) if name in declared else value
        for name, value in args.items()
        if name not in inside
    }
    made |= inside
    made |= {
        name: each.default for name, each in declared.items() if name not in made and isinstance(each.default, Path)
    }
    made = {name: user_file_near(str(each)) if isinstance(each, Path) else each for name, each in made.items()}
    for name, each in declared.items():
        if name in made or each.about.key is None or (fill is fill_in_nothing and each.default is not NO_DEFAULT):
            continue
        made[name] = fill(each.about.key)
    return made


def _inner(parameter: Parameter, entry: Any, fill: Fill, label: str) -> Any:
    """Return the part that a parameter of another one names, made; as a name if that is what the parameter is declared to take."""
    kind = str(parameter.about.part)
    name = entry.get("name") if isinstance(entry, Mapping) else entry
    if entry is None or not (isinstance(name, str) or entry is parameter.default):
        if entry is None and parameter.default is None:
            return None
        raise FedtideError(
            f"{label}: {parameter.name}={shown(entry)} names no {kind}: give its name, or {{name: ..., parameters}}"
        )
    if not isinstance(name, str):  # an object, by default
        return entry
    if entry is parameter.default and is_own_file(name):
        raise FedtideError(
            f"{label}: {parameter.name}={name!r} names a file by default, which would not be known to belong to a run: name it in "
            "the experiment"
        )
    args = {each: value for each, value in entry.items() if each != "name"} if isinstance(entry, Mapping) else {}
    if parameter.type is str:
        return InnerName.of(name, args, fill)
    return part(kind, name, args, fill)


def inner_parameters(kind: str, name: str) -> list[Parameter]:
    """Return the parameters of a part that are parts themselves; none of one that cannot be read now."""
    try:
        return [each for each in part_parameters(find_part(kind, name, builtin_parts(kind))) if each.about.part]
    except FedtideError:
        return []


def check_part_arguments(
    kind: str, name: str, found: Any, args: Mapping[str, Any], is_maker: bool, context: Iterable[str]
) -> None:
    """Raise if a part does not take these arguments among what else it is given."""
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):  # it is not written in Python, or no function at all
        return
    try:
        filled = {each.name for each in part_parameters(found) if each.about.key is not None and each.name not in args}
        if is_maker:
            signature.bind(*context, **dict.fromkeys(filled), **args)
        else:
            signature.bind_partial(**args)
    except TypeError as error:
        taken = (
            (", ".join(each.name for each in own_parameters(kind, found)) or "none")
            if is_of_ours(found)
            else _plainly(signature)
        )
        raise FedtideError(
            f"{kind}={name!r} does not accept the arguments {shown(dict(args))}: {error}; it takes {taken}"
        ) from error


def _plainly(signature: inspect.Signature) -> inspect.Signature:
    """Return a signature with its types alone, for a line of text: what else is said of a parameter is long."""
    return signature.replace(
        parameters=[
            each.replace(annotation=typing.get_args(each.annotation)[0])
            if typing.get_origin(each.annotation) is typing.Annotated
            else each
            for each in signature.parameters.values()
        ]
    )
