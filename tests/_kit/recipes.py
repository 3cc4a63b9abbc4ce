"""How each real agent program is started behind the proxy: data alone, one recipe for each dialect that it speaks.

In every text, `{url}` is the proxy's address, `{model}` the model's name, and `{home}`, `{work}` and `{prompt}` are
what they say. The secret is in the environment alone, as EVAL_KEY or under the name that the program knows: no recipe
writes it to a file or says it in its arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

__all__ = ["RECIPES", "Recipe"]


@dataclass(frozen=True)
class Recipe:
    """One way to start a program."""

    program: str
    """The name of its command."""
    dialect: str
    argv: tuple[str, ...]
    """What follows the command."""
    env: Mapping[str, str] = field(default_factory=dict)
    key: str = "EVAL_KEY"
    """The variable that it takes the secret from."""
    files: Mapping[str, Any] = field(default_factory=dict)
    """Files below its HOME: text as it is, all else as JSON."""
    stdin: bool = True
    """The prompt comes on its standard input."""
    python: str | None = None
    """The package whose own environment it is in; null for programs of npm."""
    tool: str = "bash"
    """Its tool that runs shell commands."""
    takes: str = "command"
    """What that tool calls its command."""
    acts: str | None = None
    """What the model says to run a `{command}`, in a program that has no tools."""
    answers: str | None = None
    """What the model says for such a program to end with `{words}` as its answer."""
    ends: str | None = None
    """The command to run for the program to end with `{words}`, where it does not end by what is said."""
    resumes: bool = True
    """It asks again when a stream broke off."""


CODEX = Recipe(
    "codex",
    "responses",
    ("exec", "--strict-config", "--skip-git-repo-check", "--ephemeral", "--json", "-"),
    env={"CODEX_HOME": "{home}/.codex"},
    files={
        ".codex/config.toml": """\
model = "{model}"
model_provider = "eval"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
web_search = "disabled"
model_context_window = 200000
[model_providers.eval]
name = "eval"
base_url = "{url}/v1"
env_key = "EVAL_KEY"
wire_api = "responses"
supports_websockets = false
request_max_retries = 2
stream_max_retries = 2
[features]
unbounded_connection_retries = false
apps = false
plugins = false
remote_plugin = false
shell_snapshot = false
[agents]
enabled = false
[history]
persistence = "none"
[analytics]
enabled = false
[feedback]
enabled = false
"""
    },
    tool="exec_command",
    takes="cmd",
)

CLAUDE = Recipe(
    "claude",
    "messages",
    ("-p", "--dangerously-skip-permissions", "--model", "{model}", "--strict-mcp-config", "--no-session-persistence",
     "--output-format", "stream-json", "--verbose"),
    env={
        "CLAUDE_CONFIG_DIR": "{home}/.claude",
        "ANTHROPIC_BASE_URL": "{url}",
        "IS_SANDBOX": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_AUTOUPDATER": "1",
    },
    key="ANTHROPIC_API_KEY",
    tool="Bash",
)  # fmt: skip


def _opencode(dialect: str, package: str) -> Recipe:
    provider = {
        "npm": package,
        "name": "proxy",
        "options": {"baseURL": "{url}/v1", "apiKey": "{env:EVAL_KEY}"},
        "models": {"{model}": {"name": "{model}", "limit": {"context": 200000, "output": 32000}}},
    }
    settings = {
        "model": "proxy/{model}",
        "small_model": "proxy/{model}",
        "autoupdate": False,
        "share": "disabled",
        "snapshot": False,
        "enabled_providers": ["proxy"],
        "permission": "allow",
        "provider": {"proxy": provider},
    }
    without = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "SHARE")
    return Recipe(
        "opencode",
        dialect,
        ("run", "--format", "json", "--auto", "--title", "t", "-m", "proxy/{model}"),
        env={
            "OPENCODE_CONFIG": "{home}/opencode.json",
            **{f"OPENCODE_DISABLE_{what}": "1" for what in without},
        },
        files={"opencode.json": settings},
    )


def _pi(dialect: str, api: str, base: str) -> Recipe:
    model = {"id": "{model}", "reasoning": True, "contextWindow": 200000, "maxTokens": 32000}
    provider = {"baseUrl": base, "api": api, "apiKey": "$EVAL_KEY", "models": [model]}
    return Recipe(
        "pi",
        dialect,
        ("-p", "--mode", "json", "--no-session", "--no-approve", "--provider", "proxy", "--model", "{model}"),
        env={"PI_CODING_AGENT_DIR": "{home}/pi", "PI_OFFLINE": "1", "PI_TELEMETRY": "0"},
        files={"pi/models.json": {"providers": {"proxy": provider}}},
    )


QWEN = Recipe(
    "qwen",
    "chat",
    ("--auth-type", "openai", "--approval-mode", "yolo", "--output-format", "stream-json", "{prompt}"),
    env={"OPENAI_BASE_URL": "{url}/v1", "OPENAI_MODEL": "{model}"},
    key="OPENAI_API_KEY",
    files={
        ".qwen/settings.json": {
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
            "general": {"enableAutoUpdate": False},
            "memory": {
                "enableManagedAutoMemory": False,
                "enableManagedAutoDream": False,
                "enableAutoSkill": False,
            },
        }
    },
    stdin=False,
    tool="run_shell_command",
)

QWEN_MESSAGES = replace(
    QWEN,
    dialect="messages",
    argv=("--auth-type", "anthropic", *QWEN.argv[2:]),
    env={"ANTHROPIC_BASE_URL": "{url}", "ANTHROPIC_MODEL": "{model}"},
    key="ANTHROPIC_API_KEY",
)

GEMINI = Recipe(
    "gemini",
    "gemini",
    ("--approval-mode", "yolo", "--skip-trust", "-m", "{model}", "--output-format", "json", "-p", "{prompt}"),
    env={"GOOGLE_GEMINI_BASE_URL": "{url}", "GEMINI_CLI_TRUST_WORKSPACE": "true"},
    key="GEMINI_API_KEY",
    files={
        ".gemini/settings.json": {
            "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
            "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        }
    },
    stdin=False,
    tool="run_shell_command",
    resumes=False,
)

MINI = Recipe(
    "mini",
    "chat",
    ("--model", "openai/{model}", "--model-class", "litellm", "--task", "{prompt}", "--exit-immediately", "--yolo",
     "--output", "{home}/trajectory.json", "-c", "mini.yaml", "-c", "agent.cost_limit=0",
     "-c", "model.cost_tracking=ignore_errors"),
    env={
        "OPENAI_API_BASE": "{url}/v1",
        "MSWEA_CONFIGURED": "true",
        "MSWEA_SILENT_STARTUP": "true",
        "MSWEA_GLOBAL_CONFIG_DIR": "{home}/mini",
        "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",
    },
    key="OPENAI_API_KEY",
    stdin=False,
    python="mini-swe-agent",
    ends="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && echo '{words}'",
)  # fmt: skip

RLM = Recipe(
    "python",
    "chat",
    ("{home}/ask.py",),
    env={"URL": "{url}/v1", "MODEL": "{model}"},
    files={
        "ask.py": """\
import os, sys
from rlm import RLM

backend = {"model_name": os.environ["MODEL"], "base_url": os.environ["URL"], "api_key": os.environ["EVAL_KEY"]}
made = RLM(backend="openai", backend_kwargs=backend, environment="local", max_iterations=6, verbose=False)
prompt = sys.stdin.read()
print(made.completion(prompt, root_prompt=prompt).response)
"""
    },
    python="rlms",
    acts="Looking.\n```repl\nimport subprocess\nprint(subprocess.getoutput({command}))\n```",
    answers="Ready.\n```repl\nanswer['content'] = {words}\nanswer['ready'] = True\n```",
)

RECIPES: Mapping[str, Recipe] = {
    "codex": CODEX,
    "claude": CLAUDE,
    "opencode": _opencode("chat", "@ai-sdk/openai-compatible"),
    "opencode-responses": _opencode("responses", "@ai-sdk/openai"),
    "opencode-messages": _opencode("messages", "@ai-sdk/anthropic"),
    "pi": _pi("chat", "openai-completions", "{url}/v1"),
    "pi-responses": _pi("responses", "openai-responses", "{url}/v1"),
    "pi-messages": _pi("messages", "anthropic-messages", "{url}"),
    "qwen": QWEN,
    "qwen-messages": QWEN_MESSAGES,
    "gemini": GEMINI,
    "mini": MINI,
    "rlm": RLM,
}
"""By program, and by dialect where it speaks several."""
