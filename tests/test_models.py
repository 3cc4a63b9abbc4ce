"""From a model's name to an endpoint: forms of a name, keys, prices, and what is said where it fails."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from hotswap import models
from hotswap.contracts.model import Prices
from hotswap.dialects import known
from hotswap.errors import UsageError
from hotswap.limits import cost
from hotswap.messages import Usage
from hotswap.models.addresses import base_url

KEYS = {
    "OPENAI_API_KEY": "sk-openai-0001",
    "ANTHROPIC_API_KEY": "sk-anthropic-0002",
    "OPENROUTER_API_KEY": "sk-openrouter-0003",
}


@dataclass
class Asked:
    """Asks for models in one environment with some tables."""

    tables: Mapping[str, Any]
    environment: Mapping[str, str]

    def __call__(self, ref: str, **settings: Any) -> models.Model:
        return models.resolve(ref, self.tables, self.environment, settings)

    def refusal(self, ref: str, **settings: Any) -> str:
        with pytest.raises(UsageError) as caught:
            self(ref, **settings)
        return str(caught.value)


def ask(environment: Mapping[str, str] = KEYS, **tables: Any) -> Asked:
    return Asked(tables, environment)


@pytest.mark.parametrize(
    ("ref", "url", "model", "key"),
    [
        ("openai/gpt-5-mini", "https://api.openai.com/v1", "gpt-5-mini", KEYS["OPENAI_API_KEY"]),
        (
            "anthropic/claude-sonnet-4-5",
            "https://api.anthropic.com/v1",
            "claude-sonnet-4-5",
            KEYS["ANTHROPIC_API_KEY"],
        ),
        ("openrouter/qwen/qwen3", "https://openrouter.ai/api/v1", "qwen/qwen3", KEYS["OPENROUTER_API_KEY"]),
        ("ollama/qwen3:8b", "http://127.0.0.1:11434/v1", "qwen3:8b", None),
        ("vllm/Qwen/Qwen3-8B", "http://127.0.0.1:8000/v1", "Qwen/Qwen3-8B", None),
        ("smollm2", "", "smollm2", None),
        ("tiny@http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1", "tiny", None),
        ("org/tiny@https://models.example", "https://models.example/v1", "org/tiny", None),
    ],
)
def test_a_name_becomes_an_address_a_model_and_a_key(ref: str, url: str, model: str, key: str | None) -> None:
    found = ask()(ref)
    assert (found.name, found.upstream.url, found.upstream.model, found.upstream.key) == (
        ref,
        url,
        model,
        key,
    )


def test_a_preset_knows_the_dialects_of_its_address_in_order_of_preference() -> None:
    assert ask()("openai/gpt-5-mini").upstream.dialects == ("responses", "chat")
    assert ask()("anthropic/claude-sonnet-4-5").upstream.dialects == ("messages", "chat")


def test_an_address_speaks_chat_unless_it_says_otherwise() -> None:
    assert ask()("tiny@http://127.0.0.1:8000").upstream.dialects == ("chat",)
    other = ask()("tiny@http://127.0.0.1:8000/v1?dialect=messages,chat").upstream
    assert (other.dialects, other.url) == (("messages", "chat"), "http://127.0.0.1:8000/v1")


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/v1"),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000/v1"),
        ("http://127.0.0.1:8000/v1/chat/completions", "http://127.0.0.1:8000/v1"),
        ("https://api.anthropic.com", "https://api.anthropic.com/v1"),
        ("https://api.anthropic.com/v1/messages", "https://api.anthropic.com/v1"),
        ("http://[::1]:8000", "http://[::1]:8000/v1"),
        ("https://api.example/api/paas/v4", "https://api.example/api/paas/v4"),
        ("https://google.example/v1beta/openai/", "https://google.example/v1beta/openai"),
        ("https://gateway.example/v1/account/openai", "https://gateway.example/v1/account/openai"),
        ("https://proxy.example/litellm", "https://proxy.example/litellm/v1"),
    ],
)
def test_a_base_address_may_be_written_with_and_without_its_version(written: str, url: str) -> None:
    assert base_url(written, "here") == url


@pytest.mark.parametrize(
    "written", ["127.0.0.1:8000", "ftp://h/v1", "http://", "http://h:99999", "http://h:x"]
)
def test_what_is_no_address_is_refused(written: str) -> None:
    assert "is no address" in ask().refusal(f"tiny@{written}")


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    refused = ask().refusal("tiny@http://someone:hunter2@models.example/v1")
    assert "holds a password" in refused
    assert "hunter2" not in refused
    assert "hunter2" not in ask().refusal("tiny@ftp://someone:hunter2@models.example/v1")
    assert "hunter2" not in ask().refusal("http://someone:hunter2@models.example/v1")


def test_an_unknown_parameter_of_an_address_and_an_unknown_dialect_are_refused() -> None:
    assert "Did you mean 'dialect'?" in ask().refusal("tiny@http://h/v1?dialekt=chat")
    assert "Did you mean 'messages'?" in ask().refusal("tiny@http://h/v1?dialect=message")


def test_an_address_alone_is_no_model() -> None:
    assert "NAME@http://HOST:PORT/v1" in ask().refusal("http://127.0.0.1:8000/v1")


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0:1234", "http://127.0.0.1:1234/v1"),
        (":1234", "http://127.0.0.1:1234/v1"),
        ("[::]:1234", "http://127.0.0.1:1234/v1"),
        ("box", "http://box:11434/v1"),
        ("https://ollama.example", "https://ollama.example:443/v1"),
        ("http://box:1234/", "http://box:1234/v1"),
        ("", "http://127.0.0.1:11434/v1"),
    ],
)
def test_ollama_host_is_read_as_ollama_reads_it(host: str, url: str) -> None:
    assert ask({"OLLAMA_HOST": host})("ollama/qwen3").upstream.url == url


def test_a_wrong_ollama_host_is_named() -> None:
    assert "address of ollama" in ask({"OLLAMA_HOST": "a:b:c"}).refusal("ollama/qwen3")


def test_vllm_takes_its_address_and_an_optional_key_from_the_environment() -> None:
    environment = {"VLLM_BASE_URL": "http://gpu:9000", "VLLM_API_KEY": "token-0004"}
    found = ask(environment)("vllm/tiny").upstream
    assert (found.url, found.key) == ("http://gpu:9000/v1", "token-0004")


@pytest.mark.parametrize(("given", "said"), [({}, "is not set"), ({"OPENAI_API_KEY": " "}, "is empty")])
def test_a_missing_or_empty_key_is_refused_by_the_name_of_its_variable(
    given: Mapping[str, str], said: str
) -> None:
    refused = ask(given).refusal("openai/gpt-5-mini")
    assert "OPENAI_API_KEY" in refused
    assert said in refused
    assert "export OPENAI_API_KEY=" in refused


@pytest.mark.parametrize("key", ["short", "sk-with\nline", "sk-with space", "sk-näive-key"])
def test_what_cannot_be_a_key_is_refused_and_not_repeated(key: str) -> None:
    refused = ask({"OPENAI_API_KEY": key}).refusal("openai/gpt-5-mini")
    assert "OPENAI_API_KEY" in refused
    assert key not in refused


def test_space_around_a_key_is_taken_off() -> None:
    assert ask({"OPENAI_API_KEY": " sk-openai-0001\n"})("openai/gpt-5-mini").upstream.key == "sk-openai-0001"


def test_a_key_is_in_no_text_of_its_model() -> None:
    assert KEYS["OPENAI_API_KEY"] not in repr(ask()("openai/gpt-5-mini"))


def test_a_table_with_a_url_is_an_endpoint_under_its_own_name() -> None:
    table = {
        "url": "http://127.0.0.1:9",
        "model": "org/tiny",
        "dialects": ["messages"],
        "context": 4096,
        "headers": {"X-Team": "evals"},
        "drop": ["logprobs"],
        "sampling": {"temperature": 0.5},
    }
    found = ask(fast=table)("fast")
    assert (found.name, found.preset) == ("fast", None)
    upstream = found.upstream
    assert (upstream.url, upstream.model, upstream.key) == ("http://127.0.0.1:9/v1", "org/tiny", None)
    assert (upstream.dialects, upstream.context, upstream.drop) == (("messages",), 4096, ("logprobs",))
    assert (dict(upstream.headers), dict(upstream.sampling)) == ({"X-Team": "evals"}, {"temperature": 0.5})


def test_the_model_of_a_table_is_its_name_unless_it_says_otherwise() -> None:
    assert ask(tiny={"url": "http://h"})("tiny").upstream.model == "tiny"


def test_hyphen_and_underscore_are_the_same_in_a_tables_name() -> None:
    assert ask(my_model={"url": "http://h", "model": "x"})("my-model").upstream.model == "x"


def test_a_table_without_a_url_changes_the_model_that_it_names() -> None:
    found = ask(fast={"model": "openai/gpt-5-mini", "sampling": {"effort": "low"}, "context": 1000})("fast")
    assert (found.name, found.preset, found.upstream.model) == ("fast", "openai", "gpt-5-mini")
    assert found.upstream.key == KEYS["OPENAI_API_KEY"]
    assert (found.upstream.context, dict(found.upstream.sampling)) == (1000, {"effort": "low"})


def test_a_table_may_change_the_model_of_its_own_name_and_another_table() -> None:
    assert ask(smollm2={"context": 4096})("smollm2").upstream.context == 4096
    base = {"url": "http://h", "context": 10, "drop": ["seed"]}
    found = ask(base=base, longer={"model": "base", "context": 20})("longer").upstream
    assert (found.url, found.context, found.drop) == ("http://h/v1", 20, ("seed",))


def test_tables_that_name_each_other_are_refused() -> None:
    assert "needs a url" in ask(a={"model": "b"}, b={"model": "a"}).refusal("a")
    assert "needs a url" in ask(alone={"context": 5}).refusal("alone")


def test_a_tables_key_is_the_name_of_a_variable() -> None:
    environment = {"FAST_KEY": "sk-fast-0005"}
    assert (
        ask(environment, fast={"url": "http://h", "key": "FAST_KEY"})("fast").upstream.key == "sk-fast-0005"
    )
    refused = ask({}, fast={"url": "http://h", "key": "FAST_KEY"}).refusal("fast")
    assert "FAST_KEY" in refused
    assert "[models.fast]" in refused


def test_a_key_written_into_a_table_is_refused_and_not_repeated() -> None:
    refused = ask(fast={"url": "http://h", "key": "sk-a-real-key"}).refusal("fast")
    assert "NAME of the variable" in refused
    assert "sk-a-real-key" not in refused


def test_an_address_takes_a_key_only_where_a_variable_is_named() -> None:
    assert ask()("openai/gpt-5-mini@https://elsewhere.example").upstream.key is None
    named = ask()("gpt@https://elsewhere.example/v1?key=OPENAI_API_KEY").upstream
    assert named.key == KEYS["OPENAI_API_KEY"]


def test_a_preset_at_another_address_leaves_its_key_and_its_prices_behind() -> None:
    moved = ask()("openai/gpt-5-mini", url="https://elsewhere.example/v1").upstream
    assert (moved.key, moved.prices, moved.model) == (None, None, "gpt-5-mini")
    kept = ask()("openai/gpt-5-mini", url="https://api.openai.com").upstream
    assert kept.key == KEYS["OPENAI_API_KEY"]


def test_a_models_own_settings_win_over_its_table() -> None:
    asked = ask(fast={"url": "http://h", "sampling": {"temperature": 0.5, "seed": 1}, "context": 10})
    found = asked("fast", temperature=0.7, context=20).upstream
    assert (dict(found.sampling), found.context) == ({"temperature": 0.7, "seed": 1}, 20)


def test_the_embedded_model_has_temperature_0_unless_it_is_set() -> None:
    assert dict(ask()("smollm2").upstream.sampling) == {"temperature": 0}
    assert dict(ask()("smollm2", temperature=0.8).upstream.sampling) == {"temperature": 0.8}


@pytest.mark.parametrize(
    "table", [{"modle": "x"}, {"prices": {"inputs": 1}}, {"sampling": {"temprature": 1}}]
)
def test_an_unknown_key_of_a_table_is_refused_with_a_suggestion(table: Mapping[str, Any]) -> None:
    refused = ask(fast={"url": "http://h", **table}).refusal("fast")
    assert "[models.fast]" in refused
    assert "Did you mean" in refused


@pytest.mark.parametrize(
    ("ref", "said"),
    [
        ("opnai/gpt-5-mini", "Did you mean 'openai'?"),
        ("smolm2", "Did you mean 'smollm2'?"),
        ("fsat", "Did you mean 'fast'?"),
        ("openai", "-m openai/MODEL"),
        ("openai/", "-m openai/MODEL"),
        ("smollm2/135m", "-m smollm2"),
        ("nothing_like_it", "NAME@http://HOST:PORT/v1"),
    ],
)
def test_an_unknown_model_is_refused_with_what_could_have_been_meant(ref: str, said: str) -> None:
    assert said in ask(fast={"url": "http://h"}).refusal(ref)


def test_an_unknown_model_lists_presets_and_tables() -> None:
    refused = ask(fast={"url": "http://h"}).refusal("nothing_like_it")
    for name in ("fast", "openai/MODEL", "smollm2", "vllm/MODEL"):
        assert name in refused


def test_prices_and_context_come_from_the_list() -> None:
    found = ask()("openai/gpt-4o").upstream
    assert found.prices == Prices(input=2.5, cached=1.25, output=10.0)
    assert found.context == 128_000
    claude = ask()("anthropic/claude-opus-4-5").upstream
    assert claude.prices == Prices(input=5.0, cached=0.5, cache_write=6.25, output=25.0)


@pytest.mark.parametrize("ref", ["openai/no-such-model", "openrouter/no/such", "ollama/qwen3", "x@http://h"])
def test_an_unknown_price_is_null(ref: str) -> None:
    assert ask()(ref).upstream.prices is None


def test_the_embedded_model_is_known_to_cost_nothing() -> None:
    assert ask()("smollm2").upstream.prices == Prices(input=0.0, output=0.0)


def test_a_stated_price_wins_over_the_list_and_leaves_the_others() -> None:
    found = ask(fast={"model": "openai/gpt-4o", "prices": {"input": 1.0}})("fast").upstream
    assert found.prices == Prices(input=1.0, cached=1.25, output=10.0)


def test_stated_prices_make_an_endpoint_priced() -> None:
    found = ask(fast={"url": "http://h", "prices": {"input": 1.0, "output": 2.0}})("fast").upstream
    assert found.prices == Prices(input=1.0, output=2.0)


@pytest.mark.parametrize(
    ("prices", "free"),
    [
        (Prices(input=0.0, output=0.0), True),
        (Prices(input=0.0, output=0.0, cached=0.0, cache_write=0.0), True),
        (Prices(input=0.0, output=0.0, cached=0.1), False),
        (Prices(input=0.0, output=0.0, cache_write=0.1), False),
        (Prices(input=0.0), False),
        (Prices(), False),
        (Prices(input=0.0, output=0.0, above=10, beyond=Prices(input=0.0, output=0.0)), True),
        (Prices(input=0.0, output=0.0, above=10, beyond=Prices(input=0.0, output=1.0)), False),
    ],
)
def test_a_model_is_free_where_nothing_of_any_call_costs_anything(prices: Prices, free: bool) -> None:
    assert prices.free is free


def test_a_long_call_costs_the_prices_of_its_step() -> None:
    prices = ask()("anthropic/claude-sonnet-4-5").upstream.prices
    assert cost(Usage(input=200_000, output=1_000), prices) == pytest.approx(0.6 + 0.015)
    assert cost(Usage(input=200_001, output=1_000), prices) == pytest.approx(1.200006 + 0.0225)


def test_a_stated_price_holds_for_long_calls_too() -> None:
    prices = ask(mine={"model": "anthropic/claude-sonnet-4-5", "prices": {"input": 1}})(
        "mine"
    ).upstream.prices
    assert cost(Usage(input=300_000, output=0), prices) == pytest.approx(0.3)


def test_models_whose_key_is_present_are_available_first() -> None:
    found = [
        str(one) for one in models.available({"OPENAI_API_KEY": "sk-openai-0001", "ANTHROPIC_API_KEY": ""})
    ]
    assert found[0] == "openai/MODEL (OPENAI_API_KEY)"
    assert not [name for name in found if "anthropic" in name or "openrouter" in name]
    assert {"smollm2", "ollama/MODEL", "vllm/MODEL"} <= set(found)


def test_a_run_without_a_model_is_told_what_it_could_name() -> None:
    said = str(models.none_chosen({"OPENAI_API_KEY": "sk-openai-0001"}, {"fast": {}}))
    for words in ("-m NAME", "openai/MODEL (OPENAI_API_KEY)", "smollm2", "fast"):
        assert words in said
    assert "sk-openai-0001" not in said
    assert "ANTHROPIC_API_KEY" in str(models.none_chosen({}, {}))


def test_effort_reaches_a_chat_endpoint_in_its_own_word() -> None:
    sampling = ask()("openai/gpt-5-mini", effort="high").upstream.sampling
    assert known()["chat"].impose({"model": "m"}, "m", sampling) == {"reasoning_effort": "high"}


@pytest.mark.parametrize(
    ("ref", "meant"),
    [
        ("gpt-5-mini", "openai/gpt-5-mini"),
        ("o3", "openai/o3"),
        ("claude-sonnet-4-5", "anthropic/claude-sonnet-4-5"),
    ],
)
def test_a_model_without_its_preset_is_suggested_with_it(ref: str, meant: str) -> None:
    assert ask().refusal(ref).startswith(f"no model {ref!r}. Did you mean {meant!r}? Known: ")


def test_a_word_that_no_provider_serves_is_suggested_nothing() -> None:
    assert ask().refusal("no-such-thing").startswith("no model 'no-such-thing'. Known: ")


@pytest.mark.parametrize(
    ("ref", "address"),
    [
        ("localhost:8101", "http://localhost:8101/v1"),
        ("127.0.0.1:8101/v1", "http://127.0.0.1:8101/v1"),
        ("gpu.example:8000/v1/chat/completions", "http://gpu.example:8000/v1"),
    ],
)
def test_a_bare_address_is_shown_as_it_must_be_written(ref: str, address: str) -> None:
    assert ask().refusal(ref) == f"an address needs a model: NAME@{address}"
