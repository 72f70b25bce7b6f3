"""The files of `deploy/` and their guide name only flags, variables and files that exist."""

import ipaddress
import re
from typing import Any

import pytest

from oplog_kit.command.flags import flags_of
from oplog_kit.listen import Address
from oplog_pipe.commands.group import command as pipe
from oplog_relay.commands.group import command as relay
from oplog_sync.errors import (
    EXIT_EMPTY_DUMP,
    EXIT_FUTURE_ROWS,
    EXIT_INVALID_ROWS,
    EXIT_OLD_DUMP,
    EXIT_TOO_MANY_CHANGES,
    EXIT_TOO_MANY_DELETES,
    EXIT_USAGE,
)
from oplog_sync.settings import JobSettings
from oplog_sync.settings import command as sync_command
from oplogd.config.command import parse as parse_agent
from oplogd.config.settings import Settings
from oplogd.web.connection.forwarded import VARIABLE, TrustedProxies
from oplogd.web.figures.question import STORE_TIMEOUT_SECONDS
from tests.kits.deploy.files import DEPLOY, manifests, pod_spec, read_yaml, texts
from tests.kits.documents import pages
from tests.kits.paths import ROOT

WRITTEN = [DEPLOY, pages.DEPLOYMENT]
MONGO_URL = "mongodb://oplog:secret@db1/oplog?replicaSet=rs0"
PORT = Settings().http_address.port
OF_OTHER_PROGRAMS = {
    "--build", "--read-only", "--stop-timeout", "--publish", "--volume", "--name", "--detach",
    "--file", "--tag", "--tmpfs", "--target", "--cap-drop", "--security-opt",  # docker
    "--gid", "--uid", "--no-create-home", "--home-dir", "--shell", "--directory", "--owner",
    "--group", "--mode", "--no-cache-dir", "--no-install-recommends", "--interval", "--timeout",
    "--start-period", "--retries", "--from",
    "--host", "--username", "--dbname",  # pg_isready
    "--replSet", "--bind_ip_all", "--quiet", "--eval",  # mongod and mongosh
    "--from-file", "--namespace",  # kubectl
    "--driver-memory", "--conf", "--packages",  # spark-submit
    "--now", "--replicate",  # systemctl, oplog-tail
    "--pipe", "--wait", "--property",  # systemd-run
}  # fmt: skip


def test_every_variable_that_is_named_is_a_variable_of_the_agent() -> None:
    variables = {flag.variable for flag in flags_of(Settings)}
    named = {
        (path.name, name)
        for path, text in texts(WRITTEN)
        for name in re.findall(r"\bOPLOGD_[A-Z_]*[A-Z]", text)
    }
    assert {name for _, name in named} >= {"OPLOGD_MONGO_URL", "OPLOGD_PASSWORD_FILE"}
    assert {each for each in named if each[1] not in variables} == set()


def test_every_flag_that_is_named_is_a_flag_of_a_program() -> None:
    ours = {flag.name for flag in flags_of(Settings)}
    ours |= {flag.name for flag in flags_of(JobSettings)} | {"--help", "--version"}
    commands = [*relay.commands.values(), *pipe.commands.values()]
    ours |= {flag for each in commands for option in each.params for flag in option.opts}
    named = {
        (path.name, flag)
        for path, text in texts(WRITTEN)
        for flag in re.findall(r"(?<![\w-])--[A-Za-z][\w-]+", text)
    }
    assert {each for each in named if each[1] not in ours | OF_OTHER_PROGRAMS} == set()
    assert {flag for _, flag in named} >= OF_OTHER_PROGRAMS


def test_every_file_that_the_guides_name_is_there() -> None:
    for path, text in texts([DEPLOY / "README.md", pages.DEPLOYMENT]):
        named = re.findall(r"(?<!/)deploy/[\w./-]*\w", text)
        if path.parent == DEPLOY:
            named += [
                f"deploy/{name}" for name in re.findall(r"^\|[^|]*\| `([^`]+)`", text, re.MULTILINE)
            ]
        assert len(named) > 8
        assert {name for name in named if not (ROOT / name).exists()} == set()


def test_the_variables_of_the_environment_file_are_settings_that_can_be_read() -> None:
    lines = (DEPLOY / "systemd/oplogd.env").read_text().splitlines()
    environ = dict(
        line.removeprefix("#").split("=", 1) for line in lines if re.match(r"#?OPLOGD_", line)
    )
    settings = parse_agent([], environ)
    assert settings.listen == Address("localhost", PORT)
    assert settings.mongo_url is not None
    assert settings.spool is not None
    assert settings.object_url == "https://api.example.com/{{type}}/{{id}}"


def test_the_agents_of_compose_take_their_flags_and_get_the_time_to_stop() -> None:
    services = read_yaml(DEPLOY / "compose.yaml")["services"]
    for name in ("agent-a", "agent-b"):
        settings = parse_agent(services[name]["command"], {})
        assert settings.mongo_url is not None
        assert "mongo" in settings.mongo_url.reveal()
        assert (
            float(services[name]["stop_grace_period"].removesuffix("s"))
            >= settings.shutdown_timeout + 5
        )
        mounted = [volume.partition(":")[2] for volume in services[name]["volumes"]]
        assert str(settings.spool).startswith(tuple(mounted))


def test_the_agents_of_compose_trust_the_proxy_and_nobody_else() -> None:
    compose = read_yaml(DEPLOY / "compose.yaml")
    address = compose["services"]["proxy"]["networks"]["public"]["ipv4_address"]
    for name in ("agent-a", "agent-b"):
        trusted = TrustedProxies(compose["services"][name]["environment"][VARIABLE])
        assert trusted.trust(address)
        (network,) = compose["networks"]["public"]["ipam"]["config"]
        others = ipaddress.IPv4Network(network["ip_range"])
        assert not any(trusted.trust(str(other)) for other in others)
        assert others.subnet_of(ipaddress.IPv4Network(network["subnet"]))


def _agents() -> list[dict[str, Any]]:
    return [each for each in manifests() if each["kind"] in ("DaemonSet", "Deployment")]


def _settings(container: dict[str, Any], tmp_path: Any) -> Settings:
    """Return the settings of the agent in this container, with files for its secrets."""
    environ = {}
    for variable in container["env"]:
        if "value" in variable:
            secret = tmp_path / variable["value"].rpartition("/")[2]
            secret.write_text("secret\n")
            environ[variable["name"]] = str(secret)
        else:
            assert variable["valueFrom"]["secretKeyRef"] == {"name": "oplog", "key": "mongo-url"}
            environ[variable["name"]] = MONGO_URL
    return parse_agent(container["args"], environ)


@pytest.mark.parametrize("manifest", _agents(), ids=lambda each: each["metadata"]["name"])
def test_an_agent_of_kubernetes_is_what_its_ports_probes_and_mounts_expect(
    manifest: dict[str, Any], tmp_path: Any
) -> None:
    pod = pod_spec(manifest)
    assert pod is not None
    (container,) = pod["containers"]
    settings = _settings(container, tmp_path)
    ports = {port["name"]: (port["containerPort"], port["protocol"]) for port in container["ports"]}
    expected = {"http": (settings.http_address.port, "TCP")}
    if settings.udp_address is not None:
        assert not settings.udp_address.is_loopback
        expected["udp"] = (settings.udp_address.port, "UDP")
    assert ports == expected
    assert settings.password is not None
    assert settings.ingest_password is not None

    assert (
        container["livenessProbe"]["httpGet"]
        == container["startupProbe"]["httpGet"]
        == _get("/live")
    )
    assert container["readinessProbe"]["httpGet"] == _get("/ready")
    assert container["readinessProbe"]["timeoutSeconds"] > STORE_TIMEOUT_SECONDS
    assert manifest["spec"]["template"]["metadata"]["annotations"]["prometheus.io/port"] == str(
        settings.http_address.port
    )

    command, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
    assert command == "sleep"
    assert pod["terminationGracePeriodSeconds"] >= int(seconds) + settings.shutdown_timeout + 5

    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts.keys() == {volume["name"] for volume in pod["volumes"]}
    files = [variable["value"] for variable in container["env"] if "value" in variable]
    (secret,) = (volume["secret"] for volume in pod["volumes"] if "secret" in volume)
    assert {f"{mounts['secrets']}/{item['path']}" for item in secret["items"]} == set(files)
    if settings.spool is not None:
        assert settings.spool.parent.as_posix() == mounts["data"]
        (size,) = (
            volume["emptyDir"]["sizeLimit"] for volume in pod["volumes"] if volume["name"] == "data"
        )
        assert (
            int(size.removesuffix("Gi")) << 30 >= 2 * settings.spool_size
        )  # its write-ahead log beside it
    memory = container["resources"]["limits"]["memory"]
    bytes_ = int(memory[:-2]) << {"Mi": 20, "Gi": 30}[memory[-2:]]
    assert bytes_ >= 4 * (settings.max_queued_bytes + settings.ring_bytes)


def _get(path: str) -> dict[str, str]:
    return {"path": path, "port": "http"}


def test_the_job_takes_its_flags_and_does_not_retry_a_permanent_failure() -> None:
    (manifest,) = manifests("sync.yaml")
    job = manifest["spec"]["jobTemplate"]["spec"]
    pod = pod_spec(manifest)
    assert pod is not None
    (container,) = pod["containers"]
    assert "OPLOG_SYNC_MONGO_URL" in {variable["name"] for variable in container["env"]}
    settings = sync_command().parse(container["args"], {"OPLOG_SYNC_MONGO_URL": MONGO_URL})
    assert settings.store == MONGO_URL
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert settings.arguments[0].startswith(mounts["dumps"] + "/")
    assert mounts.keys() == {volume["name"] for volume in pod["volumes"]}
    hopeless = job["podFailurePolicy"]["rules"][0]
    assert hopeless["onExitCodes"]["containerName"] == container["name"]
    assert set(hopeless["onExitCodes"]["values"]) == {
        EXIT_USAGE,
        EXIT_TOO_MANY_DELETES,
        EXIT_INVALID_ROWS,
        EXIT_EMPTY_DUMP,
        EXIT_TOO_MANY_CHANGES,
        EXIT_FUTURE_ROWS,
        EXIT_OLD_DUMP,
    }


def test_every_service_leads_to_a_port_of_a_pod() -> None:
    pods = {each["metadata"]["name"]: each["spec"]["template"] for each in _agents()}
    services = [each["spec"] for each in manifests() if each["kind"] == "Service"]
    assert len(services) == 2
    for spec in services:
        (template,) = (
            pod for pod in pods.values() if pod["metadata"]["labels"] == spec["selector"]
        )
        ports = {
            (port["name"], port["protocol"]) for port in template["spec"]["containers"][0]["ports"]
        }
        assert {(port["targetPort"], port["protocol"]) for port in spec["ports"]} == ports
        assert {port["port"] for port in spec["ports"]} == {PORT}
