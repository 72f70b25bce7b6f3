"""The manifests fit the API's schemas and the pod security standard "restricted".

So they do with the patches of the overlay.
"""

import copy
from typing import Any

import pytest

from tests.kits.deploy.files import KUBERNETES, check_manifests, manifests, pod_spec, read_yaml

# The first version with all features as stable ones, and the newest version with a schema.
VERSIONS = ("1.31", "1.37")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_api_accepts_the_manifests(version: str) -> None:
    check_manifests([*manifests(), *_with_host_port()], version)


def test_the_schemas_refuse_a_member_that_is_misspelt() -> None:
    manifest = copy.deepcopy(manifests("stream.yaml")[-1])
    manifest["spec"]["template"]["spec"]["terminationGracePeriod"] = 45
    with pytest.raises(ValueError, match="terminationGracePeriod"):
        check_manifests([manifest], VERSIONS[-1])


def test_the_kustomization_names_every_manifest_and_every_image() -> None:
    kustomization = read_yaml(KUBERNETES / "kustomization.yaml")
    files = {path.name for path in KUBERNETES.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(kustomization["resources"]) == files
    (namespace,) = (each for each in manifests() if each["kind"] == "Namespace")
    assert kustomization["namespace"] == namespace["metadata"]["name"]
    images = {
        container["image"]
        for each in manifests()
        if (pod := pod_spec(each))
        for container in pod["containers"]
    }
    assert {image["name"] for image in kustomization["images"]} == images


def test_every_pod_keeps_the_restricted_standard_and_more() -> None:
    pods = [pod for each in manifests() if (pod := pod_spec(each))]
    assert len(pods) == 3
    for pod in pods:
        context = pod["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        assert all(
            volume.keys() & {"emptyDir", "secret", "persistentVolumeClaim"}
            for volume in pod["volumes"]
        )
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert not any("hostPort" in port for port in container.get("ports", []))
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}
            assert container["resources"]["limits"].keys() == {"memory"}


def test_datagrams_reach_an_agent_while_its_store_is_unavailable() -> None:
    (service,) = (each for each in manifests("node.yaml") if each["kind"] == "Service")
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["internalTrafficPolicy"] == "Local"


def test_with_the_host_port_the_node_takes_datagrams_and_agents_follow_each_other() -> None:
    namespace, daemon_set = _with_host_port()
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    assert "maxSurge" not in daemon_set["spec"]["updateStrategy"]["rollingUpdate"]
    pod = pod_spec(daemon_set)
    assert pod is not None
    udp, http = pod["containers"][0]["ports"]
    assert udp == {"name": "udp", "containerPort": 8042, "hostPort": 8042, "protocol": "UDP"}
    assert "hostPort" not in http


def _with_host_port() -> list[dict[str, Any]]:
    """Return the resources that the overlay `host-port` changes, after the change."""
    folder = KUBERNETES.parent / "host-port"
    kustomization = read_yaml(folder / "kustomization.yaml")
    assert [(folder / path).resolve() for path in kustomization["resources"]] == [KUBERNETES]
    assert KUBERNETES not in folder.parents  # kustomize calls that a cycle
    changed = []
    for patch in kustomization["patches"]:
        target = patch["target"]
        (manifest,) = (
            each
            for each in manifests()
            if (each["kind"], each["metadata"]["name"]) == (target["kind"], target["name"])
        )
        for operation in read_yaml(folder / patch["path"]):
            _patch(manifest, **operation)
        changed.append(manifest)
    return sorted(changed, key=lambda each: str(each["kind"]), reverse=True)


def _patch(manifest: Any, op: str, path: str, value: Any) -> None:
    """Apply one operation of a JSON patch (RFC 6902) on members of objects."""
    *parents, last = (part.replace("~1", "/") for part in path.removeprefix("/").split("/"))
    for part in parents:
        manifest = manifest[int(part) if isinstance(manifest, list) else part]
    assert (last in manifest) == (op == "replace"), f"{op} {path}"
    manifest[last] = value
