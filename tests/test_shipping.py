"""Tests of the deployment files: the service, the image, the shell completion. No image is built, which needs an engine."""

from __future__ import annotations

import inspect
import json
import re
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml
from pydantic import SecretStr

from adapters.pdf.renderer import PdfRenderer
from quotebot.cli import exits, root
from quotebot.settings import Settings, load_settings
from quotebot.settings_sources import variable
from tests.wheel import installation

if TYPE_CHECKING:
    from pathlib import Path

SERVICE: Final = "docs/deploy/quotebot.service"
SECRETS: Final = {variable(name, field) for name, field in Settings.model_fields.items() if "SecretStr" in str(field.annotation)}


@pytest.fixture(scope="module")
def service(checkout: Path) -> list[tuple[str, str]]:
    """Return the directives of the service, in order."""
    lines = (checkout / SERVICE).read_text("utf-8").splitlines()
    return [(name, value) for name, sign, value in (line.partition("=") for line in lines) if sign and not name.startswith("#")]


@pytest.fixture(scope="module")
def dockerfile(checkout: Path) -> str:
    return (checkout / "docs/deploy/Dockerfile").read_text("utf-8").replace("\\\n", " ")


class Healthy(BaseHTTPRequestHandler):
    """A fake bot that answers one health check."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/healthz" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


def value(service: list[tuple[str, str]], name: str) -> str:
    (found,) = [found for key, found in service if key == name]
    return found


def test_service_notifies_has_time_to_stop_and_does_not_restart_on_bad_config(service: list[tuple[str, str]]) -> None:
    assert (value(service, "Type"), value(service, "ExecStart")) == ("notify", "/opt/quotebot/bin/quotebot run")
    stop_seconds = float(value(service, "TimeoutStopSec").removesuffix("s"))
    assert stop_seconds >= 2 * Settings.model_fields["drain_seconds"].default
    assert value(service, "RestartPreventExitStatus") == str(exits.CONFIG)
    assert (value(service, "UMask"), value(service, "ProtectSystem"), value(service, "NoNewPrivileges")) == (
        "0077",
        "strict",
        "yes",
    )


def test_the_services_credentials_are_secrets_the_bot_reads_where_systemd_puts_them(
    service: list[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [found.partition(":")[0] for key, found in service if key == "LoadCredential"]
    assert set(names) <= SECRETS
    for name in names:
        monkeypatch.delenv(name, raising=False)
        (tmp_path / name).write_text(f"x-{name}\n")
    monkeypatch.setenv("SALESFORCE_INSTANCE_URL", "https://acme.my.salesforce.com")
    monkeypatch.setenv("SALESFORCE_CLIENT_ID", "id")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    settings = load_settings()
    read = [
        found.get_secret_value() for found in (getattr(settings, name.lower()) for name in names) if isinstance(found, SecretStr)
    ]
    assert read == [f"x-{name}" for name in names]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed here")
@pytest.mark.parametrize("more", [(), ("docs/deploy/cluster/quotebot-cluster.conf",)], ids=["alone", "in a cluster"])
def test_systemd_finds_nothing_wrong_with_the_service(checkout: Path, tmp_path: Path, more: tuple[str, ...]) -> None:
    ours = tmp_path / "quotebot.service"
    (tmp_path / "quotebot.service.d").mkdir()
    for source, target in zip((SERVICE, *more), (ours, tmp_path / "quotebot.service.d" / "cluster.conf"), strict=False):
        target.write_text((checkout / source).read_text("utf-8").replace("/opt/quotebot/bin/quotebot", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", ours], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_image_runs_unprivileged_on_a_pinned_base_with_the_libraries_for_pdfs(dockerfile: str, checkout: Path) -> None:
    assert {line.split()[1] for line in dockerfile.splitlines() if line.startswith("FROM")} == {"${BASE}"}
    assert re.findall(r"^ARG BASE(.*)$", dockerfile, re.MULTILINE) == ["", ""]  # no default: the digest is mandatory
    (check,) = re.findall(r"^RUN (case .* esac)$", dockerfile, re.MULTILINE)
    for base, status in (("python:3.12-slim-bookworm", 1), (f"python:3.12-slim-bookworm@sha256:{64 * 'a'}", 0)):
        done = subprocess.run(["sh", "-c", check], env={"BASE": base}, capture_output=True, timeout=60, check=False)
        assert done.returncode == status
    (user,) = re.findall(r"^USER (\d+):\1$", dockerfile, re.MULTILINE)
    assert int(user) > 1000
    assert all(
        library in dockerfile for library in re.findall(r'"(lib[\w.-]+-0|libharfbuzz-subset0)"\)', (checkout / "run").read_text())
    )
    for pip in re.findall(r"pip (?:install|wheel) [^&\n]*", dockerfile):
        assert "--require-hashes" in pip or ("--no-index" in pip and "--no-deps" in pip), pip
    assert "--no-build-isolation" in dockerfile
    assert re.search(r"^HEALTHCHECK .*/healthz", dockerfile, re.MULTILINE)
    assert 'ENTRYPOINT ["quotebot"]' in dockerfile


def test_what_the_image_copies_is_there_and_nothing_else_is_sent_to_its_build(dockerfile: str, checkout: Path) -> None:
    copied = {word for line in re.findall(r"^COPY (?!--from)(.+)$", dockerfile, re.MULTILINE) for word in line.split()[:-1]}
    let_in = {
        line[1:] for line in (checkout / "docs/deploy/Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")
    }
    assert copied == let_in
    assert [name for name in copied if not (checkout / name).exists()] == []


def test_the_image_holds_no_secret_and_asks_for_none_at_its_build(dockerfile: str) -> None:
    assert {name for name in SECRETS if name in dockerfile} == set()
    assert re.findall(r"^(ARG (?!BASE$)|ADD)\b|--mount|curl|wget", dockerfile, re.MULTILINE) == []


def test_what_the_image_copies_is_enough_to_build_the_wheel_it_installs(dockerfile: str, checkout: Path, tmp_path: Path) -> None:
    for line in re.findall(r"^COPY (?!--from)(.+)$", dockerfile, re.MULTILINE):
        *sources, target = line.split()
        for source in sources:
            if (checkout / source).is_dir():
                shutil.copytree(checkout / source, tmp_path / target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(checkout / source, tmp_path / target)
    (how,) = re.findall(r"/build/bin/pip (wheel .*?)--wheel-dir", dockerfile)
    asked = [sys.executable, "-m", "pip", *how.split(), "--disable-pip-version-check", "--wheel-dir", "dist", "."]
    subprocess.run(asked, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    assert [path.name.partition("-")[0] for path in (tmp_path / "dist").iterdir()] == ["quotebot"]


def test_the_health_check_says_whether_the_bot_answers_where_the_image_lets_it(dockerfile: str) -> None:
    (_, program) = json.loads(re.findall(r"^HEALTHCHECK .*CMD \[\"python\", (.+)\]$", dockerfile, re.MULTILINE)[0].join("[]"))
    (port,) = set(re.findall(r"QUOTEBOT_HEALTH_PORT=(\d+)", dockerfile))
    assert f"http://127.0.0.1:{port}/healthz" in program
    with HTTPServer(("127.0.0.1", 0), Healthy) as server:
        serving = threading.Thread(target=server.handle_request)
        serving.start()
        checked = program.replace(port, str(server.server_address[1]))
        statuses = [subprocess.run([sys.executable, "-c", checked], check=False, capture_output=True, timeout=60).returncode]
        serving.join()
    statuses.append(subprocess.run([sys.executable, "-c", checked], check=False, capture_output=True, timeout=60).returncode)
    assert statuses == [0, 1]  # a container engine treats 1 as unhealthy


def test_compose_file_runs_the_bot_read_only_unprivileged_with_secret_files(checkout: Path) -> None:
    composed: dict[str, Any] = yaml.safe_load((checkout / "docs/deploy/compose.yaml").read_text("utf-8"))
    (bot,) = composed["services"].values()
    assert (bot["read_only"], bot["cap_drop"], bot["security_opt"]) == (True, ["ALL"], ["no-new-privileges:true"])
    assert "ports" not in bot
    assert (checkout / "docs/deploy" / bot["build"]["context"] / bot["build"]["dockerfile"]).is_file()
    assert set(bot["secrets"]) == set(composed["secrets"]) <= SECRETS
    known = {variable(name, field) for name, field in Settings.model_fields.items()} | {"QUOTEBOT_SECRETS_DIR"}
    assert set(bot["environment"]) <= known - SECRETS


def test_the_limits_leave_the_bot_room_beside_the_renderer(service: list[tuple[str, str]], checkout: Path) -> None:
    renderer = inspect.signature(PdfRenderer).parameters["memory_bytes"].default
    composed = yaml.safe_load((checkout / "docs/deploy/compose.yaml").read_text("utf-8"))
    (bot,) = composed["services"].values()
    for limit in (bot["mem_limit"].upper(), value(service, "MemoryMax")):
        assert int(limit.removesuffix("G")) * 2**30 >= renderer + 512 * 2**20
    assert int(value(service, "TasksMax")) >= 64


@pytest.mark.parametrize("page", ["docs/deploying.md", "docs/setup.md", "docs/monitoring.md", "docs/runbook.md"])
def test_every_documented_installation_is_locked(checkout: Path, page: str) -> None:
    commands = re.findall(r"bin/pip install [^`\n]*", (checkout / page).read_text("utf-8"))
    assert commands
    assert [each for each in commands if "--require-hashes" not in each and "--no-deps --no-index" not in each] == []
    assert "chmod 644" not in (checkout / page).read_text("utf-8")


def test_the_wheel_is_tried_as_it_is_documented(tmp_path: Path) -> None:
    packages, ours = installation(tmp_path, tmp_path / "quotebot-0.1.0-py3-none-any.whl")
    assert packages == ("--require-hashes", "-r", str(tmp_path / "requirements.lock"))
    assert ours[:2] == ("--no-deps", "--no-index")


def test_bash_completes_our_commands_with_the_script_we_print(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert root.run(("completion", "bash")) == exits.OK
    script = tmp_path / "completion"
    script.write_text(f"{capsys.readouterr().out}\nCOMP_WORDS=(quotebot doc)\nCOMP_CWORD=1\n_quotebot\necho ${{COMPREPLY[@]}}\n")
    done = subprocess.run(["bash", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["doctor", "document"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shells_script_knows_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert root.run(("completion", shell)) == exits.OK
    script = capsys.readouterr().out
    assert [name for name in root.app if not name.startswith("-") and name not in script] == []


def test_a_shell_we_cannot_complete_is_a_usage_error() -> None:
    assert root.run(("completion", "tcsh")) == exits.USAGE
