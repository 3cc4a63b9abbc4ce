"""Ids are unique and sort by time; the name of a run is safe as a folder."""

from pathlib import Path

import pytest

from hotswap.ids import new_id, new_name


def test_ids_are_unique_and_sort_by_time() -> None:
    ids = [new_id() for _ in range(2000)]
    assert len(set(ids)) == 2000
    stamps = [one[:9] for one in ids]
    assert stamps == sorted(stamps)
    assert {len(one) for one in ids} == {16}
    assert set("".join(ids)) <= set("0123456789ABCDEFGHJKMNPQRSTVWXYZ")


@pytest.mark.parametrize(
    ("taskset", "begins"),
    [("gsm8k", "gsm8k--20"), ("./my tasks.py", "my-tasks.py--20"), ("../..", "run--20")],
)
def test_a_run_is_named_after_its_taskset_and_safe_as_a_folder(taskset: str, begins: str) -> None:
    name = new_name(taskset)
    assert name.startswith(begins)
    assert Path(name).name == name
