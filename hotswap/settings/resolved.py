"""How the value of each setting is found, and where it came from.

    defaults < user file < ./eval.toml < HOTSWAP_* environment < -f FILE < flags

Per key and deep: a layer that sets one key leaves the others alone, and 0, false and empty text are values. A
file that says `closed = true`, as the one in each run directory does, stands alone but for the flags.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from hotswap import registry
from hotswap.errors import UsageError, did_you_mean
from hotswap.masking import is_masked, is_secret_name, secrets_in
from hotswap.settings import closed
from hotswap.settings.choices import Choice, configure, find, refusals, unknown_settings
from hotswap.settings.fields import DEFAULT_PARTS, Limits, Sampling, Settings, is_list, sections, sentences
from hotswap.settings.layers import (
    SELECTORS,
    Given,
    Key,
    Layer,
    Repeated,
    around,
    combine,
    dotted,
    merge,
    read_file,
    tree,
)
from hotswap.settings.pairing import key_problems

HIDDEN_NAMES = {"key", "url", "headers"}
"""Settings whose wrong value is not repeated in a message: it may hold a secret."""
DEFAULTS = {kind: {"name": name} for kind, name in DEFAULT_PARTS.items()}
BUILT = ("harness", "runtime")
"""The parts that are built in this process: a taskset's worker builds that one."""
HINTS: Mapping[Key, str] = {("tasks",): "; leave -n out for all tasks"}


@dataclass(frozen=True)
class Resolved:
    """The settings of a run, the place that each value came from, and the parts that were chosen."""

    settings: Settings
    layers: tuple[Layer, ...]
    chosen: Mapping[str, tuple[Choice, ...]]
    """By kind: taskset, harness, model, runtime. A taskset's settings are not checked yet: see `check`."""

    @property
    def origins(self) -> dict[str, str]:
        """Where each value that was given comes from, by dotted name; the others are defaults."""
        return {given.name: given.where for layer in self.layers for given in layer.given}

    def rows(self) -> Iterator[tuple[str, Any, str]]:
        """Yield each setting's dotted name, value and origin, for people: what is secret in it is masked.

        The settings of parts stand in `chosen`.
        """
        origins = self.origins
        for key, value in _values((), self.settings):
            name = dotted(key)
            origin = origins.get(name) or _origin_below(name, origins) or "default"
            yield name, closed.masked(value, key[-1]), origin

    @property
    def secrets(self) -> dict[str, str]:
        """What addresses of models carry beside the place, and secret headers: to be masked by value too."""
        found: dict[str, str] = {}
        for table in self.settings.models.values():
            found |= secrets_in(table.url or "")
            found |= {name: value for name, value in table.headers.items() if is_secret_name(name)}
        return found

    def sampling(self, model: Choice) -> dict[str, Any]:
        """Get what the run sets for a model's answers: `[sampling]`, and over it the model's own settings."""
        own = {name: value for name, value in model.settings.items() if name in Sampling.model_fields}
        return Sampling(**{**self.settings.sampling.values(), **own}).values()

    def check(self, kind: str, options: Mapping[str, Collection[str]]) -> None:
        """Raise UsageError for settings that the chosen parts do not have; `options` are their names by part.

        Harnesses, runtimes and models are checked already. A taskset's options come from its worker.
        """
        if problems := unknown_settings(kind, self.chosen[kind], self.layers, options):
            raise UsageError(*problems)

    def to_toml(self) -> str:
        """Write a file that alone gives these settings again, with `-f FILE`; null is written as "none"."""
        return closed.write(self.settings, self.chosen)


def resolve(
    flags: Iterable[Given], files: Sequence[Path], environment: Mapping[str, str], cwd: Path
) -> Resolved:
    """Get the settings of a run. Raises UsageError with all that is wrong, each with its origin.

    Relative paths, in whatever layer, are relative to `cwd`.
    """
    problems: list[str] = []
    given = _layers(flags, files, environment, cwd)
    layers = tuple(_joined(_known(layer, problems), problems) for layer in given)
    problems += _masked_values(layers)
    settings = _build(layers, problems)
    readable = settings or _build_readable(layers)
    chosen = _choose(readable, layers, problems) if readable else {}
    problems += key_problems(settings.models, chosen.get("model", ()), layers) if settings else ()
    if settings is None or problems:
        raise UsageError(*problems)
    return Resolved(settings, layers, chosen)


def _choose(
    settings: Settings, layers: Sequence[Layer], problems: list[str]
) -> dict[str, tuple[Choice, ...]]:
    """Get the chosen parts by kind. Of a kind with a name that is not found, nothing more is said."""
    unfound: list[str] = []
    found: dict[str, tuple[Choice, ...]] = {}
    for kind in SELECTORS:
        names, before = getattr(settings, kind).name, len(unfound)
        problems += [] if names or kind not in DEFAULTS else [f"no {kind} chosen: {kind} names none"]
        parts = find(kind, names, layers, unfound)
        found |= {kind: parts} if len(unfound) == before else {}
    chosen: dict[str, tuple[Choice, ...]] = {}
    sound: list[Choice] = []
    for kind, parts in found.items():
        if unfound and not _is_set(kind, layers):  # to import a part takes long: not for a typo elsewhere
            continue
        before = len(problems)
        chosen[kind] = configure(kind, parts, layers, problems)
        sound += chosen[kind] if kind in BUILT and len(problems) == before else ()
    problems += unfound
    problems += refusals(sound) if problems else ()
    return chosen


def _is_set(kind: str, layers: Sequence[Layer]) -> bool:
    """Whether a setting of this kind's parts is given."""
    return any(item.key[0] == kind and item.key[1:] != ("name",) for layer in layers for item in layer.given)


def _layers(
    flags: Iterable[Given], files: Sequence[Path], environment: Mapping[str, str], cwd: Path
) -> tuple[Layer, ...]:
    named = [read_file("file", cwd / path, str(path)) for path in files]
    opened = tuple(Layer("file", tuple(item for item in layer.given if not _closes(item))) for layer in named)
    is_closed = any(_closes(item) for layer in named for item in layer.given)
    return (*(() if is_closed else around(environment, cwd)), *opened, combine(flags))


def _closes(given: Given) -> bool:
    return given.key == ("closed",) and given.value is True


def _masked_values(layers: Sequence[Layer]) -> Iterator[str]:
    """Refuse what was masked when settings were saved, unless a later layer gives it again.

    What belongs to a model is left to whoever uses that model.
    """
    last = {item.key: item for layer in layers for item in layer.given}
    for item in last.values():
        if item.key[0] != "models" and isinstance(item.value, str) and is_masked(item.value):
            again = f"give it again, as --{item.name} VALUE"
            yield f"{item.where}: {item.name} is a secret, and was masked when it was saved: {again}"


def _known(layer: Layer, problems: list[str]) -> Layer:
    """Leave out what is no setting, and say so."""
    wrong = {given.key: problem for given in layer.given if (problem := _unknown(given))}
    problems += dict.fromkeys(wrong.values())
    return replace(layer, given=tuple(given for given in layer.given if given.key not in wrong))


def _unknown(given: Given) -> str | None:
    """Say what is wrong with a key that is no setting. The keys of parts are looked at by `choices`."""
    if given.key[0] in SELECTORS:
        return None
    if given.key == ("closed",):
        return f"{given.where}: closed = true belongs into a file that is named with -f"
    at: Any = Settings
    for index, segment in enumerate(given.key):
        if _is_section(at):
            if segment not in at.model_fields:
                suggestion = _limit(given) or _of_a_part(given) or _suggestion(given.key[:index], segment, at)
                return f"{given.where}: no setting {dotted(given.key[: index + 1])!r}.{suggestion}"
            at = at.model_fields[segment].annotation
        elif get_origin(at) is dict:
            at = get_args(at)[1]
        elif at is Any:
            return None
        else:
            return f"{given.where}: {dotted(given.key[:index])} is a value and no table"
    return None


def _limit(given: Given) -> str:
    """Say what `limit` may have meant, which others use for the number of tasks; empty for any other word."""
    if given.key != ("limit",):
        return ""
    number = given.value if str(given.value).isdigit() else "N"
    limits = ", ".join(f"--limits.{name}" for name in Limits.model_fields)
    return f" So many tasks: -n {number}. What one rollout may use: {limits}."


def _of_a_part(given: Given) -> str:
    """Suggest a part's setting that was written without its kind; empty where there is none of that name."""
    kinds = registry.kinds_with(given.key[0]) if len(given.key) == 1 else []
    dashes = "--" if given.where.startswith("flag ") else ""
    meant = " or ".join(f"{dashes}{kind}.{given.key[0]}" for kind in kinds)
    return f" Did you mean {meant}?" if meant else ""


def _suggestion(table: Key, segment: str, section: type[BaseModel]) -> str:
    """Suggest the neighbour, or else the setting elsewhere, that a word is closest to."""
    if close := get_close_matches(segment, section.model_fields, n=1):
        return f" Did you mean {dotted((*table, close[0]))!r}?"
    elsewhere = {key[-1]: key for key, _ in reversed(list(_values((), Settings())))}
    if close := get_close_matches(segment, elsewhere, n=1, cutoff=0.7):
        return f" Did you mean {dotted(elsewhere[close[0]])!r}?"
    settings_of_parts = (
        " Those of parts are taskset.NAME, harness.NAME and runtime.NAME." if not table else ""
    )
    return did_you_mean(segment, section.model_fields) + settings_of_parts


def _joined(layer: Layer, problems: list[str]) -> Layer:
    """Make a list of a flag that was repeated, where the setting is a list, and refuse it elsewhere."""
    given = []
    for item in layer.given:
        if isinstance(item.value, Repeated):
            if _takes_many(item.key):
                item = replace(item, value=[part for value in item.value for part in _parts(item.key, value)])
            elif all(value == item.value[0] for value in item.value):
                item = replace(item, value=item.value[0])
            elif item.key[0] not in SELECTORS:
                values = " and ".join(str(value) for value in item.value)
                problems.append(f"{item.where}: {item.name} is given more than once: {values}")
                continue
        given.append(item)
    return replace(layer, given=tuple(given))


def _takes_many(key: Key) -> bool:
    if key[0] in SELECTORS:
        return key[1:] == ("name",)
    at: Any = Settings
    for segment in key:
        if _is_section(at):
            at = at.model_fields[segment].annotation
        else:
            at = get_args(at)[1] if get_origin(at) is dict else Any
    return is_list(at)


def _parts(key: Key, value: Any) -> list[Any]:
    """Split one flag's text into items as a single flag's would be."""
    if isinstance(value, list):
        return value
    whole = key[0] in SELECTORS or key[-1] == "stop" or not isinstance(value, str)
    return [value] if whole else [part.strip() for part in value.split(",") if part.strip()]


def _build(layers: Sequence[Layer], problems: list[str]) -> Settings | None:
    try:
        return Settings.model_validate(merge([DEFAULTS, *(tree(layer.given) for layer in layers)]))
    except ValidationError as error:
        origins = {given.name: given.where for layer in layers for given in layer.given}
        problems += [_problem(dict(one), origins) for one in error.errors()]
        return None


def _build_readable(layers: Sequence[Layer]) -> Settings | None:
    """Get settings without the values that are wrong, to look at the parts all the same; null where that cannot be."""
    try:
        return Settings.model_validate(merge([DEFAULTS, *(tree(layer.given) for layer in layers)]))
    except ValidationError as error:
        faulty = [tuple(part for part in one["loc"] if isinstance(part, str)) for one in error.errors()]
    if any(not key or key[0] in SELECTORS for key in faulty):
        return None
    kept = [[item for item in layer.given if not _overlaps(item.key, faulty)] for layer in layers]
    return _build([replace(layer, given=tuple(given)) for layer, given in zip(layers, kept, strict=True)], [])


def _overlaps(key: Key, others: Sequence[Key]) -> bool:
    return any(key[: len(other)] == other[: len(key)] for other in others)


def _problem(error: Mapping[str, Any], origins: Mapping[str, str]) -> str:
    key = tuple(str(segment) for segment in error["loc"] if not isinstance(segment, int))
    name = dotted(key)
    parents = [dotted(key[:length]) for length in range(len(key), 0, -1)]
    where = next((origins[parent] for parent in parents if parent in origins), None)
    where = where or _origin_below(name, origins) or "default"
    shown = name if HIDDEN_NAMES & set(key) else f"{name} = {error['input']}"
    return f"{where}: {shown}: {_reason(error)}{HINTS.get(key, '')}"


def _reason(error: Mapping[str, Any]) -> str:
    context = error.get("ctx", {})
    reasons = {
        "greater_than_equal": f"must be at least {context.get('ge')}",
        "greater_than": f"must be more than {context.get('gt')}",
        "less_than_equal": f"must be at most {context.get('le')}",
        "model_type": "expected a table",
        "dict_type": "expected a table",
        "value_error": str(context.get("error")),
    }
    return reasons.get(error["type"], str(error["msg"]))


def _origin_below(name: str, origins: Mapping[str, str]) -> str | None:
    """Get the origin of a table's first key, for what is wrong with the table as a whole."""
    return next((where for other, where in origins.items() if other.startswith(f"{name}.")), None)


def _is_section(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, BaseModel)


def _values(at: Key, section: BaseModel) -> Iterator[tuple[Key, Any]]:
    """Yield every setting below a section with its value, as declared; of parts, the name alone."""
    for name in type(section).model_fields:
        key, value = (*at, name), getattr(section, name)
        if isinstance(value, BaseModel):
            yield from _values(key, value)
        elif (
            value and isinstance(value, dict) and all(isinstance(item, BaseModel) for item in value.values())
        ):
            for table, item in value.items():
                yield from _values((*key, table), item)
        else:
            yield key, value


def setting_names() -> Iterator[tuple[str, str]]:
    """Yield the dotted name and the sentence of every setting that is not a part's."""
    tables = sections()
    for name, sentence in sentences(Settings).items():
        if name not in tables:
            yield name, sentence
    for table, section in tables.items():
        for name, sentence in sentences(section).items():
            yield f"{table}.{name}", sentence
