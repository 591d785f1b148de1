"""Settings: layers, files, environment variables."""

from __future__ import annotations

import msgspec
import pytest

from aliquot.core.config import settings, settings_text
from aliquot.core.config.settings import AgentSettings, Layer, Override
from aliquot.errors import ConfigError

FULL = """\
version: aliquot/v1
mig:
  enabled: true
  strategy: mixed
  config-map: custom-mig-config
  default-config: ""
  prediction: warn
  self-heal: false
  with-reboot: true
host-clients:
  stop: true
  config-map: gpu-clients
holders:
  policy: drain
  wait-seconds: 30
  drain-seconds: 90
  cordon: true
device-plugin:
  enabled: false
  cdi: false
  env: false
  device-nodes: true
labels:
  enabled: false
hints:
  enabled: false
vgpu:
  enabled: false
  config-map: custom-vgpu-config
  default-config: A2-4Q
times:
  check-seconds: 60
  operands-seconds: 120
  retry-first-seconds: 2
  retry-longest-seconds: 40
configs:
  all-1g.10gb:
    holders: force
  train:
    cordon: false
    prediction: refuse
"""


def test_a_full_file_says_every_setting_and_prints_as_it_was() -> None:
    layer = settings_text.read(FULL, "f")
    assert set(layer.values) == {field.name for field in msgspec.structs.fields(AgentSettings)}
    assert settings_text.to_text(layer) == FULL
    merged = settings.merge((layer,))
    assert merged.strategy == "mixed"
    assert merged.default_config == ""
    assert (merged.wait_s, merged.drain_s, merged.retry_longest_s) == (30, 90, 40)
    assert merged.configs["train"] == Override(cordon=False, prediction="refuse")
    assert (merged.vgpu_manage, merged.vgpu_config_map, merged.vgpu_default_config) == (
        *(False, "custom-vgpu-config"),
        "A2-4Q",
    )
    unchanged = [k.field for k in settings_text.KEYS if getattr(merged, k.field) == getattr(AgentSettings(), k.field)]
    assert unchanged == ["manage"]


def test_every_setting_has_a_key_and_every_key_a_setting() -> None:
    assert [key.field for key in settings_text.KEYS if key.field not in AgentSettings.__struct_fields__] == []
    assert {key.field for key in settings_text.KEYS} | {"configs"} == set(AgentSettings.__struct_fields__)
    assert set(settings_text.ENVIRONMENT.values()) <= {key.field for key in settings_text.KEYS}


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "null"])
def test_a_file_that_says_nothing(text: str) -> None:
    assert settings_text.read(text, "f") == Layer("f")
    assert settings.merge(()) == AgentSettings()


def test_a_higher_layer_wins_where_it_speaks() -> None:
    environment = settings_text.from_environment({"MIG_STRATEGY": "none", "WITH_REBOOT": "TRUE", "HOME": "/"})
    ours = settings_text.read("version: aliquot/v1\nmig: {strategy: single, prediction: warn}", "map")
    policy = Layer("policy", {"strategy": "mixed"})
    merged = settings.merge((environment, ours, policy))
    assert (merged.strategy, merged.prediction, merged.with_reboot) == ("mixed", "warn", True)
    assert settings_text.read(settings_text.to_text(ours), "map") == ours


def test_named_configs_add_up_over_the_layers() -> None:
    low = settings_text.read("version: aliquot/v1\nconfigs: {a: {holders: wait}, b: {cordon: true}}", "low")
    high = settings_text.read("version: aliquot/v1\nconfigs: {b: {holders: drain}}", "high")
    merged = settings.merge((low, high))
    assert merged.configs == {"a": Override(holders="wait"), "b": Override(holders="drain")}


def test_what_may_be_done_to_holders() -> None:
    value = AgentSettings(holders="drain", wait_s=10, drain_s=20, configs={"w": Override("wait", True, "warn")})
    assert value.holder_policy("x") == settings.HolderPolicy("drain", 20, False)
    assert value.holder_policy("w") == settings.HolderPolicy("wait", 10, True)
    assert value.holder_policy("w", "force") == settings.HolderPolicy("force", 20, True)
    assert value.holder_policy("x", "nonsense") == value.holder_policy("x")
    assert (value.prediction_for("x"), value.prediction_for("w")) == ("refuse", "warn")


FAULTS = [
    ("[]", "f:1:1: the file must be a mapping, not a list"),
    ("mig: {}", "f:1:1: the version must be aliquot/v1"),
    ("version: v1", "f:1:10: the version must be aliquot/v1"),
    ("version: aliquot/v1\nmigs: {}", "f:2:1: unknown key 'migs' in the file (did you mean mig?)"),
    ("version: aliquot/v1\nmig: {strateg: mixed}", "unknown key 'strateg' in 'mig' (did you mean strategy?)"),
    ("version: aliquot/v1\nmig: {strategy: mixd}", "f:2:17: 'mig.strategy' must be one of none, single, mixed"),
    ("version: aliquot/v1\nmig: {strategy: mixd}", "(did you mean mixed?)"),
    ("version: aliquot/v1\nmig: {strategy: 1}", "not the number 1"),
    ("version: aliquot/v1\nmig: {default-config: all-enabled}", 'must be one of all-disabled, ""'),
    ("version: aliquot/v1\nmig: {with-reboot: yes}", "must be true or false, not the text 'yes'"),
    ("version: aliquot/v1\nmig: {config-map: Bad_Name}", "must be the name of a ConfigMap, not 'Bad_Name'"),
    ("version: aliquot/v1\nholders: {wait-seconds: 0}", "a whole number from 1 to 86400, not the number 0"),
    ("version: aliquot/v1\nholders: {wait-seconds: true}", "not the boolean true"),
    ("version: aliquot/v1\nholders: {wait-seconds: 1.5}", "not the number 1.5"),
    ("version: aliquot/v1\nholders: {policy: kill}", "must be one of refuse, wait, drain, force"),
    ("version: aliquot/v1\nlabels: true", "'labels' must be a mapping, not the boolean true"),
    ("version: aliquot/v1\nlabels: {}\nlabels: {}", "the key 'labels' is written twice"),
    (
        "version: aliquot/v1\nconfigs: {a: {holder: wait}}",
        "unknown key 'holder' in 'configs.a' (did you mean holders?)",
    ),
    ("version: aliquot/v1\nconfigs: {a: {holders: 5}}", "'configs.a.holders' must be one of"),
    ("version: aliquot/v1\nconfigs: {a: {cordon: x}}", "'configs.a.cordon' must be true or false"),
    ("version: aliquot/v1\ntimes: {retry-first-seconds: 9, retry-longest-seconds: 8}", "(9) is more than the longest"),
    ("version: aliquot/v1\nmig: {strategy: [}", "this is not YAML"),
]


@pytest.mark.parametrize(("text", "sentence"), FAULTS, ids=[str(n) for n in range(len(FAULTS))])
def test_faults(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_text.read(text, "f")
    assert sentence in "\n".join(caught.value.details or (caught.value.brief,))


def test_all_faults_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        settings_text.read("version: v9\nmig: {strategy: x, with-reboot: x}\nconfigs: {a: 1, b: {c: d}}", "f")
    assert caught.value.brief == "f has 5 errors"


def test_variables() -> None:
    assert settings_text.from_environment({}) == Layer("the environment")
    answer = {"MIG_STRATEGY": " mixed", "WITH_SHUTDOWN_HOST_GPU_CLIENTS": "1", "CDI_ENABLED": "F", "WITH_REBOOT": ""}
    assert settings_text.from_environment(answer).values == {
        "strategy": "mixed",
        "stop_host_clients": True,
        "cdi": False,
    }
    with pytest.raises(ConfigError) as caught:
        settings_text.from_environment({"MIG_STRATEGY": "mixd", "WITH_REBOOT": "on"}, "ClusterPolicy cluster-policy")
    assert caught.value.brief == "ClusterPolicy cluster-policy has 2 errors"
    assert caught.value.details[0].endswith("'mixd' (did you mean mixed?)")
