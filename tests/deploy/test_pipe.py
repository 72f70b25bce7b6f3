"""The files for a pipe fit their schemas, and name settings, flags, ports and files that exist."""

import asyncio
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from oplog_pipe.commands.group import command
from oplog_pipe.config import load
from oplog_pipe.model.exits import EXIT_GAP, EXIT_USAGE
from oplog_pipe.model.settings import PipeSettings
from oplog_pipe.model.status import LogStatus, PipeStatus
from oplog_pipe.sinks.postgres import PostgresOptions
from oplog_pipe.watch.listen import listening
from tests.deploy.test_compose import SCHEMA
from tests.deploy.test_kubernetes import VERSIONS
from tests.kits.deploy.files import (
    DEPLOY,
    check_manifests,
    fits,
    must_pass,
    pod_spec,
    program,
    read_yaml,
)
from tests.kits.documents import pages
from tests.kits.documents.snippets import snippets
from tests.kits.paths import ROOT

COMPOSE = DEPLOY / "compose-pipe.yaml"
KUBERNETES = DEPLOY / "kubernetes/pipe"
UNIT = DEPLOY / "systemd/oplog-pipe.service"
# Seconds that the process may need after `shutdown_timeout`, and some for the container.
GRACE = 15
# Greatest exposure for `systemd-analyze security`, in tenths: that of the agent's unit.
EXPOSURE = 12


def resources(kind: str | None = None) -> list[dict[str, Any]]:
    names = read_yaml(KUBERNETES / "kustomization.yaml")["resources"]
    found = [each for name in names for each in yaml.safe_load_all((KUBERNETES / name).read_text())]
    return [each for each in found if kind in (None, each["kind"])]


def pod() -> dict[str, Any]:
    (found,) = filter(None, map(pod_spec, resources()))
    return found


def parse(arguments: list[str]) -> dict[str, Any]:
    """Return the values of a command of oplog-pipe, without its file. Raises click.UsageError."""
    name, *rest = arguments
    rest = [each for each in rest if not each.startswith("--file=")]
    subcommand = command.commands[name]
    options = [each for each in subcommand.params if each.name != "settings"]
    return click.Command(name, params=options).make_context(name, rest).params


def file_of(arguments: list[str]) -> str:
    (path,) = (each.removeprefix("--file=") for each in arguments if each.startswith("--file="))
    return path


def settings_of(path: Path, secrets: Path, **environ: str) -> PipeSettings:
    """Read the settings, with files for the secrets in a folder of the test."""
    (secrets / "database-url").write_text("postgresql://reports:secret@db/reports\n")
    (secrets / "oplog-password").write_text("secret\n")
    here = secrets / path.name
    here.write_text(path.read_text().replace("/run/secrets/oplog-pipe", str(secrets)))
    settings = load(here, environ)
    assert settings.sources[0].password == "secret"
    options = settings.sinks[0].options
    assert isinstance(options, PostgresOptions)
    assert options.url == "postgresql://reports:secret@db/reports"
    return settings


def test_the_schema_of_compose_accepts_the_file_and_refuses_a_misspelt_member(
    tmp_path: Path,
) -> None:
    assert fits(SCHEMA, COMPOSE)
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(COMPOSE.read_text().replace("stop_grace_period", "stop_period"))
    assert not fits(SCHEMA, wrong)


def test_the_services_of_compose_fit_each_other() -> None:
    compose = read_yaml(COMPOSE)
    services = compose["services"]
    stages = (DEPLOY / "Containerfile").read_text()
    settings = load(DEPLOY / "compose/pipe.yaml", {})
    assert settings.sources[0].agents == ("http://agent:8042",)
    (sink,) = settings.sinks
    assert isinstance(sink.options, PostgresOptions)
    assert "@database/pipe" in sink.options.url
    assert services["database"]["environment"]["POSTGRES_DB"] == "pipe"
    for name, service in services.items():
        if "build" in service:
            assert (COMPOSE.parent / service["build"]["context"]).resolve() == ROOT
            assert (ROOT / service["build"]["dockerfile"]).is_file()
            assert f" AS {service['build']['target']}\n" in stages
        assert set(service.get("depends_on", ())) <= services.keys()
        assert set(service["networks"]) <= compose["networks"].keys()
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source in compose["volumes"] or (COMPOSE.parent / source).is_file(), volume
        for published in service.get("ports", ()):
            assert published.startswith("127.0.0.1:")  # nothing has a password
        if name != "database":
            assert service["read_only"] is True
            assert service["cap_drop"] == ["ALL"]
    assert compose["networks"]["store"] == {"internal": True}
    pipe = services["pipe"]
    assert parse(pipe["command"])["listen"] is None  # that of the file
    config, data = (volume.split(":")[1] for volume in pipe["volumes"])
    assert config == file_of(pipe["command"])
    assert settings.dir.is_relative_to(data)
    assert settings.listen == ":9109"
    assert "9109" in pipe["healthcheck"]["test"][-1]
    patience = int(pipe["stop_grace_period"].removesuffix("s"))
    assert patience >= settings.shutdown_timeout + GRACE


async def test_the_health_check_of_compose_passes_while_the_pipe_is_live() -> None:
    check = read_yaml(COMPOSE)["services"]["pipe"]["healthcheck"]["test"]
    assert check[:2] == ["CMD", "python"]
    states = [True, False]
    status = PipeStatus("1.2.3", 1.0, LogStatus(None, 0, 0, 0, -1), [], [])
    with listening("127.0.0.1:0", lambda: status, lambda: states.pop(0)) as address:
        program_ = check[-1].replace("9109", address.rpartition(":")[2])
        codes = []
        while states:
            process = await asyncio.create_subprocess_exec(
                sys.executable, *check[2:-1], program_, stderr=asyncio.subprocess.DEVNULL
            )
            codes.append(await process.wait())
    assert codes == [0, 1]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_api_of_kubernetes_accepts_the_manifests(version: str) -> None:
    check_manifests(resources(), version)
    assert {path.name for path in KUBERNETES.iterdir()} == {
        "kustomization.yaml", "networkpolicy.yaml", "pipe.yaml", "statefulset.yaml",
    }  # fmt: skip


def test_the_pod_keeps_the_restricted_standard_and_more() -> None:
    context = pod()["securityContext"]
    assert context["runAsNonRoot"] is True
    assert (context["runAsUser"], context["runAsGroup"], context["fsGroup"]) == (8042, 8042, 8042)
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod()["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod().keys()
    assert all(each.keys() & {"configMap", "secret"} for each in pod()["volumes"])
    (container,) = pod()["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert container["resources"]["limits"].keys() == {"memory"}


def test_the_pipe_of_kubernetes_is_one_with_a_volume_and_what_ports_and_probes_expect(
    tmp_path: Path,
) -> None:
    settings = settings_of(KUBERNETES / "pipe.yaml", tmp_path)
    (stateful,) = resources("StatefulSet")
    assert stateful["spec"]["replicas"] == 1  # one process per folder
    (container,) = pod()["containers"]
    assert parse(container["args"])["log_format"] == "json"
    (port,) = container["ports"]
    assert settings.listen == f":{port['containerPort']}"
    annotations = stateful["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(port["containerPort"])
    probe = {"path": "/live", "port": port["name"]}
    assert container["livenessProbe"]["httpGet"] == container["startupProbe"]["httpGet"] == probe
    assert pod()["terminationGracePeriodSeconds"] >= settings.shutdown_timeout + GRACE

    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    volumes = {each["name"]: each for each in pod()["volumes"]}
    (claim,) = stateful["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
    assert mounts.keys() == {*volumes, claim["metadata"]["name"]}
    assert settings.dir.is_relative_to(mounts[claim["metadata"]["name"]])
    assert file_of(container["args"]) == f"{mounts['config']}/pipe.yaml"
    kustomization = read_yaml(KUBERNETES / "kustomization.yaml")
    (generated,) = kustomization["configMapGenerator"]
    assert generated == {"name": volumes["config"]["configMap"]["name"], "files": ["pipe.yaml"]}
    assert [each["name"] for each in kustomization["images"]] == [container["image"]]
    secrets = {f"{mounts['secrets']}/{i['path']}" for i in volumes["secrets"]["secret"]["items"]}
    assert secrets == set(re.findall(r"/run/secrets/\S+", (KUBERNETES / "pipe.yaml").read_text()))


def test_only_monitoring_reaches_the_pipe_and_at_its_port_only() -> None:
    (stateful,) = resources("StatefulSet")
    labels = stateful["spec"]["selector"]["matchLabels"]
    assert stateful["spec"]["template"]["metadata"]["labels"] == labels
    (service,) = resources("Service")
    assert service["metadata"]["name"] == stateful["spec"]["serviceName"]
    assert service["spec"]["selector"] == labels
    (policy,) = resources("NetworkPolicy")
    assert policy["spec"]["podSelector"]["matchLabels"] == labels
    (port,) = pod()["containers"][0]["ports"]
    ((rule,), ports) = policy["spec"]["ingress"][0]["from"], policy["spec"]["ingress"][0]["ports"]
    assert rule.keys() == {"namespaceSelector"}
    assert [each["port"] for each in ports] == [port["name"]]
    assert service["spec"]["ports"][0]["targetPort"] == port["name"]


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """Return a copy of the unit that runs a program of this machine."""
    text = UNIT.read_text()
    assert text.count("/opt/oplog/bin/oplog-pipe ") == 1
    here = tmp_path / UNIT.name
    here.write_text(text.replace("/opt/oplog/bin/oplog-pipe ", f"{sys.executable} "))
    return here


def test_systemd_understands_every_line_and_finds_the_unit_hardly_exposed(unit: Path) -> None:
    analyze = program("systemd-analyze")
    done = must_pass(analyze, "verify", "--man=no", "--generators=no", unit)
    assert "oplog-pipe" not in done.stderr
    must_pass(analyze, "security", "--offline=true", f"--threshold={EXPOSURE}", unit)


def test_the_unit_gives_the_pipe_its_secrets_its_folder_and_the_time_to_stop(
    tmp_path: Path,
) -> None:
    settings = settings_of(
        DEPLOY / "systemd/pipe.yaml", tmp_path, CREDENTIALS_DIRECTORY=str(tmp_path)
    )
    lines = re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE)
    single = dict(lines)
    assert int(single["TimeoutStopSec"]) >= settings.shutdown_timeout + GRACE
    assert settings.dir == Path("/var/lib") / single["StateDirectory"]
    # After a message that a sink refused a restart helps as soon as the reason is gone.
    assert single["Restart"] == "on-failure"
    assert single["RestartPreventExitStatus"] == f"{EXIT_USAGE} {EXIT_GAP}"
    loaded = {text.partition(":")[0] for name, text in lines if name == "LoadCredential"}
    named = re.findall(
        r"\$\{CREDENTIALS_DIRECTORY\}/(\S+)", (DEPLOY / "systemd/pipe.yaml").read_text()
    )
    assert loaded == set(named)
    _, *arguments = shlex.split(single["ExecStart"])
    assert parse(arguments)["log_format"] == "text"


def test_the_guide_runs_commands_as_the_unit_runs_the_pipe() -> None:
    (command_,) = (
        each.code for each in snippets(pages.DEPLOYMENT) if each.first.startswith("systemd-run")
    )
    words = shlex.split(command_)
    given = {word.removeprefix("--property=") for word in words if word.startswith("--property=")}
    lines = UNIT.read_text().splitlines()
    names = ("DynamicUser=", "User=", "StateDirectory=", "LoadCredential=")
    assert given == {line for line in lines if line.startswith(names)}
    program_ = words.index("/opt/oplog/bin/oplog-pipe")
    group, name, file = words[program_ + 1 :]
    assert file == f"--file={file_of(shlex.split(UNIT.read_text()))}"
    parent = command.commands[group]
    assert isinstance(parent, click.Group)
    assert name in parent.commands
