"""Pods: defaults, faults, status, deletion in grace, binding, eviction under budgets; daemon sets."""

# ruff: noqa: E501  one request per line reads better than what wrapping makes of it

from __future__ import annotations

from tools.apiserver.steps import JSON, NODES, PODS, create, delete, get, node, patch, pod, put

_BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
_SETS = "/apis/apps/v1/namespaces/default/daemonsets"
_READY = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}


def pods() -> list[JSON]:
    """Return the requests of a pod's life."""
    gpu = {"name": "main", "image": "image", "resources": {"limits": {"nvidia.com/gpu": 1, "cpu": "0.5"}}}
    rich = pod("rich", "n1", {"labels": {"app": "x"}}, containers=[gpu], nodeSelector={"nvidia.com/mig.config": "a"})
    rich["spec"]["tolerations"] = [{"operator": "Exists"}]
    rich["spec"]["hostNetwork"] = True
    rich["spec"]["volumes"] = [
        {"name": "v", "hostPath": {"path": "/dev"}},
        {"name": "c", "configMap": {"name": "cm"}},
        {"name": "e"},
    ]
    probe = {
        "name": "a",
        "image": "reg.io/a@sha256:0",
        "readinessProbe": {"httpGet": {"port": 80}},
        "ports": [{"containerPort": 80}],
    }
    probe["env"] = [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]
    over = {
        "name": "a",
        "image": "b",
        "resources": {"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}},
    }
    only = {"name": "a", "image": "b", "resources": {"requests": {"nvidia.com/gpu": 1}}}
    more = {"name": "a", "image": "b", "resources": {"requests": {"cpu": 2}, "limits": {"cpu": 1}}}
    return [
        create("node", NODES, node()),
        create("simple", PODS, pod()),
        create("rich", PODS, rich),
        create("probe", PODS, pod("probe", containers=[probe], serviceAccountName="sa")),
        create("guaranteed", PODS, pod("g", containers=[{"name": "a", "image": "b:latest", "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}])),
        create("made-up name", PODS, {"metadata": {"generateName": "gen-"}, "spec": {"containers": [{"name": "a", "image": "b"}]}}),
        create("no containers", PODS, pod("bad", containers=[])),
        create("container without image", PODS, pod("bad", containers=[{"name": "a"}])),
        create("container without name", PODS, pod("bad", containers=[{"image": "a"}])),
        create("the same name twice", PODS, pod("bad", containers=[{"name": "a", "image": "b"}] * 2)),
        create("bad container name", PODS, pod("bad", containers=[{"name": "A_", "image": "b"}])),
        create("bad restart policy", PODS, pod("bad", restartPolicy="Sometimes")),
        create("request is not the limit", PODS, pod("bad", containers=[over])),
        create("request without limit", PODS, pod("bad", containers=[only])),
        create("request over limit", PODS, pod("bad", containers=[more])),
        create("half a GPU", PODS, pod("bad", containers=[{"name": "a", "image": "b", "resources": {"limits": {"nvidia.com/gpu": "500m"}}}])),
        patch("status", f"{PODS}/p1/status", {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}),
        patch("status is not written so", f"{PODS}/p1", {"status": {"phase": "Failed"}}),
        patch("node may not be written", f"{PODS}/p1", {"spec": {"nodeName": "n1"}}),
        create("bind", f"{PODS}/p1/binding", {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p1"}, "target": {"kind": "Node", "name": "n1"}}),
        create("bind again", f"{PODS}/p1/binding", {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p1"}, "target": {"kind": "Node", "name": "n1"}}),
        get("bound", f"{PODS}/p1"),
        patch("add a toleration", f"{PODS}/p1", {"spec": {"tolerations": [{"key": "x", "operator": "Exists"}]}}),
        patch("labels", f"{PODS}/p1", {"metadata": {"labels": {"a": "b"}}}),
        delete("delete in grace", f"{PODS}/p1"),
        delete("delete again, longer", f"{PODS}/p1", {"gracePeriodSeconds": 60}),
        delete("delete again, shorter", f"{PODS}/p1", {"gracePeriodSeconds": 5}),
        get("it is still there", f"{PODS}/p1"),
        delete("now", f"{PODS}/p1", {"gracePeriodSeconds": 0}),
        get("gone", f"{PODS}/p1"),
        create("unscheduled", PODS, pod("free")),
        delete("goes at once", f"{PODS}/free"),
        create("finished", PODS, pod("done", "n1")),
        patch("it ended", f"{PODS}/done/status", {"status": {"phase": "Succeeded"}}),
        delete("goes at once too", f"{PODS}/done"),
        create("with a finalizer", PODS, pod("held", "n1", {"finalizers": ["a.b/c"]})),
        delete("waits", f"{PODS}/held", {"gracePeriodSeconds": 0}),
        patch("let go", f"{PODS}/held", {"metadata": {"finalizers": None}}),
        get("went", f"{PODS}/held"),
        delete("all", PODS, {"gracePeriodSeconds": 0}, query={"labelSelector": "app=x"}),
    ]  # fmt: skip


def _eviction(name: str, **options: object) -> JSON:
    body: JSON = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
    return {**body, "deleteOptions": options} if options else body


def _evict(what: str, name: str, **options: object) -> JSON:
    return create(what, f"{PODS}/{name}/eviction", _eviction(name, **options))


def budgets() -> list[JSON]:
    """Return evictions, with and without a budget."""
    labels = {"labels": {"app": "x"}}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}}
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
    status = {
        "observedGeneration": 1,
        "disruptionsAllowed": 0,
        "currentHealthy": 1,
        "desiredHealthy": 1,
        "expectedPods": 1,
    }
    return [
        create("node", NODES, node()),
        create("pod a", PODS, pod("a", "n1", labels)),
        create("pod b", PODS, pod("b", "n1", labels)),
        create("pod c", PODS, pod("c", "n1")),
        create("pod d", PODS, pod("d", "n1", labels)),
        *(patch(f"ready {name}", f"{PODS}/{name}/status", _READY) for name in "abcd"),
        create("budget", _BUDGETS, {**budget, "spec": spec}, save={"rv": "metadata.resourceVersion"}),
        create("both limits", _BUDGETS, {**budget, "spec": {"minAvailable": 1, "maxUnavailable": 1}}),
        create("a negative limit", _BUDGETS, {**budget, "metadata": {"name": "n"}, "spec": {"minAvailable": -1}}),
        create("a bad percentage", _BUDGETS, {**budget, "metadata": {"name": "n"}, "spec": {"minAvailable": "a%"}}),
        put("replace without version", f"{_BUDGETS}/b", {**budget, "spec": spec}),
        _evict("not observed yet", "a"),
        patch("observed", f"{_BUDGETS}/b/status", {"status": status}),
        _evict("refused", "a"),
        patch("room for two", f"{_BUDGETS}/b/status", {"status": {"disruptionsAllowed": 2, "currentHealthy": 3}}),
        _evict("another uid", "a", preconditions={"uid": "other"}),
        _evict("allowed", "a", gracePeriodSeconds=7),
        get("spent", f"{_BUDGETS}/b"),
        get("evicted", f"{PODS}/a"),
        _evict("again: it is going", "a"),
        _evict("no more room", "b"),
        _evict("no budget", "c"),
        _evict("no such pod", "x"),
        create("another name", f"{PODS}/b/eviction", _eviction("c")),
        patch("not ready", f"{PODS}/d/status", {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
        patch("budget is healthy", f"{_BUDGETS}/b/status", {"status": {"currentHealthy": 1, "desiredHealthy": 1}}),
        _evict("unhealthy pods may go", "d"),
        create("second budget", _BUDGETS, {**budget, "metadata": {"name": "b2"}, "spec": spec}),
        _evict("two budgets", "b"),
        patch("generation counts the spec", f"{_BUDGETS}/b", {"spec": {"minAvailable": "50%"}}),
        patch("and not labels", f"{_BUDGETS}/b", {"metadata": {"labels": {"a": "b"}}}),
    ]  # fmt: skip


def daemon_sets() -> list[JSON]:
    """Return requests about daemon sets: defaults, generation, status."""
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "a", "image": "b:1"}]}}
    spec = {"selector": {"matchLabels": {"app": "x"}}, "template": template}
    one = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}, "spec": spec}
    where = f"{_SETS}/d"
    selector = {"spec": {"template": {"spec": {"nodeSelector": {"gone": "true"}}}}}
    return [
        create("create", _SETS, one),
        create("no selector", _SETS, {**one, "metadata": {"name": "e"}, "spec": {"template": template}}),
        create("selector of others", _SETS, {**one, "metadata": {"name": "e"}, "spec": {**spec, "selector": {"matchLabels": {"a": "b"}}}}),
        patch("node selector", where, selector),
        patch("labels do not count", where, {"metadata": {"labels": {"a": "b"}}}),
        patch("status", f"{where}/status", {"status": {"numberReady": 1, "desiredNumberScheduled": 2, "observedGeneration": 2}}),
        patch("status leaves the spec", f"{where}/status", {"spec": {"minReadySeconds": 5}}),
        patch("selector is fixed", where, {"spec": {"selector": {"matchLabels": {"app": "y"}}}}),
        get("as stored", where),
        delete("delete", where, {"propagationPolicy": "Background"}),
        create("again", _SETS, one),
        delete("in the foreground", where, {"propagationPolicy": "Foreground"}),
        patch("the collector lets go", where, {"metadata": {"finalizers": None}}),
        get("gone", where),
    ]  # fmt: skip
