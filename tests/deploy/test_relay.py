"""The files for relays fit their schemas, and name settings, flags, ports and files that exist."""

import asyncio
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from prometheus_client import CollectorRegistry

from oplog_kit.http_server import probes, serving
from oplog_relay.commands.group import command
from oplog_relay.config.file import load
from oplog_relay.db.schema import ddl
from oplog_relay.model.settings import RelaySettings
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
from tests.kits.paths import ROOT

COMPOSE = DEPLOY / "compose-relay.yaml"
KUBERNETES = DEPLOY / "kubernetes/relay"
UNIT = DEPLOY / "systemd/oplog-relay.service"
# Seconds that the process may need after `drain`, and some for the container.
GRACE = 15
# Greatest exposure for `systemd-analyze security`, in tenths: that of the agent's unit.
EXPOSURE = 12


def resources() -> list[dict[str, Any]]:
    names = read_yaml(KUBERNETES / "kustomization.yaml")["resources"]
    return [each for name in names for each in yaml.safe_load_all((KUBERNETES / name).read_text())]


def pod() -> dict[str, Any]:
    (found,) = filter(None, map(pod_spec, resources()))
    return found


def parse(arguments: list[str]) -> dict[str, Any]:
    """Return the values of a command of oplog-relay, without its file. Raises click.UsageError."""
    name, *rest = arguments
    rest = [each for each in rest if not each.startswith("--file=")]
    subcommand = command.commands[name]
    options = [each for each in subcommand.params if each.name != "settings"]
    return click.Command(name, params=options).make_context(name, rest).params


def file_of(arguments: list[str]) -> str:
    (path,) = (each.removeprefix("--file=") for each in arguments if each.startswith("--file="))
    return path


def settings_of(path: Path, secrets: Path, **environ: str) -> RelaySettings:
    """Read the settings, with files for the secrets in a folder of the test."""
    (secrets / "database-url").write_text("postgresql://shop:secret@db/shop\n")
    (secrets / "ingest-password").write_text("secret\n")
    here = secrets / path.name
    here.write_text(path.read_text().replace("/run/secrets/oplog-relay", str(secrets)))
    return load(here, environ)


def test_the_schema_of_compose_accepts_the_file_and_refuses_a_misspelt_member(
    tmp_path: Path,
) -> None:
    assert fits(SCHEMA, COMPOSE)
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(COMPOSE.read_text().replace("stop_grace_period", "stop_period"))
    assert not fits(SCHEMA, wrong)


def test_the_services_of_compose_fit_each_other(tmp_path: Path) -> None:
    compose = read_yaml(COMPOSE)
    services = compose["services"]
    stages = (DEPLOY / "Containerfile").read_text()
    settings = load(DEPLOY / "compose/relay.yaml", {})
    assert settings.agents.urls == ("http://agent:8042",)
    assert settings.metrics_listen == ":9108"
    assert "@database/outbox" in settings.database.url
    assert services["database"]["environment"]["POSTGRES_DB"] == "outbox"
    for name, service in services.items():
        if "build" in service:
            assert (COMPOSE.parent / service["build"]["context"]).resolve() == ROOT
            assert (ROOT / service["build"]["dockerfile"]).is_file()
            assert f" AS {service['build']['target']}\n" in stages
        assert set(service.get("depends_on", ())) <= services.keys()
        assert set(service["networks"]) <= compose["networks"].keys()
        for volume in service.get("volumes", ()):
            source, target = volume.split(":")[:2]
            assert source in compose["volumes"] or (COMPOSE.parent / source).is_file(), volume
            if service.get("image") == "oplog-relay":
                assert target == file_of(service["command"])
        for published in service.get("ports", ()):
            assert published.startswith("127.0.0.1:")  # nothing has a password
        if name != "database":
            assert service["read_only"] is True
            assert service["cap_drop"] == ["ALL"]
    assert compose["networks"]["store"] == {"internal": True}
    assert services["database"]["networks"] == ["store"]
    for name in ("relay-a", "relay-b"):
        assert parse(services[name]["command"])["metrics_listen"] is None  # that of the file
        assert "9108" in services[name]["healthcheck"]["test"][-1]
        patience = int(services[name]["stop_grace_period"].removesuffix("s"))
        assert patience >= settings.limits.drain + GRACE
    assert parse(services["pump"]["command"])["topic"] == "oplog"


async def test_the_health_check_of_compose_passes_while_the_relay_is_live() -> None:
    check = read_yaml(COMPOSE)["services"]["relay-a"]["healthcheck"]["test"]
    assert check[:2] == ["CMD", "python"]
    states = [True, False]
    paths = probes(CollectorRegistry(), lambda: states.pop(0))
    with serving("metrics_listen", "127.0.0.1:0", paths, "oplog-relay") as address:
        program_ = check[-1].replace("9108", address.rpartition(":")[2])
        codes = []
        while states:
            process = await asyncio.create_subprocess_exec(
                sys.executable, *check[2:-1], program_, stderr=asyncio.subprocess.DEVNULL
            )
            codes.append(await process.wait())
    assert codes == [0, 1]


def test_the_table_of_compose_is_that_of_the_command() -> None:
    comment, _, statement = (DEPLOY / "compose/outbox.sql").read_text().partition("\n")
    assert comment.startswith("-- ")
    assert statement == ddl("postgres")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_api_of_kubernetes_accepts_the_manifests(version: str) -> None:
    check_manifests(resources(), version)
    assert {path.name for path in KUBERNETES.iterdir()} == {
        "kustomization.yaml", "deployment.yaml", "relay.yaml",
    }  # fmt: skip


def test_the_pod_keeps_the_restricted_standard_and_more() -> None:
    context = pod()["securityContext"]
    assert context["runAsNonRoot"] is True
    assert (context["runAsUser"], context["runAsGroup"]) == (8042, 8042)
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


def test_the_relays_of_kubernetes_are_what_their_ports_probes_and_mounts_expect(
    tmp_path: Path,
) -> None:
    settings = settings_of(KUBERNETES / "relay.yaml", tmp_path)
    assert settings.agents.password == "secret"
    assert settings.database.url == "postgresql://shop:secret@db/shop"
    (deployment,) = (each for each in resources() if each["kind"] == "Deployment")
    assert deployment["spec"]["replicas"] == 2
    (container,) = pod()["containers"]
    assert parse(container["args"])["log_format"] == "json"
    (port,) = container["ports"]
    assert settings.metrics_listen == f":{port['containerPort']}"
    annotations = deployment["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(port["containerPort"])
    probe = {"path": "/live", "port": port["name"]}
    assert container["livenessProbe"]["httpGet"] == container["startupProbe"]["httpGet"] == probe
    assert pod()["terminationGracePeriodSeconds"] >= settings.limits.drain + GRACE

    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    volumes = {each["name"]: each for each in pod()["volumes"]}
    assert mounts.keys() == volumes.keys()
    assert file_of(container["args"]) == f"{mounts['config']}/relay.yaml"
    kustomization = read_yaml(KUBERNETES / "kustomization.yaml")
    (generated,) = kustomization["configMapGenerator"]
    assert generated == {"name": volumes["config"]["configMap"]["name"], "files": ["relay.yaml"]}
    assert [each["name"] for each in kustomization["images"]] == [container["image"]]
    secrets = {f"{mounts['secrets']}/{i['path']}" for i in volumes["secrets"]["secret"]["items"]}
    assert secrets == set(re.findall(r"/run/secrets/\S+", (KUBERNETES / "relay.yaml").read_text()))


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """Return a copy of the unit that runs a program of this machine."""
    text = UNIT.read_text()
    assert text.count("/opt/oplog/bin/oplog-relay ") == 1
    here = tmp_path / UNIT.name
    here.write_text(text.replace("/opt/oplog/bin/oplog-relay ", f"{sys.executable} "))
    return here


def test_systemd_understands_every_line_and_finds_the_unit_hardly_exposed(unit: Path) -> None:
    analyze = program("systemd-analyze")
    done = must_pass(analyze, "verify", "--man=no", "--generators=no", unit)
    assert "oplog-relay" not in done.stderr
    must_pass(analyze, "security", "--offline=true", f"--threshold={EXPOSURE}", unit)


def test_the_unit_gives_the_relay_its_secrets_and_the_time_to_stop(tmp_path: Path) -> None:
    settings = settings_of(
        DEPLOY / "systemd/relay.yaml", tmp_path, CREDENTIALS_DIRECTORY=str(tmp_path)
    )
    assert settings.agents.password == "secret"
    lines = re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE)
    single = dict(lines)
    assert int(single["TimeoutStopSec"]) >= settings.limits.drain + GRACE
    assert single["RestartPreventExitStatus"] == "2"
    loaded = {text.partition(":")[0] for name, text in lines if name == "LoadCredential"}
    named = re.findall(
        r"\$\{CREDENTIALS_DIRECTORY\}/(\S+)", (DEPLOY / "systemd/relay.yaml").read_text()
    )
    assert loaded == set(named)
    _, *arguments = shlex.split(single["ExecStart"])
    assert parse(arguments)["log_format"] == "text"
