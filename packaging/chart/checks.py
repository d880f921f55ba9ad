"""What packaging/chart/test asks of rendered manifests. Each command prints what it saw, and exits 1 with what is wrong.

    valid VERSION CRDS FILE...   every object is one of Kubernetes VERSION, or of the Prometheus Operator
    sound FILE...                selectors, mounts, probes, security: what a schema does not say
    first FILE                   its pods need nothing from another file
    alerts FILE RULES PREFIX     the PrometheusRule in FILE has the rules of config/alerts.yml; prints them
    pod FILE CONTAINER FOLDER    makes in FOLDER what the container would find: files, variables, command line
"""

import json
import pathlib
import re
import sys

import jsonschema
import kubernetes_validate
import yaml

OPERATOR = "monitoring.coreos.com/v1"
SECRETS = "/run/secrets/walrelay"
DOCKERFILE = pathlib.Path(__file__).resolve().parents[2] / "Dockerfile"


class Loader(yaml.SafeLoader):
    """Refuses a key that stands twice, of which the last would count."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = {key for key in keys if keys.count(key) > 1}
        if twice:
            raise ValueError(f"line {node.start_mark.line + 1}: {twice} stands twice")
        return super().construct_mapping(node, deep)


def load(path):
    return [it for it in yaml.load_all(pathlib.Path(path).read_text(), Loader) if it]


def of_kind(objects, kind):
    return [it for it in objects if it["kind"] == kind]


def name_of(it):
    return f"{it['kind']} {it['metadata']['name']}"


def fail(*faults):
    if faults:
        print("\n".join(faults))
        sys.exit(1)


def closed(schema):
    """A schema of a custom resource that refuses unknown fields, as the API server prunes them."""
    if isinstance(schema, list):
        return [closed(it) for it in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    if isinstance(made.get("pattern"), str):
        # Go has flags anywhere, Python at the start.
        made["pattern"] = made["pattern"].replace("^(?i)", "(?i)^")
    if isinstance(made.get("properties"), dict) and "additionalProperties" not in made and not made.get("x-kubernetes-preserve-unknown-fields"):
        made["additionalProperties"] = False
    return made


def operator_schemas(folder):
    found = {}
    for kind in ("ServiceMonitor", "PrometheusRule"):
        crd = yaml.safe_load((pathlib.Path(folder) / f"monitoring.coreos.com_{kind.lower()}s.yaml").read_text())
        [version] = [it for it in crd["spec"]["versions"] if it["name"] == "v1"]
        found[kind] = closed(version["schema"]["openAPIV3Schema"])
        found[kind]["properties"]["metadata"] = {"type": "object"}
    return found


def valid(version, crds, *paths):
    operator, seen = operator_schemas(crds), 0
    for path in paths:
        for it in load(path):
            try:
                if it["apiVersion"] == OPERATOR:
                    jsonschema.validate(it, operator[it["kind"]])
                else:
                    kubernetes_validate.validate(it, version, strict=True)
            except (jsonschema.ValidationError, kubernetes_validate.ValidationError) as error:
                fail(f"{path}: {name_of(it)}: {error.message} at {list(error.path)}")
            seen += 1
    print(f"{seen} objects in {len(paths)} files")


def pod_templates(objects):
    return [(it, it["spec"]["template"]) for it in objects if it["kind"] in ("StatefulSet", "Job")]


def selects(selector, labels):
    return bool(selector) and all(labels.get(key) == value for key, value in selector.items())


def mount_faults(owner, pod):
    volumes = {it["name"] for it in pod.get("volumes", [])}
    volumes |= {it["metadata"]["name"] for it in owner["spec"].get("volumeClaimTemplates", [])}
    for container in pod["containers"] + pod.get("initContainers", []):
        mounts = container.get("volumeMounts", [])
        paths = [it["mountPath"] for it in mounts]
        yield from (f"no volume {it['name']}" for it in mounts if it["name"] not in volumes)
        # What is mounted in a read-only volume has no place to be mounted at.
        yield from (f"{one} lies in {other}" for one in paths for other in paths if one.startswith(other + "/"))
    used = {it["name"] for container in pod["containers"] for it in container.get("volumeMounts", [])}
    yield from (f"volume {it} is not mounted" for it in volumes - used)


def security_faults(pod, container):
    """The profile "restricted" of the Pod Security Standards, and a root that cannot be written."""
    of_pod, own = pod["securityContext"], container["securityContext"]
    wanted = [
        (of_pod.get("runAsNonRoot") is True, "runAsNonRoot"),
        (of_pod.get("runAsUser") != 0, "runAsUser"),
        (of_pod["seccompProfile"] == {"type": "RuntimeDefault"}, "seccompProfile"),
        (of_pod.get("fsGroupChangePolicy") == "OnRootMismatch", "fsGroupChangePolicy"),
        (own["allowPrivilegeEscalation"] is False, "allowPrivilegeEscalation"),
        (own["capabilities"] == {"drop": ["ALL"]}, "capabilities"),
        (own["readOnlyRootFilesystem"] is True, "readOnlyRootFilesystem"),
        (pod["automountServiceAccountToken"] is False, "automountServiceAccountToken"),
        (pod["enableServiceLinks"] is False, "enableServiceLinks"),
        (not any(pod.get(key) for key in ("hostNetwork", "hostPID", "hostIPC")), "host namespaces"),
        (not any("hostPath" in volume for volume in pod["volumes"]), "hostPath"),
    ]
    return [what for holds, what in wanted if not holds]


def drain_seconds(config):
    found = re.search(r'^drain_timeout = "(.*)"$', config, re.M)
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
    return sum(int(n) * units[unit] for n, unit in re.findall(r"([0-9]+)(ms|s|m|h|d)", found.group(1)))


def relay_faults(objects, owner):
    """Of the StatefulSet, and of what refers to it."""
    spec, labels = owner["spec"], owner["spec"]["template"]["metadata"]["labels"]
    pod = spec["template"]["spec"]
    container = pod["containers"][0]
    [service] = of_kind(objects, "Service")
    config = configuration(objects, pod)
    probes = {kind: container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
    named = {it["name"]: it["containerPort"] for it in container["ports"]}
    budgets = of_kind(objects, "PodDisruptionBudget")
    wanted = [
        (pod["terminationGracePeriodSeconds"] >= drain_seconds(config) + 10, "terminationGracePeriodSeconds"),
        (probes["startup"]["path"] == probes["liveness"]["path"] == "/livez", "the path of /livez"),
        (probes["readiness"]["path"] == "/readyz?standby=ok", "the path of /readyz"),
        (all(probe["port"] in named for probe in probes.values()), "a probe's port"),
        (re.search(rf'^listen = ".*:{named["admin"]}"$', config, re.M), "the port of admin.listen"),
        (re.search('^when_halted = "wait"$', config, re.M), "when_halted"),
        (selects(spec["selector"]["matchLabels"], labels), "its own selector"),
        (spec["serviceName"] == service["metadata"]["name"], "serviceName"),
        (selects(service["spec"]["selector"], labels), "the selector of the Service"),
        (service["spec"]["publishNotReadyAddresses"] is True, "publishNotReadyAddresses"),
        (spec["podManagementPolicy"] == "Parallel", "podManagementPolicy"),
        (len(budgets) == (1 if spec["replicas"] > 1 else 0), "the number of PodDisruptionBudgets"),
        (all(selects(it["spec"]["selector"]["matchLabels"], labels) for it in budgets), "the PodDisruptionBudget"),
        ("affinity" in pod or spec["replicas"] < 2, "the spread of two replicas"),
    ]
    for monitor in of_kind(objects, "ServiceMonitor"):
        wanted += [
            (selects(monitor["spec"]["selector"]["matchLabels"], service["metadata"]["labels"]), "the ServiceMonitor"),
            (monitor["spec"]["endpoints"][0]["port"] in [it["name"] for it in service["spec"]["ports"]], "its port"),
        ]
    return [what for holds, what in wanted if not holds]


def lets_dns_out(policy):
    """To any place, at the ports of CoreDNS and of OpenShift's, which a policy sees behind the Service."""
    ports = [port for rule in policy["spec"]["egress"] if "to" not in rule for port in rule.get("ports", [])]
    return all({"port": port, "protocol": protocol} in ports for port in (53, 5353) for protocol in ("UDP", "TCP"))


def init_faults(objects, owner):
    """Of the Job: what the pod of the relay needs to reach the database, it needs too."""
    pod = owner["spec"]["template"]["spec"]
    [relay] = [it["spec"]["template"]["spec"] for it in of_kind(objects, "StatefulSet")]
    accounts = [it["metadata"]["name"] for it in of_kind(objects, "ServiceAccount")]
    annotations = owner["metadata"].get("annotations", {})
    hook = "helm.sh/hook" in annotations
    mounted = config_map(objects, pod)["metadata"].get("annotations", {})
    # A hook runs before the ServiceAccount of the chart is there.
    account = None if hook and relay["serviceAccountName"] in accounts else relay["serviceAccountName"]
    wanted = [
        (pod.get("initContainers") == relay.get("initContainers"), "initContainers"),
        (pod.get("nodeSelector") == relay.get("nodeSelector"), "nodeSelector"),
        # Argo CD makes an ordinary Job again that has been deleted.
        (hook == ("ttlSecondsAfterFinished" in owner["spec"]), "ttlSecondsAfterFinished"),
        (pod.get("serviceAccountName") == account, "serviceAccountName"),
        # Otherwise Argo CD would wait for the Job, and the Job for its file.
        (hook or mounted == annotations, "the annotations of its ConfigMap"),
    ]
    return [what for holds, what in wanted if not holds]


def sound(*paths):
    pods = 0
    for path in paths:
        objects, faults = load(path), []
        names = [name_of(it) for it in objects]
        faults += [f"{it} stands twice" for it in set(names) if names.count(it) > 1]
        for owner, template in pod_templates(objects):
            pod, pods = template["spec"], pods + 1
            found = list(mount_faults(owner, pod)) + security_faults(pod, pod["containers"][0])
            if owner["kind"] == "StatefulSet":
                found += relay_faults(objects, owner)
            else:
                found += init_faults(objects, owner)
            for policy in of_kind(objects, "NetworkPolicy"):
                if not selects(policy["spec"]["podSelector"]["matchLabels"], template["metadata"]["labels"]):
                    found.append("the NetworkPolicy does not select it")
                if "Egress" in policy["spec"]["policyTypes"] and not lets_dns_out(policy):
                    found.append("the NetworkPolicy cuts it off from DNS")
            faults += [f"{path}: {name_of(owner)}: {it}" for it in found]
        fail(*faults)
    print(f"{pods} pods in {len(paths)} files")


def alerts(path, rules, prefix):
    [made] = of_kind(load(path), "PrometheusRule")
    wanted = yaml.safe_load(pathlib.Path(rules).read_text())
    for group in wanted["groups"]:
        for rule in group["rules"]:
            rule["annotations"]["runbook_url"] = prefix + rule["annotations"]["runbook_url"]
    got = json.loads(json.dumps(made["spec"]))
    for group in got["groups"]:
        for rule in group["rules"]:
            rule["labels"] = {key: value for key, value in rule["labels"].items() if key == "severity"}
    if got != wanted:
        fail("the PrometheusRule is not config/alerts.yml")
    print(yaml.safe_dump(made["spec"]))


def first(path):
    """What is applied before all others has what its pods refer to."""
    objects = load(path)
    for owner, template in pod_templates(objects):
        pod = template["spec"]
        config_map(objects, pod)
        if pod.get("serviceAccountName") not in [it["metadata"]["name"] for it in of_kind(objects, "ServiceAccount")]:
            fail(f"{name_of(owner)} has the ServiceAccount {pod.get('serviceAccountName')}, which is not in {path}")
    print(", ".join(name_of(it) for it in objects))


def config_map(objects, pod):
    [name] = [it["configMap"]["name"] for it in pod["volumes"] if it["name"] == "config"]
    [found] = [it for it in of_kind(objects, "ConfigMap") if it["metadata"]["name"] == name]
    return found


def configuration(objects, pod):
    return config_map(objects, pod)["data"]["walrelay.toml"]


def sample(path):
    """What a Secret of the user might hold. Nothing listens on these ports."""
    if path.endswith(".pem"):
        return pathlib.Path("/etc/ssl/certs/ca-certificates.crt").read_text().split("\n\n")[0]
    if "rabbitmq" in path:
        return "amqps://relay:sample@127.0.0.1:2"
    if path.endswith("url"):
        return "postgres://relay:sample@127.0.0.1:1/app"
    return "sample-of-a-secret-value"


def image_variables():
    """What the image sets, and a container has unless the chart says otherwise."""
    last_stage = DOCKERFILE.read_text().rsplit("\nFROM ", 1)[1]
    return dict(re.findall(r"^ENV (\w+)=(\S*)$", last_stage, re.M))


def pod(path, container_name, folder):
    objects, folder = load(path), pathlib.Path(folder)
    for owner, template in pod_templates(objects):
        spec = template["spec"]
        for container in spec["containers"]:
            if container["name"] == container_name:
                write_pod(configuration(objects, spec), spec, container, folder)
                return
    fail(f"no container {container_name}")


def write_pod(config, spec, container, folder):
    def write(name, text):
        target = folder / "files" / name.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    mounts = {it["mountPath"]: it["name"] for it in container["volumeMounts"]}
    [config_mount] = [path for path, name in mounts.items() if name == "config"]
    write(f"{config_mount}/walrelay.toml", config)
    sources = [it["projected"]["sources"] for it in spec["volumes"] if it["name"] == "secrets"]
    offered = [source["secret"].get("items") for source in (sources[0] if sources else [])]
    for named in re.findall(r'"(/[^"]*/[^"]*)"', config):
        place = named.rsplit("/", 1)[0]
        if place not in mounts:
            fail(f"{named} is in no volume that is mounted")
        listed = [item["path"] for items in offered if items for item in items]
        if place == SECRETS and all(items for items in offered) and named.rsplit("/", 1)[1] not in listed:
            fail(f"no Secret has {named}")
        write(named, sample(named))
    variables = image_variables()
    variables.update({it["name"]: it.get("value", sample(it["name"].lower())) for it in container["env"]})
    # In addition to that of the image: where this machine has what the test itself runs there.
    variables["PATH"] += ":/usr/bin:/bin"
    (folder / "env").write_text("".join(f"{key}={value}\0" for key, value in variables.items()))
    (folder / "args").write_text("".join(f"{it}\0" for it in container["args"]))
    writable = [path for path, name in mounts.items() if name == "state"]
    (folder / "writable").write_text("".join(writable))
    probes = [container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("liveness", "readiness") if f"{kind}Probe" in container]
    ports = [it["containerPort"] for it in container.get("ports", [])]
    (folder / "probes").write_text("".join(f"http://127.0.0.1:{ports[0]}{path}\n" for path in probes))


COMMANDS = {"valid": valid, "sound": sound, "first": first, "alerts": alerts, "pod": pod}
if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
