"""The tables can be read on any console, and say what went wrong and how to see it."""

import io
import re
import sys

import pytest
from _kit.traces import fault, result
from rich.cells import cell_len
from rich.console import Console

from hotswap.cli._heads import cut, differing, letters
from hotswap.cli._say import console, count, program, visible
from hotswap.cli._tables import closing, render
from hotswap.metrics import Summary, tabulate

CELLS = (
    "capitals/loop/smollm2/local",
    "capitals/codex/openai:gpt-5-mini/docker",
    "数学/loop/\x1b[31mred/本地",
)


def summary(cells: int = 1, **given: object) -> Summary:
    results = [
        result(
            f"t{at}",
            cell=cell,
            reward=None if at == 3 else float(at % 2),
            seconds=0.5 * at,
            metrics={"speed": at},
            **given,
        )
        for cell in CELLS[:cells]
        for at in range(8)
    ]
    return tabulate(results)


def printed(shown: Summary, width: int, encoding: str = "utf-8", terminal: bool = False) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, write_through=True)
    target = console(file)
    if terminal:
        target = Console(file=file, markup=False, highlight=False, force_terminal=True, color_system=None)
    target.width = width
    render(shown, target, "uv run eval show")
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("cells", [0, 1, 2, 3])
@pytest.mark.parametrize("width", [1, 20, 40, 60, 80, 200, 1000])
def test_tables_fit_any_width_without_a_control_code(width: int, cells: int) -> None:
    text = printed(summary(cells), width, terminal=True)
    assert "\x1b" not in text
    names = [visible(cell) for cell in CELLS]
    lines = [line for line in text.splitlines() if not any(name in line for name in names)]
    assert max(cell_len(line) for line in lines) <= max(width, 2)
    assert "…" not in text
    assert "showfailed" in re.sub(r"[\s-]", "", text) or cells == 0


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "utf-8"])
def test_tables_are_printed_in_any_encoding(encoding: str) -> None:
    text = printed(summary(3), 100, encoding)
    assert "capitals/loop/smollm2/local" in text


def test_one_cell_is_a_list_with_all_that_is_known() -> None:
    lines = [line.split() for line in printed(summary(), 80).splitlines()]
    assert ["reward", "0.43", "[0.16,", "0.75]"] in lines
    assert ["errors", "as", "0", "0.38"] in lines
    assert ["scored", "7", "of", "8"] in lines
    assert ["errors", "1", "provider"] in lines
    assert ["pass@1", "0.43", "(7", "of", "8", "tasks)"] in lines
    assert ["cost", "not", "known"] in lines
    assert ["time", "p50", "2.00", "s"] in lines


def compared(*cells: str) -> Summary:
    return tabulate([result(f"t{at}", cell=cell, reward=float(at % 2)) for cell in cells for at in range(8)])


def test_a_few_cells_are_columns_under_their_whole_names_where_those_fit() -> None:
    lines = printed(summary(2), 100).splitlines()
    assert sorted(lines[0].split()) == sorted(CELLS[:2])
    assert ["errors", "as", "0", "0.38", "0.38"] in [line.split() for line in lines]
    assert len([line for line in lines if CELLS[0] in line]) == 1


@pytest.mark.parametrize("width", [80, 72])
def test_where_names_do_not_fit_columns_have_what_differs_in_them_and_a_key_below(width: int) -> None:
    models = ("good@http://127.0.0.1:8000/v1", "smollm2", "openai:gpt-5-mini")
    cells = [f"mine/loop/{model}/local" for model in models]
    text = printed(compared(*cells), width)
    head, _, rest = text.partition("reward")
    assert "".join(head.split()).startswith("good@http://")
    assert "mine" not in head
    for model, cell in zip(models, cells, strict=True):
        assert re.search(f"^{re.escape(model)} +{re.escape(cell)}$", rest, re.MULTILINE)


def test_where_no_name_fits_columns_have_letters() -> None:
    cells = [f"mine/loop/{letter * 60}/local" for letter in "xyz"]
    text = printed(compared(*cells), 80)
    assert text.splitlines()[0].split() == ["A", "B", "C"]
    assert f"\nB  {cells[1]}\n" in text


def test_values_of_four_cells_go_on_in_a_second_line_before_their_brackets() -> None:
    cells = [f"mine/loop/m{at}/local" for at in range(4)]
    lines = [line.split() for line in printed(compared(*cells), 80).splitlines()]
    assert lines[0] == ["m0", "m1", "m2", "m3"]
    assert ["reward", *["0.50"] * 4] in lines
    assert ["[0.22,", "0.78]"] * 4 in lines


def test_many_cells_are_lines_and_columns_that_do_not_fit_stand_below() -> None:
    cells = [f"mine/loop/model-{at}/local" for at in range(5)]
    wide = printed(compared(*cells), 300).splitlines()
    assert len([line for line in wide if line.startswith("mine/loop/model-3/local ")]) == 1
    narrow = printed(compared(*cells), 44).splitlines()
    assert len([line for line in narrow if line.startswith("model-3 ")]) > 2
    for column in ("reward", "errors", "time p95"):
        assert column in "\n".join(narrow)


def test_a_name_is_cut_after_separators_alone_and_any_shortening_tells_cells_apart() -> None:
    assert cut("openai:gpt-5-mini", 10) == ["openai:", "gpt-5-mini"]
    assert cut("openai:gpt-5-mini", 6) == []
    assert differing(["a/b/x/l", "a/b/y/z/l"]) == ["x", "y/z"]
    assert differing(["a/b", "a/b/c"]) == ["a/b", "a/b/c"]
    assert [letters(at) for at in (0, 25, 26, 27, 702)] == ["A", "Z", "AA", "AB", "AAA"]


def test_the_commonest_errors_stand_under_the_last_lines() -> None:
    refused = fault(type="auth", message="Incorrect API key\x1b provided (HTTP 401)")
    errors = [refused, refused, *(fault("runtime", type=kind) for kind in "abc")]
    shown = tabulate([result(f"t{at}", reward=None, error=error) for at, error in enumerate(errors)])
    assert printed(shown, 100).endswith(
        "To see them: uv run eval show --failed\n"
        "  2 x provider, auth: Incorrect API key\\u001b provided (HTTP 401)\n"
        "  1 x runtime, a: Overloaded (HTTP 529)\n"
        "  1 x runtime, b: Overloaded (HTTP 529)\n"
        "  and 1 more kind\n"
    )


def test_the_lines_below_the_table_are_whole_in_a_pipe_and_keep_their_indent_in_a_terminal() -> None:
    long = fault(message=" ".join(["Overloaded"] * 30))
    shown = tabulate([result("a", reward=None, error=long)])
    line = f"  1 x provider, overloaded: {long.message[:160]}"
    assert line in printed(shown, 80).splitlines()
    wrapped = printed(shown, 80, terminal=True).splitlines()[-3:]
    assert all(text.startswith("  ") and len(text) <= 80 for text in wrapped)
    assert "  " + " ".join(text.strip() for text in wrapped) == line


def test_the_last_lines_count_what_was_wrong_and_what_were_errors_and_give_the_command() -> None:
    shown = tabulate(
        [
            result("a"),
            result("b", reward=0.0),
            result("c", reward=None),
            result("d", reward=None, error=fault("runtime")),
        ],
        {"quiz/loop/small/local": 6},
    )
    assert closing(shown, "uv run eval show") == (
        "1 wrong, 2 errors (1 provider, 1 runtime) of 4 rollouts; 2 of 6 were not played.\n"
        "To see them: uv run eval show --failed"
    )
    assert closing(tabulate([result("a")]), "hotswap show") == (
        "None wrong, no errors of 1 rollout.\nTo see the rollouts: hotswap show"
    )
    nothing = tabulate([result("c", reward=None)])
    assert closing(nothing, "x").startswith("Nothing was scored, 1 error (1 provider) of 1 rollout.")
    assert closing(tabulate([result("a", reward=0.5)]), "x").startswith("1 below a reward of 1, no errors")


def test_what_is_not_known_is_said() -> None:
    text = printed(summary(), 200)
    assert "The cost of 8 of 8 rollouts is not known." in text
    assert "95% interval of the mean (Wilson). Every reward is 0 or 1." in text
    assert "3 secrets were masked" in printed(tabulate([result(masked=3)]), 200)
    assert "Rewards are from 0.50 to 2.00." in printed(
        tabulate([result("a", 0, 2.0), result("b", 0, 0.5)]), 200
    )


@pytest.mark.parametrize(
    ("argv0", "environment", "name"),
    [
        ("/x/.venv/bin/eval", {"UV": "/bin/uv"}, "uv run eval"),
        ("/x/.venv/bin/hotswap", {"UV": "/bin/uv"}, "uv run hotswap"),
        ("/x/bin/eval", {}, "hotswap"),
        ("hotswap", {}, "hotswap"),
        ("/x/cli/main.py", {}, "hotswap"),
        ("/x/cli/main.py", {"UV": "/bin/uv"}, "uv run eval"),
    ],
)
def test_the_program_is_named_as_it_was_called_and_never_bare_eval(
    argv0: str, environment: dict[str, str], name: str
) -> None:
    assert program(argv0, environment) == name


def test_text_that_could_steer_a_terminal_is_written_out() -> None:
    assert visible("a\x1b[2Jb\r\nc\td\x07\u202e") == "a\\u001b[2Jb\nc\td\\u0007\\u202e"


def test_a_console_outside_a_terminal_has_no_colour_and_reads_no_markup() -> None:
    raw = io.BytesIO()
    target: Console = console(io.TextIOWrapper(raw, encoding="ascii", write_through=True))
    target.print("[red]é\udc80[/red] :smile:", style="bold")
    assert raw.getvalue() == b"[red]??[/red] :smile:\n"


def test_things_are_counted_in_english() -> None:
    assert (count(1, "error"), count(0, "error")) == ("1 error", "0 errors")


def test_importing_the_tables_loads_no_rich() -> None:
    import subprocess

    code = (
        "import hotswap.cli._say, hotswap.cli._tables, hotswap.cli._trace, sys; print('rich' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
