"""What a run says once of its rollouts."""

from _kit.traces import scored

from hotswap import remarks
from hotswap.remarks import Remarks
from hotswap.trace import BoxRecord, EgressRecord, Trace


def refused(*hosts: str, reached: str = "good.test") -> Trace:
    tried = [EgressRecord(host, 443, allowed=False) for host in hosts]
    return placed(BoxRecord(egress=[*tried, EgressRecord(reached, 443, allowed=True)]))


def placed(box: BoxRecord) -> Trace:
    found = scored()
    found.box = box
    return found


def test_a_limit_that_does_not_hold_is_said_once_with_the_runtime_that_made_the_box() -> None:
    said = Remarks()
    box = BoxRecord(runtime="bwrap", not_enforced=["memory_mb"])
    assert list(said.of(placed(box))) == ["memory_mb is not enforced by runtime bwrap"]
    assert list(said.of(placed(box))) == []


def test_hosts_that_were_refused_are_counted_once_a_rollout_and_the_most_frequent_come_first() -> None:
    said = Remarks()
    for found in (refused("a.test", "a.test", "b.test"), refused("b.test")):
        assert list(said.of(found)) == []
    assert list(said.at_the_end()) == ["hosts that boxes were refused, by rollouts: b.test (2), a.test (1)"]


def test_many_hosts_are_named_in_part_and_kept_in_part() -> None:
    said = Remarks()
    list(said.of(refused(*(f"h{number}.test" for number in range(remarks.KEPT + 50)))))
    (line,) = said.at_the_end()
    assert line.endswith(f"h4.test (1), and {remarks.KEPT - remarks.SHOWN} more")


def test_a_run_whose_boxes_were_refused_nothing_says_nothing() -> None:
    said = Remarks()
    list(said.of(refused()))
    assert list(said.at_the_end()) == []
