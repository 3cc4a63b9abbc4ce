"""What a person would say of an answer, and what `capitals` says."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from _kit import answers

from hotswap.contracts.task import Task
from hotswap.contracts.taskset import Score
from hotswap.tasksets._mentions import fold
from hotswap.tasksets._naming import read
from hotswap.tasksets._places import countries, other_cities
from hotswap.tasksets.capitals import Capitals

RIGHT = """
france | Paris
france | paris
france | PARIS.
france | **Paris**
france | "Paris"
france | Paris!
france | Paris, France
france | The capital of France is Paris.
france | The capital city of France is called Paris.
france | France's capital is Paris
france | It's Paris.
france | It is Paris, of course.
france | Answer: Paris
france | \\boxed{Paris}
france | \\boxed{\\text{Paris}}
france | I think it is Paris.
france | I'm not sure, but I believe it's Paris.
france | Not sure. Paris?
france | If I'm not mistaken, Paris.
france | If I'm not mistaken it is Paris.
france | I don't know, maybe Paris
france | Paris, isn't it?
france | Paris. In French it is male.
france | Paris, isn't that right?
france | Paris is not only the capital but also the largest city.
france | Paris is the capital of France and its largest city, with two million people.
france | It's not Lyon, it's Paris.
france | No doubt: Paris
france | No doubt Paris.
france | Without doubt, Paris
france | Without a doubt it is Paris.
france | Paris, without doubt.
france | Paris, no doubt.
france | Beyond doubt, Paris.
france | Undoubtedly Paris
france | I have no doubt that it is Paris.
france | There is little doubt that it is Paris.
france | I don't doubt that it is Paris.
france | I never doubted that it is Paris.
france | When in doubt, Paris.
france | I doubt it is Lyon. It is Paris.
france | It is hardly a secret that it is Paris.
france | Hardly anyone doubts that it is Paris.
france | Hardly Lyon. Paris.
france | It is unlikely to be Lyon; it is Paris.
france | Paris, not Lyon.
france | Not Lyon but Paris.
france | The capital is Paris rather than Lyon.
france | Lyon? No, Paris.
france | Lyon. Actually, it's Paris.
france | Paris. Not to be confused with Paris, Texas.
france | It is none other than Paris.
france | The capital of France is Paris. The capital of Germany is Berlin.
france | The capital of Germany is Berlin and the capital of France is Paris.
france | Germany's capital is Berlin; France's is Paris.
france | Paris lies on the Seine, some 340 km from London.
france | Paris is larger than Lyon and Marseille.
france | The capital of France is Paris. Other large cities are Lyon, Marseille and Toulouse.
france | 1. Paris
france | - Paris
france | <think>Lyon? No: Paris.</think>Paris
australia | Canberra
australia | Sydney is the largest city, but the capital is Canberra.
australia | Many people think Sydney is the capital, but it is Canberra.
australia | Canberra, which lies between Sydney and Melbourne.
australia | Canberra. It was chosen in 1908 as a compromise between Sydney and Melbourne.
australia | The capital is not Sydney but Canberra.
australia | Sydney isn't the capital and Canberra is.
australia | Australia's major cities are Sydney, Melbourne and Brisbane. The capital is Canberra.
australia | Sydney, the largest city, is not the capital. Canberra is.
australia | Sydney is the capital of New South Wales; Canberra is the capital of Australia.
australia | Unlike Sydney, Melbourne and Perth, Canberra is inland.
brazil | Brasilia
brazil | Brasília
brazil | Rio de Janeiro was the capital until 1960, when Brasília was founded.
brazil | The capital is Brasília, and the largest city is São Paulo.
nigeria | The former capital was Lagos; now it is Abuja.
kazakhstan | Astana
kazakhstan | Nur-Sultan
kazakhstan | Astana (formerly Nur-Sultan)
kazakhstan | Astana, which replaced Almaty.
myanmar | Naypyidaw
myanmar | Nay Pyi Taw
myanmar | Naypyitaw, formerly Yangon
ukraine | Kyiv
ukraine | Kiev
ukraine | Kyiv (Kiev)
ukraine | Kyiv or Kiev
ukraine | Київ
united-states | Washington, D.C.
united-states | Washington DC
united-states | Washington
united-states | Washington, D.C. is the capital of the USA.
united-states | The capital is Washington, D.C., not New York City.
united-states | Washington, District of Columbia
mexico | Mexico City
mexico | Ciudad de México
mexico | CDMX
united-kingdom | London is the capital of England and of the United Kingdom.
turkey | Ankara (not Istanbul)
turkey | Istanbul is often mistaken for the capital, but it's Ankara.
turkey | Istanbul was the capital of the Ottoman Empire; today it is Ankara.
mongolia | Ulan Bator
mongolia | Ulaanbaatar, Mongolia
canada | Ottawa, Ontario
czech-republic | Praha
south-korea | Seoul, South Korea
vietnam | Hà Nội
vietnam | Hanoi. Ho Chi Minh City is larger.
iceland | Reykjavik
panama | Panama City, Panama
trinidad-and-tobago | Port-of-Spain
""".strip().splitlines()

WRONG = """
france | Lyon
france | not Paris
france | Not Paris.
france | Paris is not the capital
france | Paris is not the capital of France.
france | Paris isn't the capital.
france | It is not Paris.
france | I don't think it is Paris.
france | The capital is certainly not Paris
france | The capital is anywhere rather than Paris.
france | It is false that Paris is the capital.
france | Paris is wrong.
france | I doubt that it is Paris
france | I doubt it is Paris.
france | I highly doubt it's Paris.
france | I am doubtful that it is Paris.
france | It is doubtful that Paris is the capital.
france | It is unlikely to be Paris.
france | Hardly Paris.
france | It is hardly Paris.
france | It can scarcely be Paris.
france | Paris is hardly the capital.
france | Paris is unlikely.
france | Paris is doubtful.
france | Paris? I doubt it.
france | Paris? Hardly.
france | Paris, I doubt it.
france | Anything but Paris.
france | Far from Paris
france | By no means Paris.
france | Paris? No.
france | Paris? No, it's Lyon.
france | Paris. No, wait, it's Lyon.
france | Paris or Lyon
france | Paris or Lyon?
france | Lyon or Paris
france | Either Paris or Lyon.
france | Paris/Lyon
france | Paris and Lyon
france | Paris, London, Berlin
france | London, Berlin, Paris
france | London, Paris, Berlin
france | Paris, Lyon
france | Paris; Lyon
france | - Paris\\n- Lyon
france | 1. Paris\\n2. Marseille\\n3. Lyon
france | It could be Paris, or maybe Lyon.
france | The capital of France is Paris or Lyon.
france | I would go with Lyon or Paris.
france | Paris. Or Lyon.
france | The capital of France is Paris. The capital of France is Lyon.
france | Lyon is the capital. Paris is the largest city.
france | I think it's Lyon; Paris is bigger.
france | Neither Lyon nor Paris.
france | Paris or Auxerre-sur-Mer
france | Paris is the capital of Germany.
france | The capital of Germany is Paris.
france | Germany's capital is Paris.
france | Paris was the capital of France until 1940.
france | France
france | I don't know.
france | The capital of France is
france | Parisian
france | Comparison
france | <think>Paris</think>
france | <think>It must be Paris
australia | Sydney
australia | Sydney or Canberra
australia | Canberra? No, Sydney.
australia | Canberra is the capital of New Zealand.
australia | The capital is Sydney, and Canberra is a large town.
brazil | São Paulo; Brasília is the seat of government.
brazil | The capital of Brazil is São Paulo. Brasília is another city.
turkey | Istanbul
turkey | The capital of Turkey is Istanbul.
turkey | Istanbul/Ankara
united-states | New York City
united-states | Washington D.C. is not the capital.
united-states | Seattle, Washington
united-states | New York or Washington
mexico | Mexico
panama | Panama
kazakhstan | Almaty, formerly Astana
canada | Toronto, Ontario
united-kingdom | London or Edinburgh
germany | Bonn
germany | berlin or bonn
""".strip().splitlines()


def score(task_id: str, answer: str | None) -> Score:
    task = next(task for task in Capitals().load() if task.id == task_id)
    return answers.score(Capitals(), task, answer)


@pytest.mark.parametrize("case", RIGHT)
def test_a_person_would_accept(case: str) -> None:
    task_id, answer = case.split(" | ")
    found = score(task_id, answer.replace("\\n", "\n"))
    assert found.value == 1, found
    assert found.note is None
    assert str(found.extracted) in answer
    assert found.expected


@pytest.mark.parametrize("case", WRONG)
def test_a_person_would_not_accept(case: str) -> None:
    task_id, answer = case.split(" | ")
    found = score(task_id, answer.replace("\\n", "\n"))
    assert found.value == 0, found
    assert found.note


@pytest.mark.parametrize(
    "answer", ["Paris, " * 50_000, "Paris " * 50_000, "Paris or Lyon. " * 50_000, "!" * 500_000]
)
def test_a_model_that_cannot_stop_is_read_in_bounded_time(answer: str) -> None:
    started = time.process_time()
    score("france", answer)
    assert time.process_time() - started < 5


@pytest.mark.parametrize("answer", [None, "", "   ", "\n"])
def test_no_answer_is_wrong_and_says_so(answer: str | None) -> None:
    assert score("france", answer) == Score(0.0, "no answer", None, "Paris")


def test_the_note_says_why_an_answer_is_wrong() -> None:
    assert score("france", "Not Paris").note == "Paris is denied"
    assert score("france", "Paris or Lyon").note == "Lyon is named too"
    assert score("france", "Lyon").note == "another city: Lyon"
    assert score("france", "The capital of Germany is Paris").note == "Paris is given to another country"
    assert score("france", "Blue").note == "no accepted name of the capital"


@pytest.mark.parametrize("task", list(Capitals().load()), ids=lambda task: task.id)
def test_every_accepted_name_is_right_and_every_other_capital_is_not(task: Task) -> None:
    country = next(country for country in countries() if country.id == task.id)

    def right(answer: str) -> bool:
        return read(answer, country).right

    sentence = f"The capital of {country.names[0]} is"
    for name in country.capitals:
        assert right(name)
        assert right(name.lower())
        assert right(f"{sentence} {name}.")
        assert not right(f"{sentence} not {name}.")
    for other in countries():
        if other is not country:
            assert not right(f"{sentence} {other.capitals[0]}.")
            assert not right(f"{country.capitals[0]} or {other.capitals[0]}")


@pytest.mark.parametrize(
    ("word", "folded"),
    [
        ("K\u00f8benhavn", "kobenhavn"),
        ("\u0141\u00f3d\u017a", "lodz"),
        ("N\u2019Djamena", "ndjamena"),
        ("Lyon's", "lyon"),
    ],
)
def test_names_are_compared_without_case_accents_and_apostrophes(word: str, folded: str) -> None:
    assert fold(word) == folded


def test_there_are_about_fifty_with_ids_and_prompts_of_their_own() -> None:
    tasks = list(Capitals().load())
    assert 50 <= len(tasks) <= 55
    assert len({task.id for task in tasks}) == len({task.prompt for task in tasks}) == len(tasks)
    assert tasks[0].id == "france"
    assert tasks[0].prompt == "What is the capital of France? Answer with the name of the city only."
    assert tasks[0].tags == ("europe",)
    assert {tag for task in tasks for tag in task.tags} == {
        "africa",
        "asia",
        "europe",
        "north-america",
        "oceania",
        "south-america",
    }


def test_no_city_of_the_lists_is_also_an_accepted_capital_of_a_country_that_is_asked() -> None:
    asked = {task.id for task in Capitals().load()}
    accepted = {name for country in countries() if country.id in asked for name in country.capitals}
    assert not accepted & set(other_cities())


def test_loading_it_needs_the_standard_library_alone() -> None:
    code = (
        "import sys; before = set(sys.modules); import hotswap.tasksets.capitals, hotswap.tasksets.gsm8k, "
        "hotswap.tasksets.jsonl, hotswap.tasksets.reverse_text; "
        "new = {name.split('.')[0] for name in set(sys.modules) - before}; "
        "print(*new - set(sys.stdlib_module_names))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(found.stdout.split()) <= {"hotswap"}
