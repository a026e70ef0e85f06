"""deploy/kubernetes: rendered by kustomize, validated against the schemas, and compared with what the
documents promise."""

import copy
import functools
import json
import shutil
import tempfile
from pathlib import Path

import kubernetes_validate
import yaml

import rig
from rig import REPOSITORY

from . import sources
from .tools import KUBECTL

KUBERNETES = REPOSITORY / "deploy" / "kubernetes"
# The first version with the `sleep` action for preStop enabled by default, and the newest known one.
VERSIONS = ["1.30", "1.37"]
VARIANTS = ["privileged", "least-privilege"]


def check():
    """Returns every fault."""
    faults, checked = [], 0
    for variant, what, objects in renderings():
        checked += len(objects)
        faults += [f"{what}: {fault}" for fault in faults_of(objects, variant)]
        faults += [f"{what}: the checks miss {name}" for name in missed(objects, variant)]
    print(f"kubernetes: {checked} objects, against the schemas of {' and '.join(VERSIONS)}")
    return faults


def renderings():
    """Each overlay, and those that per-language writes, with the variant."""
    for variant in VARIANTS:
        yield variant, f"overlays/{variant}", render(KUBERNETES / "overlays" / variant)
        with tempfile.TemporaryDirectory() as scratch:
            tree = copy_of_tree(Path(scratch))
            rig.run([tree / "per-language", variant, "--option", "autoscaling"])
            objects = render(tree / "overlays" / "per-language")
            slugs = {labels(item)["app.kubernetes.io/component"] for item in of(objects, "Service")}
            recipes = {path.parent.name for path in
                       (REPOSITORY / "langs" / "toolchains").glob("*/unavailable")}
            assert slugs == set(sources.LANGUAGES) - recipes, slugs
            yield variant, f"per-language {variant}", objects


def copy_of_tree(scratch):
    """Copies the tree, so that an operator's generated overlays stay as they are."""
    tree = scratch / "deploy" / "kubernetes"
    shutil.copytree(KUBERNETES, tree, ignore=shutil.ignore_patterns("per-language.*"))
    (scratch / "langs").symlink_to(REPOSITORY / "langs")
    return tree


def render(directory):
    return list(yaml.safe_load_all(rig.run([KUBECTL, "kustomize", directory])))


def of(objects, kind):
    return [item for item in objects if item["kind"] == kind]


def labels(item):
    return item["metadata"].get("labels", {})


def faults_of(objects, variant):
    found = [fault for item in objects for fault in schema_faults(json.dumps(item))]
    deployments = of(objects, "Deployment")
    if not deployments:
        found.append("no Deployment")
    for deployment in deployments:
        found += deployment_faults(deployment, objects, variant)
    for kind in ["Service", "PodDisruptionBudget", "NetworkPolicy"]:
        if len(of(objects, kind)) != len(deployments):
            found.append(f"not one {kind} for each Deployment")
    found += [fault for item in objects for fault in neighbour_faults(item, deployments)]
    levels = [labels(item).get("pod-security.kubernetes.io/enforce")
              for item in of(objects, "Namespace")]
    return found + ([] if levels == ["privileged"] else [f"namespaces: {levels}"])


@functools.cache
def schema_faults(text):
    faults, item = [], json.loads(text)
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(item, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            faults.append(f"{item['kind']} {item['metadata']['name']}, {version}: {error.message}")
    return faults


def deployment_faults(deployment, objects, variant):
    template = deployment["spec"]["template"]
    pod, component = template["spec"], labels(template)["app.kubernetes.io/component"]
    [container] = pod["containers"]
    [reference] = container["envFrom"]
    [env] = [item["data"] for item in of(objects, "ConfigMap")
             if item["metadata"]["name"] == reference["configMapRef"]["name"]]
    security = container["securityContext"]
    memory = f"{sources.pod_mib(component, env)}Mi"
    drain = sources.seconds(env["SHUTDOWN_GRACE"]) + sources.after_the_grace()
    before = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    limits, requests = container["resources"]["limits"], container["resources"]["requests"]
    promises = {
        "it selects its own pods": selects(deployment["spec"]["selector"], template),
        "an image without a registry": container["image"] == f"cofferdam:{component}",
        "only variables that the service reads": set(env) <= sources.variables(),
        "no run is longer than the drain":
            sources.seconds(env["RUN_TIMEOUT_MAX"]) <= sources.seconds(env["SHUTDOWN_GRACE"]),
        "time for the drain": pod["terminationGracePeriodSeconds"] > before + drain,
        "probes": all(is_health(container.get(f"{name}Probe"), container)
                      for name in ["startup", "readiness", "liveness"]),
        "memory for all runs": limits["memory"] == requests["memory"] == memory,
        "a share of the CPUs": "cpu" in requests,
        "no token": pod["automountServiceAccountToken"] is False,
        "no write to the image": security["readOnlyRootFilesystem"] is True,
        "a private /run in memory": is_run_in_memory(pod, container),
        "privileged only in that variant":
            security.get("privileged", False) is (variant == "privileged"),
        "strict where everything can be enforced":
            env["ISOLATION"] == ("strict" if variant == "privileged" else "best"),
        "no more capabilities than needed":
            variant == "privileged" or security["capabilities"] == {
                "drop": ["ALL"], "add": sorted(sources.CAPABILITIES)},
    }
    return [f"{deployment['metadata']['name']}: {name}" for name, kept in promises.items()
            if not kept]


def is_health(probe, container):
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    return probe is not None and probe["httpGet"]["path"] == "/health" \
        and ports.get(probe["httpGet"]["port"]) == sources.image_port()


def is_run_in_memory(pod, container):
    # The volume is one level above the state directory: everyone may write to a volume's root, but
    # not to the state directory.
    [name] = [mount["name"] for mount in container["volumeMounts"] if mount["mountPath"] == "/run"]
    [volume] = [volume for volume in pod["volumes"] if volume["name"] == name]
    return volume["emptyDir"]["medium"] == "Memory" and "sizeLimit" in volume["emptyDir"]


def neighbour_faults(item, deployments):
    """The objects that accompany a Deployment: each selects exactly one and has the right values."""
    spec, name = item.get("spec"), f"{item['kind']} {item['metadata']['name']}"
    match item["kind"]:
        case "Service":
            selector, kept = {"matchLabels": spec["selector"]}, \
                [port["targetPort"] for port in spec["ports"]] == ["http"]
        case "PodDisruptionBudget":
            selector, kept = spec["selector"], spec["maxUnavailable"] == 1
        case "NetworkPolicy":
            selector, kept = spec["podSelector"], spec["egress"] == [] \
                and sorted(spec["policyTypes"]) == ["Egress", "Ingress"] \
                and [rule["ports"] for rule in spec["ingress"]] == [[{"port": "http"}]]
        case "HorizontalPodAutoscaler":
            return [] if is_autoscaling(spec, deployments) else [name]
        case _:
            return []
    selected = [d for d in deployments if selects(selector, d["spec"]["template"])]
    return [] if kept and len(selected) == 1 else [f"{name}: for {len(selected)} Deployments"]


def is_autoscaling(spec, deployments):
    [target] = [d for d in deployments if d["metadata"]["name"] == spec["scaleTargetRef"]["name"]]
    [metric] = [metric["pods"] for metric in spec["metrics"]]
    slots = int(sources.env_of_base()["RUN_CONCURRENCY"])
    return "replicas" not in target["spec"] and spec["minReplicas"] >= 2 \
        and metric["metric"]["name"] in sources.METRICS \
        and 0 < int(metric["target"]["averageValue"]) < slots


def selects(selector, template):
    wanted = selector.get("matchLabels")
    return bool(wanted) and wanted.items() <= labels(template).items()


def missed(objects, variant):
    """Spoils one object at a time; yields each change that causes no fault."""
    scaled = bool(of(objects, "HorizontalPodAutoscaler"))
    for name, spoil in (SPOILT_SCALING if scaled else SPOILT).items():
        spoilt = copy.deepcopy(objects)
        spoil({item["kind"]: item["spec"] for item in spoilt if "spec" in item},
              {item["kind"]: item for item in spoilt})
        if not faults_of(spoilt, variant):
            yield name


def pod_of(specs):
    return specs["Deployment"]["template"]["spec"]


def container_of(specs):
    return pod_of(specs)["containers"][0]


def metric_of(specs):
    return specs["HorizontalPodAutoscaler"]["metrics"][0]["pods"]


SPOILT = {
    "an unknown field": lambda s, _: pod_of(s).update(restartPolice="Always"),
    "a string for a number": lambda s, _: s["Deployment"].update(replicas="2"),
    "a missing probe": lambda s, _: container_of(s).pop("livenessProbe"),
    "a probe of the wrong path": lambda s, _: container_of(s)["startupProbe"]["httpGet"].update(path="/"),
    "too little memory": lambda s, _: container_of(s)["resources"]["limits"].update(memory="1Gi"),
    "a token": lambda s, _: pod_of(s).update(automountServiceAccountToken=True),
    "a short grace": lambda s, _: pod_of(s).update(terminationGracePeriodSeconds=30),
    "runs longer than the drain": lambda _, o: o["ConfigMap"]["data"].update(RUN_TIMEOUT_MAX="5m"),
    "a misspelt variable": lambda _, o: o["ConfigMap"]["data"].update(RUN_CONCURENCY="4"),
    "a writable image": lambda s, _: container_of(s)["securityContext"].update(readOnlyRootFilesystem=False),
    "the other variant": lambda s, _: container_of(s)["securityContext"].update(
        privileged=not container_of(s)["securityContext"].get("privileged", False)),
    "a registry": lambda s, _: container_of(s).update(image="example.org/cofferdam:all"),
    "a policy that selects nothing": lambda s, _: s["NetworkPolicy"].update(podSelector={}),
    "open egress": lambda s, _: s["NetworkPolicy"].update(egress=[{}]),
    "a disruption budget of all pods": lambda s, _: s["PodDisruptionBudget"].update(maxUnavailable=2),
    "a service that selects nothing": lambda s, _: s["Service"]["selector"].update({"app.kubernetes.io/name": "x"}),
    "a pod security level that forbids it": lambda _, o: o["Namespace"]["metadata"]["labels"].update(
        {"pod-security.kubernetes.io/enforce": "restricted"}),
}

SPOILT_SCALING = {
    "a metric that the service does not have": lambda s, _: metric_of(s)["metric"].update(name="cofferdam_slots"),
    "a target above the slots": lambda s, _: metric_of(s)["target"].update(averageValue="4"),
    "a replica count beside the autoscaler": lambda s, _: s["Deployment"].update(replicas=2),
}
