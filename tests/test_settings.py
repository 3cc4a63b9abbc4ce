"""The layers of settings: which value wins, where it came from, and what is refused."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from hotswap.errors import UsageError
from hotswap.models import resolve as resolve_model
from hotswap.settings import Given, Resolved, resolve
from hotswap.settings.choices import parse_variant
from hotswap.settings.layers import undotted

PROJECT = """\
model = "openai/from-toml"
concurrency = 4
[sampling]
temperature = 0.0        # zero must survive
max_tokens = 100
[sampling.extra]
top_k = 5
[taskset]
name = "reverse_text"
[models.mine]
url = "http://127.0.0.1:8901/v1/"
[models.mine.headers]
"X-Team-Name" = "a-b"
"""

TYPOS = """\
model = "openai/m"
max_concurent = 2
[samplng]
temperature = 1
[harness]
name = "loop"
max_turn = 3
"""


class Desk:
    """A working directory with settings files, and a way to resolve them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, text: str, name: str = "eval.toml") -> Path:
        (self.folder / name).write_text(text)
        return self.folder / name

    def resolve(
        self,
        flags: Mapping[str, object] | Sequence[tuple[str, object]] = (),
        *,
        files: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> Resolved:
        pairs = flags.items() if isinstance(flags, Mapping) else flags
        given = [Given(undotted(name), value, f"flag --{name}") for name, value in pairs]
        own = str(self.write(user, "user.toml")) if user is not None else ""
        return resolve(
            given, [Path(file) for file in files], {"HOTSWAP_USER_FILE": own, **(env or {})}, self.folder
        )

    def problems(self, *arguments: object, **more: object) -> tuple[str, ...]:
        with pytest.raises(UsageError) as caught:
            self.resolve(*arguments, **more)  # type: ignore[arg-type]
        return caught.value.problems


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_file_gives_values_and_zero_is_one(desk: Desk) -> None:
    desk.write(PROJECT)
    settings = desk.resolve().settings
    assert settings.model.name == ("openai/from-toml",)
    assert settings.sampling.temperature == 0.0
    assert settings.concurrency == 4


def test_the_environment_wins_over_the_project_file_and_says_so(desk: Desk) -> None:
    desk.write(PROJECT)
    resolved = desk.resolve(env={"HOTSWAP_MODEL": "openai/from-env", "HOTSWAP_LIMITS__TURNS": "7"})
    assert resolved.settings.model.name == ("openai/from-env",)
    assert resolved.settings.limits.turns == 7
    assert resolved.origins["model.name"] == "env HOTSWAP_MODEL"


def test_a_flag_wins_for_its_own_key_and_leaves_its_neighbours_alone(desk: Desk) -> None:
    desk.write(PROJECT)
    resolved = desk.resolve({"model": "openai/from-cli", "sampling.temperature": "0.7"})
    assert resolved.settings.model.name == ("openai/from-cli",)
    assert resolved.settings.sampling.values() == {
        "temperature": 0.7,
        "max_tokens": 100,
        "extra": {"top_k": 5},
    }
    assert resolved.origins["sampling.max_tokens"] == "eval.toml:5"


def test_none_is_null_and_survives_a_run_from_the_saved_settings(desk: Desk) -> None:
    desk.write(PROJECT)
    first = desk.resolve({"sampling.max-tokens": "none"})
    assert first.settings.sampling.max_tokens is None
    desk.write(first.to_toml(), "saved.toml")
    again = desk.resolve(files=["saved.toml"])
    assert again.settings.sampling.max_tokens is None


def test_a_dash_in_a_header_is_kept_and_headers_are_merged_one_by_one(desk: Desk) -> None:
    desk.write(PROJECT)
    resolved = desk.resolve({"models.mine.headers.X-Team-Name": "b", "models.mine.headers.X_Other": "c"})
    assert resolved.settings.models["mine"].headers == {"X-Team-Name": "b", "X_Other": "c"}


def test_hyphen_and_underscore_are_one_in_every_key_of_ours(desk: Desk) -> None:
    desk.write("[sampling]\nmax-tokens = 5\n[harness.loop]\nmax-turns = 3\n")
    resolved = desk.resolve({"harness.loop.max_turns": "4"})
    assert resolved.settings.sampling.max_tokens == 5
    assert resolved.chosen["harness"][0].settings == {"max_turns": 4}


def test_faults_of_every_kind_and_place_are_named_at_once(desk: Desk) -> None:
    desk.write(
        """
        concurrency = 0
        attempts = "many"
        limit = 3
        [sampling]
        temperature = "hot"
        [harness]
        output_limit = "much"
        [harness.loop]
        tools = "hammer"
        max_turn = 3
        [runtime]
        no_such = 1
        """
    )
    problems = desk.problems({"model": "openai/x"})
    named = [
        "limit",
        "concurrency",
        "attempts",
        "temperature",
        "max_turn",
        "output_limit",
        "tools",
        "no_such",
    ]
    assert len(problems) == len(named), problems
    assert [name for name in named if not any(name in problem for problem in problems)] == []


def test_a_value_that_the_harness_itself_refuses_is_named_with_the_others(desk: Desk) -> None:
    desk.write("concurrency = 0\n[harness.loop]\nmax_turns = 0\n")
    problems = desk.problems()
    assert len(problems) == 2, problems
    assert problems[1].startswith("harness 'loop': max_turns = 0")


def test_settings_beside_a_name_that_is_not_found_are_looked_at_too(desk: Desk) -> None:
    desk.write("[harness.loop]\nmax_turns = 'x'\n")
    problems = desk.problems({"runtime": "lokal"})
    assert [text for text in ("max_turns", "lokal") if text not in " ".join(problems)] == []
    assert len(desk.problems({"harness": "lop"})) == 1, "of a harness that is not there nothing is said"


def test_all_typos_of_a_file_are_named_at_once_with_line_and_suggestion(desk: Desk) -> None:
    desk.write(TYPOS)
    problems = desk.problems()
    assert len(problems) == 3
    assert problems[0] == "eval.toml:2: no setting 'max_concurent'. Did you mean 'concurrency'?"
    assert problems[1] == "eval.toml:4: no setting 'samplng'. Did you mean 'sampling'?"
    assert problems[2].startswith(
        "eval.toml:7: harness 'loop' has no setting 'max_turn'. Did you mean 'max_turns'?"
    )


def test_a_setting_that_stands_elsewhere_is_suggested_by_its_whole_name(desk: Desk) -> None:
    assert desk.problems({"temperature": "1"}) == (
        "flag --temperature: no setting 'temperature'. Did you mean 'sampling.temperature'?",
    )


def test_a_variable_that_is_no_setting_stops_the_run(desk: Desk) -> None:
    problems = desk.problems(
        env={"HOTSWAP_LIMITS__TURNZ": "3", "HOTSWAP_CACHE": "/x", "HOTSWAP_TEST_DATA": "/y"}
    )
    assert problems == ("env HOTSWAP_LIMITS__TURNZ: no setting 'limits.turnz'. Did you mean 'limits.turns'?",)


@pytest.mark.parametrize("name", ["attempts", "concurrency", "tasks", "limits.turns", "budget.cost"])
def test_a_count_of_zero_is_refused(desk: Desk, name: str) -> None:
    (problem,) = desk.problems({name: "0"})
    assert f"{name} = 0" in problem


def test_a_negative_number_of_tasks_says_what_means_all(desk: Desk) -> None:
    assert desk.problems({"tasks": "-1"}) == (
        "flag --tasks: tasks = -1: must be at least 1; leave -n out for all tasks",
    )


def test_a_missing_file_is_named(desk: Desk) -> None:
    assert desk.problems(files=["missing.toml"]) == ("no settings file 'missing.toml'",)


def test_a_file_that_is_no_toml_is_named_with_its_line(desk: Desk) -> None:
    desk.write("attempts = 1\ntasks = = 2\n")
    (problem,) = desk.problems()
    assert problem.startswith("eval.toml:2: not TOML")


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("model = mine", '; text needs quotes: model = "mine"'),
        ("model = openai/gpt-5-mini  # fast", '; text needs quotes: model = "openai/gpt-5-mini"'),
        ("output = ./out", '; text needs quotes: output = "./out"'),
        ("tasks = = 2", ""),
        ('model = "mine', ""),
    ],
)
def test_text_without_quotes_is_shown_with_them(desk: Desk, line: str, hint: str) -> None:
    desk.write(f"attempts = 1\n{line}\nseed = 1\n")
    (problem,) = desk.problems()
    assert problem.partition(": not TOML: ")[0] == "eval.toml:2"
    assert problem.endswith(hint)
    assert ("quotes:" in problem) == bool(hint)


def test_a_setting_of_a_part_is_suggested_with_its_kind(desk: Desk) -> None:
    assert desk.problems({"path": "q.jsonl"}) == (
        "flag --path: no setting 'path'. Did you mean --taskset.path?",
    )
    desk.write("max_turns = 3\n")
    assert desk.problems() == ("eval.toml:1: no setting 'max_turns'. Did you mean harness.max_turns?",)


def test_a_word_that_is_near_nothing_says_where_settings_of_parts_stand(desk: Desk) -> None:
    (problem,) = desk.problems({"zzzz": "1"})
    assert problem.endswith("Those of parts are taskset.NAME, harness.NAME and runtime.NAME.")


def test_a_part_that_is_named_beside_its_own_table_is_explained(desk: Desk) -> None:
    desk.write('harness = "loop"\n[harness.loop]\nmax_turns = 3\n')
    (problem,) = desk.problems()
    assert problem.startswith("eval.toml:2: not TOML")
    assert "write [harness] name = ... and not harness = ..." in problem


def test_a_file_that_is_no_text_is_named_with_its_line(desk: Desk) -> None:
    (desk.folder / "eval.toml").write_bytes(b'attempts = 1\nselect = "\xff"\n')
    assert desk.problems() == ("eval.toml:2: not UTF-8",)


def test_one_key_in_two_spellings_in_one_file_is_refused(desk: Desk) -> None:
    desk.write("[sampling]\nmax_tokens = 1\nmax-tokens = 2\n")
    assert desk.problems() == ("eval.toml:3: sampling.max-tokens is given twice, first at eval.toml:2",)


def test_every_layer_wins_over_the_one_before(desk: Desk) -> None:
    desk.write("attempts = 3\nretries = 3\nseed = 3\nconcurrency = 3\n")
    desk.write("seed = 5\nconcurrency = 5\n", "a.toml")
    resolved = desk.resolve(
        {"concurrency": "6"},
        files=["a.toml"],
        env={"HOTSWAP_RETRIES": "4", "HOTSWAP_SEED": "4"},
        user="tasks = 2\nattempts = 2\n",
    )
    settings = resolved.settings
    found = (settings.tasks, settings.attempts, settings.retries, settings.seed, settings.concurrency)
    assert found == (2, 3, 4, 5, 6)
    assert [resolved.origins[name] for name in ("attempts", "retries", "seed", "concurrency")] == [
        "eval.toml:1",
        "env HOTSWAP_RETRIES",
        "a.toml:1",
        "flag --concurrency",
    ]


def test_false_and_an_empty_list_win_over_a_lower_layer(desk: Desk) -> None:
    desk.write('shuffle = true\nselect = ["a"]\n')
    desk.write("shuffle = false\nselect = []\n", "b.toml")
    settings = desk.resolve(files=["b.toml"]).settings
    assert settings.shuffle is False
    assert settings.select == ()


def test_a_default_never_wins_over_a_file(desk: Desk) -> None:
    desk.write('[harness]\nname = "loop"\n[harness.loop]\ntools = ["bash"]\n')
    assert desk.resolve({"sampling.seed": "1"}).chosen["harness"][0].settings == {"tools": ["bash"]}


def test_a_setting_of_a_part_alone_keeps_the_default_part(desk: Desk) -> None:
    (choice,) = desk.resolve({"harness.loop.tools": "bash"}).chosen["harness"]
    assert (choice.name, choice.settings) == ("loop", {"tools": ["bash"]})


def test_the_higher_layer_wins_then_the_more_specific_and_a_variant_beats_both(desk: Desk) -> None:
    desk.write("[harness]\nmax_turns = 1\n[harness.loop]\nmax_turns = 2\n")
    (specific,) = desk.resolve().chosen["harness"]
    (higher,) = desk.resolve({"harness.max_turns": "3"}).chosen["harness"]
    (variant,) = desk.resolve([("harness.max_turns", "3"), ("harness", "loop,max_turns=4")]).chosen["harness"]
    assert [choice.settings["max_turns"] for choice in (specific, higher, variant)] == [2, 3, 4]
    assert higher.origins == {"max_turns": "flag --harness.max_turns"}


def test_a_repeated_flag_is_a_list_where_the_setting_is_one(desk: Desk) -> None:
    resolved = desk.resolve(
        [("select", "a"), ("select", "b,c"), ("model", "openai/x"), ("model", "openai/y")]
    )
    assert resolved.settings.select == ("a", "b", "c")
    assert [choice.ref for choice in resolved.chosen["model"]] == ["openai/x", "openai/y"]


def test_a_flag_given_twice_with_two_values_is_refused_where_there_is_room_for_one(desk: Desk) -> None:
    assert desk.problems([("attempts", "1"), ("attempts", "2")]) == (
        "flag --attempts: attempts is given more than once: 1 and 2",
    )
    assert desk.resolve([("attempts", "2"), ("attempts", "2")]).settings.attempts == 2


def test_a_stop_text_keeps_its_spaces_and_commas(desk: Desk) -> None:
    assert desk.resolve({"sampling.stop": "\n, "}).settings.sampling.stop == ("\n, ",)


def test_a_number_as_runtime_asks_whether_attempts_were_meant(desk: Desk) -> None:
    (problem,) = desk.problems({"runtime": "3"})
    assert "did you mean -k 3" in problem


def test_an_unknown_part_is_suggested_and_a_file_that_names_it_is_said(desk: Desk) -> None:
    assert desk.problems({"harness": "lop"})[0].startswith("no harness 'lop'. Did you mean 'loop'? Known: ")
    desk.write('harness = "lop"\n')
    assert desk.problems()[0].startswith("eval.toml:1: no harness 'lop'.")


def test_a_part_setting_of_the_wrong_type_names_its_origin(desk: Desk) -> None:
    desk.write("[harness.loop]\nmax_turns = 'many'\n")
    assert desk.problems() == ("eval.toml:2: harness.loop.max_turns = many: expected a whole number",)


def test_a_setting_that_only_some_chosen_parts_have_must_name_its_part(desk: Desk) -> None:
    resolved = desk.resolve([("taskset", "gsm8k"), ("taskset", "jsonl"), ("taskset.split", "train")])
    with pytest.raises(UsageError) as caught:
        resolved.check("taskset", {"gsm8k": ["path", "split"], "jsonl": ["path"]})
    assert caught.value.problems == (
        "flag --taskset.split: taskset 'jsonl' has no setting 'split'. "
        "Set it for the one that has: taskset.gsm8k.split",
    )
    resolved.check("taskset", {"gsm8k": ["split"], "jsonl": ["split"]})


def test_a_variant_continues_its_list_until_the_next_setting() -> None:
    assert parse_variant("loop,tools=bash,edit,timeout_s=5") == (
        "loop",
        {"tools": "bash,edit", "timeout_s": "5"},
    )
    assert parse_variant("x@http://h/v1?dialect=chat,effort=high")[0] == "x@http://h/v1?dialect=chat"
    with pytest.raises(UsageError, match="write loop,NAME=bash"):
        parse_variant("loop,bash")


def test_a_models_own_setting_wins_over_the_runs_sampling(desk: Desk) -> None:
    desk.write("[sampling]\ntemperature = 0.5\nseed = 1\n")
    resolved = desk.resolve({"model": "openai/x,temperature=1,effort=high"})
    (model,) = resolved.chosen["model"]
    assert resolved.sampling(model) == {"temperature": 1.0, "seed": 1, "effort": "high"}


def test_a_model_setting_that_does_not_exist_or_fit_is_refused(desk: Desk) -> None:
    assert "no setting 'effrt'. Did you mean 'effort'?" in desk.problems({"model": "openai/x,effrt=high"})[0]
    assert "temperature" in desk.problems({"model": "openai/x,temperature=hot"})[0]


FULL = """\
tasks = 5
attempts = 2
select = ["a*", "0:3"]
allow_errors = "5%"
[harness]
name = ["loop,tools=bash", "loop"]
max_turns = 7
[taskset]
name = ["reverse_text", "gsm8k,split=train"]
[taskset.gsm8k]
path = "rows \\"quoted\\" ü.jsonl"
[limits]
cost = 0.25
[sampling]
stop = ["\\n", "END"]
[sampling.extra]
"a.b" = { deep = [1, 2.5, true], "X-Y" = "z" }
[models."my.model"]
url = "http://127.0.0.1:1/v1"
headers = { "X-Team" = "t" }
prices = { input = 0.5 }
"""


def test_the_saved_settings_alone_give_the_same_run_and_no_other_layer_leaks_in(desk: Desk) -> None:
    desk.write(FULL)
    first = desk.resolve({"model": "my.model,effort=low"})
    desk.write(first.to_toml(), "saved.toml")
    desk.write('attempts = 9\n[harness.loop]\nsystem = "leak"\n[sampling]\nseed = 9\n')
    again = desk.resolve(files=["saved.toml"], env={"HOTSWAP_RETRIES": "9"}, user="concurrency = 9\n")
    assert again.settings.model_dump(
        exclude={"taskset", "harness", "model", "runtime"}
    ) == first.settings.model_dump(exclude={"taskset", "harness", "model", "runtime"})
    for kind, choices in first.chosen.items():
        assert [(choice.text, choice.settings) for choice in again.chosen[kind]] == [
            (choice.text, choice.settings) for choice in choices
        ]
    assert again.to_toml() == first.to_toml()


def test_the_saved_settings_are_complete_toml_and_flags_still_change_them(desk: Desk) -> None:
    desk.write(FULL)
    text = desk.resolve({"model": "openai/x"}).to_toml()
    assert tomllib.loads(text)["concurrency"] == 16
    desk.write(text, "saved.toml")
    assert desk.resolve({"attempts": "3"}, files=["saved.toml"]).settings.attempts == 3


def test_closed_belongs_into_a_named_file_only(desk: Desk) -> None:
    desk.write("closed = true\n")
    assert desk.problems() == ("eval.toml:1: closed = true belongs into a file that is named with -f",)


def test_a_key_that_was_written_into_a_file_is_refused_and_not_repeated(desk: Desk) -> None:
    key, headers = 'key = "sk-12345-secret"', 'headers = { Authorization = "Bearer s3cret" }'
    desk.write(f'[models.a]\nurl = "http://h/v1"\n{key}\n{headers}\n')
    problems = desk.problems()
    assert len(problems) == 2
    assert not any("sk-12345" in problem or "s3cret" in problem for problem in problems)


SECRETS = """\
[models.idle]
url = "https://gateway.example/v1?apikey=canary-1&region=canary-2"
headers = { "X-Team-Token" = "canary-3", "X-Team" = "blue" }
[models.used]
url = "http://127.0.0.1:1/v1"
headers = { "X-Gateway-Secret" = "canary-4" }
[sampling.extra]
api_key = "canary-5"
"""


def test_no_secret_of_an_address_a_header_or_a_field_is_saved_or_shown(desk: Desk) -> None:
    desk.write(SECRETS)
    resolved = desk.resolve({"model": "used"})
    saved = resolved.to_toml()
    assert "canary" not in saved + str([row for row in resolved.rows() if row[0] != "taskset.name"])
    tables = tomllib.loads(saved)["models"]
    assert tables["idle"]["url"] == "https://gateway.example/v1?apikey=[secret:apikey]&region=[secret:region]"
    assert tables["idle"]["headers"] == {"X-Team-Token": "[secret:X-Team-Token]", "X-Team": "blue"}
    assert set(resolved.secrets.values()) == {"canary-1", "canary-2", "canary-3", "canary-4"}


def test_settings_that_were_masked_when_they_were_saved_must_be_given_again_by_who_uses_them(
    desk: Desk,
) -> None:
    desk.write(SECRETS)
    saved = desk.write(desk.resolve({"model": "used"}).to_toml(), "saved.toml").name
    (problem,) = desk.problems(files=[saved])
    assert problem.startswith("saved.toml:")
    assert problem.endswith(
        "sampling.extra.api_key is a secret, and was masked when it was saved: "
        "give it again, as --sampling.extra.api_key VALUE"
    )
    again = desk.resolve({"sampling.extra.api_key": "canary-5"}, files=[saved])
    with pytest.raises(UsageError, match=r"headers\.X-Gateway-Secret is a secret, and was masked"):
        resolve_model("used", again.settings.model_tables(), {})
    header = {"models.used.headers.X-Gateway-Secret": "canary-4", "sampling.extra.api_key": "canary-5"}
    whole = desk.resolve(header, files=[saved])
    upstream = resolve_model("used", whole.settings.model_tables(), {}).upstream
    assert upstream.headers == {"X-Gateway-Secret": "canary-4"}


def test_where_a_run_was_written_is_not_saved_so_that_it_runs_again(desk: Desk) -> None:
    saved = desk.write(desk.resolve({"model": "openai/x", "output": "out"}).to_toml(), "saved.toml").name
    again = desk.resolve(files=[saved])
    assert (again.settings.output, again.settings.runs) == (None, Path("runs"))


@pytest.mark.parametrize(
    ("table", "name", "meant"),
    [
        ("taskset.gsm9k", "path", "no taskset 'gsm9k'. Did you mean 'gsm8k'? Known: capitals, gsm8k, "),
        ("harness.lop", "tools", "no harness 'lop'. Did you mean 'loop'? Known: "),
        ("runtime.locl", "env", "no runtime 'locl'. Did you mean 'local'? Known: "),
        ("model.smolm2", "temperature", "no model 'smolm2'. Did you mean 'smollm2'? Known: "),
        ("model.mime", "temperature", "no model 'mime'. Did you mean 'mine'? Known: "),
    ],
)
def test_a_table_of_a_part_that_does_not_exist_is_named_with_its_place_and_a_suggestion(
    desk: Desk, table: str, name: str, meant: str
) -> None:
    flags = {"taskset": "capitals", "model": "smollm2"}
    desk.write(f'models.mine.url = "http://h/v1"\n[{table}]\n{name} = "1"\n')
    (problem,) = desk.problems(flags)
    assert problem.startswith(f"eval.toml:3: {table}.{name}: {meant}")
    desk.write('models.mine.url = "http://h/v1"\n')
    (problem,) = desk.problems({**flags, f"{table}.{name}": "1"})
    assert problem.startswith(f"flag --{table}.{name}: {table}.{name}: {meant}")


def test_a_table_of_a_part_that_is_not_chosen_this_time_is_passed_over(desk: Desk) -> None:
    tables = ("taskset.gsm8k", "model.mine", 'model."openai/gpt-5-mini"', 'model."x@http://h:1/v1"')
    text = "".join(f"[{table}]\n{'split' if 'gsm8k' in table else 'seed'} = 1\n" for table in tables)
    desk.write(f'models.mine.url = "http://h/v1"\n{text}')
    chosen = desk.resolve({"taskset": "capitals", "model": "smollm2"}).chosen
    assert [choices[0].settings for choices in chosen.values()] == [{}, {}, {}, {}]


EVIL = '[models.mine]\nurl = "http://evil.example/v1"\nkey = "OPENAI_API_KEY"\n'


def test_a_project_file_cannot_send_a_providers_key_to_another_host(desk: Desk) -> None:
    desk.write(EVIL)
    (problem,) = desk.problems({"model": "mine"})
    assert problem.startswith(
        "eval.toml:2: OPENAI_API_KEY would be sent to evil.example and not to api.openai.com"
    )


@pytest.mark.parametrize(
    "line",
    [
        'model = "x@http://evil.example/v1?key=OPENAI_API_KEY"',
        'model = "openai/x,url=http://evil.example/v1,key=OPENAI_API_KEY"',
        '[model]\nname = "openai/x"\nurl = "http://evil.example/v1"\nkey = "OPENAI_API_KEY"',
    ],
)
def test_nor_by_a_models_name_or_its_own_settings(desk: Desk, line: str) -> None:
    desk.write(line)
    assert "evil.example" in desk.problems()[0]


def test_nor_by_moving_an_address_that_the_user_paired_with_the_key(desk: Desk) -> None:
    desk.write('[models.mine]\nurl = "http://evil.example/v1"\n')
    user = '[models.mine]\nurl = "https://gateway.example/v1"\nkey = "OPENAI_API_KEY"\n'
    assert "evil.example" in desk.problems({"model": "mine"}, user=user)[0]


def test_the_user_may_pair_a_key_with_a_host_and_a_project_may_use_that(desk: Desk) -> None:
    desk.write('model = "mine"\n')
    assert desk.resolve(user=EVIL).settings.models["mine"].key == "OPENAI_API_KEY"
    flags = {"models.mine.url": "http://gateway.example/v1", "models.mine.key": "OPENAI_API_KEY"}
    assert desk.resolve(flags).chosen["model"][0].ref == "mine"


@pytest.mark.parametrize("value", ["inf", "nan", "-inf", "1e999", "1" * 400])
@pytest.mark.parametrize("name", ["sampling.temperature", "limits.cost", "harness.loop.command_timeout_s"])
def test_a_number_that_is_none_is_refused_in_every_layer_with_its_place(
    desk: Desk, name: str, value: str
) -> None:
    for problem in (
        *desk.problems({name: value, "model": "openai/x"}),
        *desk.problems(
            env={f"HOTSWAP_{name.upper().replace('.', '__')}": value, "HOTSWAP_MODEL": "openai/x"}
        ),
    ):
        assert problem.startswith(
            (f"flag --{name}: {name} = ", f"env HOTSWAP_{name.upper().replace('.', '__')}: ")
        )
        assert problem.endswith(("must be finite, up to 1.8e308", "NaN is no number"))
    desk.write(f"{name} = {value}\nmodel.name = 'openai/x'\n")
    (problem,) = desk.problems()
    assert problem.startswith("eval.toml:1: ")


@pytest.mark.parametrize("extra", ['{"a": NaN}', '{"a": [1, {"b": -Infinity}]}', '{"a": 1e999}'])
def test_a_field_that_json_cannot_say_is_refused_and_so_is_one_in_toml(desk: Desk, extra: str) -> None:
    (problem,) = desk.problems({"sampling.extra": extra, "model": "openai/x"})
    assert problem.startswith("flag --sampling.extra: sampling.extra = ")
    desk.write("[sampling.extra]\ntop_k = nan\nnested = [{ x = inf }]\n")
    for line, problem in enumerate(desk.problems({"model": "openai/x"}), 1):
        assert problem.startswith(f"eval.toml:{line + 1}: "), problem


@pytest.mark.parametrize(
    ("text", "planned", "allowed"), [("0", 50, 0), ("5", 50, 5), ("5%", 50, 2), ("0.1", 50, 5)]
)
def test_errors_are_allowed_by_number_or_share(desk: Desk, text: str, planned: int, allowed: int) -> None:
    assert desk.resolve({"allow-errors": text}).settings.errors_allowed(planned) == allowed


def test_an_allowance_that_is_neither_number_nor_share_is_refused(desk: Desk) -> None:
    assert "a share" in desk.problems({"allow-errors": "some"})[0]


def test_every_setting_has_a_sentence(desk: Desk) -> None:
    from hotswap.settings.fields import Section, sentences

    for section in Section.__subclasses__():
        assert not [name for name in section.model_fields if name not in sentences(section)]


def test_the_example_file_at_the_root_is_harmless_and_every_line_of_it_is_valid(desk: Desk) -> None:
    text = (Path(__file__).parent.parent / "eval.toml").read_text()
    assert tomllib.loads(text) == {}
    body = text.split("\n\n", 1)[1]
    desk.write("\n".join(line.removeprefix("# ") for line in body.splitlines()))
    settings = desk.resolve().settings
    assert settings.models["mine"].context == 32768
    assert settings.budget.cost == 20.0
