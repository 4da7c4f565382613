"""The guide to deploying, run as it is written: every host a network namespace with its own address and folder."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

import hiddenarm
from deployment import PATIENCE, Deployment, free_ports, provision
from hiddenarm.cli.main import commands
from hiddenarm.errors import BudgetSpentError, InputError, StaleStateError, UnavailableError
from hiddenarm.net.identity import Identity, Role
from hiddenarm.service.federation_file import FederationFile, PartyEntry

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "deploying.md").read_text()
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(hotel|airline|broker)\$ (.*)")
FINAL = (InputError.exit_code, StaleStateError.exit_code, BudgetSpentError.exit_code)
"""A restart does not help."""
SCP = """\
#!/bin/bash
# Carries files between the folders that stand for hosts.
while [[ $1 == -* ]]; do shift; done
to=${@: -1}
cp -rp "${@:1:$#-1}" "HOSTS/${to%%:*}/${to#*:}"
"""


def addresses() -> dict[str, str]:
    """The hosts of the guide's first table."""
    return dict(re.findall(r"^\| `(\w+)` \| (\d+\.\d+\.\d+\.\d+) \|", GUIDE, re.MULTILINE))


def steps() -> list[tuple[str, str]]:
    """Host and command, in the order of the guide."""
    lines = [line for language, block in BLOCK.findall(GUIDE) if language == "console" for line in block.splitlines()]
    found = [match.groups() for line in lines if (match := COMMAND.fullmatch(line))]
    assert [line for line in lines if not COMMAND.fullmatch(line)] == ["$ make wheel"]
    return [(host, command) for host, command in found]


@dataclass
class Ran:
    host: str
    command: str
    output: str


class Hosts:
    """Namespaces on one bridge, each with an address and a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._prefix = f"ha{os.getpid() % 100_000}"
        self._hub = f"{self._prefix}-hub"
        tools = folder / "tools"
        tools.mkdir()
        (tools / "scp").write_text(SCP.replace("HOSTS", str(folder)))
        (tools / "scp").chmod(0o755)
        (tools / "hiddenarm").write_text(f'#!/bin/bash\nexec {sys.executable} -m hiddenarm "$@"\n')
        (tools / "hiddenarm").chmod(0o755)
        self._path = f"{tools}{os.pathsep}{os.environ['PATH']}"

    def build(self) -> None:
        ip("netns", "add", self._hub)
        ip("-n", self._hub, "link", "add", "bridge", "type", "bridge")
        ip("-n", self._hub, "link", "set", "bridge", "up")
        for number, (host, address) in enumerate(addresses().items()):
            name, plug = self._name(host), f"plug{number}"
            (self.folder / host).mkdir()
            ip("netns", "add", name)
            ip("-n", self._hub, "link", "add", plug, "type", "veth", "peer", "name", "net0", "netns", name)
            ip("-n", self._hub, "link", "set", plug, "master", "bridge", "up")
            ip("-n", name, "address", "add", f"{address}/24", "dev", "net0")
            ip("-n", name, "link", "set", "net0", "up")
            ip("-n", name, "link", "set", "lo", "up")

    def run(self, host: str, command: str) -> Ran:
        """Type a command on a host, answering y if asked."""
        home = self.folder / host
        out = self.folder / "output"
        environment = {**os.environ, "PATH": self._path, "HOME": str(home), "OMP_NUM_THREADS": "1"}
        with out.open("w") as stream:
            done = subprocess.run(
                ["ip", "netns", "exec", self._name(host), "bash", "-c", command],
                cwd=home,
                env=environment,
                input="y\n",
                stdout=stream,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=PATIENCE,
            )
        ran = Ran(host, command, out.read_text())
        assert done.returncode == 0, f"{ran}\n{self.logs()}"
        return ran

    def logs(self) -> str:
        return "\n".join(f"{path.name}:\n{path.read_text()}" for path in sorted(self.folder.glob("*/*.log")))

    def clear(self) -> None:
        """End what runs inside these namespaces, and remove them."""
        for host in (*addresses(), None):
            name = self._name(host) if host else self._hub
            listed = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout
            for pid in listed.split():
                os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def _name(self, host: str) -> str:
        return f"{self._prefix}-{host}"


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    if os.geteuid() or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the command ip")
    hosts = Hosts(tmp_path)
    try:
        hosts.build()
    except subprocess.CalledProcessError as error:
        hosts.clear()
        pytest.skip(f"network namespaces do not work here: {error.stderr.strip()}")
    yield hosts
    hosts.clear()


def federation_file_text() -> str:
    (text,) = [block for language, block in BLOCK.findall(GUIDE) if language == "toml"]
    return str(text)


def test_the_guide_leads_to_the_first_decision(hosts: Hosts) -> None:
    (hosts.folder / "broker" / "federation.toml").write_text(federation_file_text())
    began = time.monotonic()
    ran = [hosts.run(host, command) for host, command in steps()]
    print(f"{len(ran)} commands in {time.monotonic() - began:.0f} s")
    check_fingerprints(ran)
    check_result(hosts, ran)
    for host in addresses():  # and no key left the host on which it was made
        keys = {path.read_bytes() for path in (hosts.folder / host).rglob("key.pem")}
        elsewhere = [path for other in addresses() if other != host for path in (hosts.folder / other).rglob("*")]
        assert keys
        assert not [path for path in elsewhere if path.is_file() and path.read_bytes() in keys]


def check_fingerprints(ran: list[Ran]) -> None:
    """Both sides of every request saw the same."""
    requested = [shown(one) for one in ran if one.command.startswith("hiddenarm request")]
    approved = [shown(one) for one in ran if one.command.startswith("hiddenarm approve")]
    assert len(requested) == 6
    assert sorted(requested) == sorted(approved)


def shown(ran: Ran) -> tuple[str, ...]:
    return tuple(re.findall(r"^(?:role|fingerprint): +(.*)$", ran.output, re.MULTILINE))


def check_result(hosts: Hosts, ran: list[Ran]) -> None:
    home = hosts.folder / "hotel"
    first, learned, second = (json.loads(line) for line in (home / "answers").read_text().splitlines())
    assert (home / "before").read_text() == (home / "answers").read_text()  # by a process that was killed and restarted
    for decision in (first, second):
        assert decision["name"] in ("beach", "city", "mountains", "cruise")
    assert learned == {"id": first["id"], "version": 1}
    states = [one.output for one in ran if "hiddenarm status hotel" in one.command]
    assert len(states) == 2  # before and after the kill
    assert all(re.search(r"lessons in the model\W+1 ", state) for state in states), states
    assert all("Traceback" not in path.read_text() for path in hosts.folder.glob("*/*.log"))


def test_every_field_of_the_federation_file_is_in_the_table() -> None:
    named = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", GUIDE, re.MULTILINE))))
    fields = {*FederationFile.model_fields, *PartyEntry.model_fields} - {"party", "dealer", "actor", "rewarder"}
    assert fields <= named
    assert named - fields == set(addresses())


def test_the_federation_file_of_the_guide_is_sound(tmp_path: Path) -> None:
    (tmp_path / "federation.toml").write_text(federation_file_text())
    federation_file = FederationFile.read(tmp_path / "federation.toml")
    assert {member: federation_file.kit_file(member).durable for member in federation_file.members}
    assert {party.host for party in federation_file.party} | {federation_file.dealer.host} == set(addresses().values())


def service_of(name: str) -> configparser.SectionProxy:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string("".join(line for line in (ROOT / "deploy" / name).open() if line != "ExecStart=\n"))
    return unit["Service"]


def verify_unit(name: str) -> None:
    """By systemd itself, where it is installed."""
    if shutil.which("systemd-analyze"):
        said = subprocess.run(
            ["systemd-analyze", "verify", str(ROOT / "deploy" / name)], capture_output=True, text=True
        )
        lines = said.stderr.splitlines()
        assert not [line for line in lines if name.partition("@")[0] in line and "is not executable" not in line]


def test_the_unit_runs_commands_that_there_are() -> None:
    service = service_of("hiddenarm@.service")
    for line in (service["ExecStart"], service["ExecStartPre"]):
        program, command, kit, *options = shlex.split(line)
        assert (program, kit) == ("/opt/hiddenarm/bin/hiddenarm", "/var/lib/hiddenarm/%i")
        commands.commands[command].make_context(command, [str(ROOT), *options])
    assert service["ExecReload"].startswith("/bin/kill -HUP")
    assert (service["StateDirectory"], service["StateDirectoryMode"]) == ("hiddenarm/%i", "0700")
    assert "ReadWritePaths" not in service  # nothing else is written
    assert service["RestartPreventExitStatus"].split() == [str(code) for code in FINAL]
    verify_unit("hiddenarm@.service")


def unit_line() -> str:
    """What bash is given by the unit of an organisation that reads lines, for the hotel."""
    bash, option, line = shlex.split(service_of("lines.conf")["ExecStart"])
    assert (bash, option) == ("/bin/bash", "-c")
    return line.replace("%i", "hotel")


def compose_line() -> str:
    """What bash is given by the compose files of an organisation that reads lines, with the paths of the unit."""
    service = compose_service("compose.lines.yaml")
    assert service.keys() == {"entrypoint", "command"}  # the rest is that of the file beside it
    assert service["entrypoint"] == ["/bin/bash", "-c"]
    (line,) = service["command"]
    for folder, name in COMPOSE_KITS.items():
        line = line.replace(f" {folder} ", f" /var/lib/hiddenarm/{name} ")
    return str(line).replace("/exchange/", "/var/lib/hiddenarm/")


COMPOSE_KITS = {"/party": "hotel", "/actor": "actor", "/rewarder": "rewarder"}


def compose_service(name: str) -> dict[str, Any]:
    """The only service of a compose file."""
    (service,) = yaml.safe_load((ROOT / "deploy" / name).read_text())["services"].values()
    found: dict[str, Any] = service
    return found


def unit_arguments() -> list[str]:
    """What the unit of an organisation runs, for the hotel, without lines."""
    program, *arguments = shlex.split(service_of("hiddenarm-organisation@.service")["ExecStart"])
    assert program == "/opt/hiddenarm/bin/hiddenarm"
    return [argument.replace("%i", "hotel") for argument in arguments]


def compose_arguments() -> list[str]:
    """The same of the compose file, with the paths of the unit."""
    service = compose_service("compose.organisation.yaml")
    mounted = {volume.rpartition(":")[2] for volume in service["volumes"]}
    assert mounted == {*COMPOSE_KITS, "/exchange"}
    return [
        f"/var/lib/hiddenarm/{COMPOSE_KITS[argument]}" if argument in COMPOSE_KITS else argument
        for argument in service["command"]
    ]


def web_addresses(section: str) -> dict[str, str]:
    """Where actor and rewarder serve HTTP, as a section of the guide says."""
    part = GUIDE.split(f"\n{section}\n")[1].split("\n#")[0]
    return dict(re.findall(r'^(?:    )?\[(actor|rewarder)\]\n(?:    )?http = "(.*)"$', part, re.MULTILINE))


@pytest.mark.parametrize(
    ("arguments", "section"),
    [(unit_arguments, "## 2. Agree on a federation file"), (compose_arguments, "### Containers")],
)
def test_an_organisation_serves_http_as_the_guide_says(
    tmp_path: Path, arguments: Callable[[], list[str]], section: str
) -> None:
    """With the arguments of the unit and of the compose file, the addresses of the guide, and no standard input."""
    kits, addresses = provision(tmp_path, durable=True), web_addresses(section)
    assert addresses.keys() == {"actor", "rewarder"}
    places: dict[str, dict[str, Any]] = {}
    for role, there in addresses.items():
        here = f"127.0.0.1:{free_ports(1)[0]}" if not there.startswith("unix:") else f"unix:{tmp_path}/{role}.sock"
        assert there in (f"unix:/exchange/{role}.sock", f"127.0.0.1:{there.rpartition(':')[2]}")
        set_in_kit(kits / role, http=here)
        places[role] = {"socket": here[5:]} if here.startswith("unix:") else {"url": f"http://{here}"}
    line = [argument.replace("/var/lib/hiddenarm", str(kits)) for argument in arguments()]
    with Deployment(kits) as deployment:
        deployment.start("dealer", "airline")
        with (tmp_path / "service.log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "hiddenarm", *line], stdin=subprocess.DEVNULL, stderr=log, text=True
            )
        deployment.processes["hotel"] = process
        tokens = {role: kits / role / "http.token" for role in addresses}
        until(process, lambda: all(path.exists() and path.read_text() for path in tokens.values()))
        with (
            hiddenarm.Actor(token_file=tokens["actor"], **places["actor"]) as actor,
            hiddenarm.Rewarder(token_file=tokens["rewarder"], **places["rewarder"]) as rewarder,
        ):
            ranked = insist(process, lambda: actor.rank("user 17", event_id="visit-1"))
            assert insist(process, lambda: rewarder.reward(ranked, 1.0)) == 1
        process.terminate()
        assert process.wait(PATIENCE) == 0, (tmp_path / "service.log").read_text()


def set_in_kit(folder: Path, **fields: Any) -> None:
    path = folder / "kit.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def until(process: subprocess.Popen[str], holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)


def insist(process: subprocess.Popen[str], ask: Callable[[], Any]) -> Any:
    """Ask again until there is an answer."""
    answers: list[Any] = []

    def answered() -> bool:
        with suppress(UnavailableError):
            answers.append(ask())
        return bool(answers)

    until(process, answered)
    return answers[0]


@pytest.mark.parametrize("line", [unit_line, compose_line])
def test_an_organisation_runs_as_one_service(tmp_path: Path, line: Callable[[], str]) -> None:
    """The line of the unit, and of the compose file, with other paths: requests, answers, SIGTERM, and again."""
    kits = provision(tmp_path, durable=True)
    command = line()
    for there, here in (
        ("/opt/hiddenarm/bin/hiddenarm", f"{sys.executable} -m hiddenarm"),
        *((f"/var/lib/hiddenarm/{name}", f"{tmp_path}/{name}") for name in ("requests", "answers")),
        ("/var/lib/hiddenarm/", f"{kits}/"),
    ):
        assert there in command
        command = command.replace(there, here)
    (tmp_path / "requests").write_text('{"request": "visit 1", "key": "user 17"}\n')
    with Deployment(kits) as deployment:
        deployment.start("dealer", "airline")
        answers = [answered_by_service(command, tmp_path, 1) for _ in range(2)]
        assert answers[0] == answers[1]
        identifier = json.loads(answers[0])["id"]
        with (tmp_path / "requests").open("a") as requests:
            requests.write(json.dumps({"id": identifier, "reward": 1}) + "\n")
        assert json.loads(answered_by_service(command, tmp_path, 2).splitlines()[1])["version"] == 1


def answered_by_service(command: str, folder: Path, lines: int) -> str:
    """What a service answers until it has given so many lines; it is then stopped as its manager would."""
    answers = folder / "answers"
    answers.unlink(missing_ok=True)
    with (folder / "service.log").open("a") as log:
        process = subprocess.Popen(["/bin/bash", "-c", command], stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + PATIENCE
        while not answers.exists() or answers.read_text().count("\n") < lines:
            assert time.monotonic() < deadline, (folder / "service.log").read_text()
            assert process.poll() is None, (folder / "service.log").read_text()
            time.sleep(0.1)
        process.terminate()
        assert process.wait(PATIENCE) == 0
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # tail, and in case of failure all
    return answers.read_text()


def test_the_unit_of_an_organisation_looks_at_all_its_kits() -> None:
    text = (ROOT / "deploy" / "hiddenarm-organisation@.service").read_text()
    kits = [f"/var/lib/hiddenarm/{name}" for name in ("%i", "actor", "rewarder")]
    checks = re.findall(r"^ExecStartPre=/opt/hiddenarm/bin/hiddenarm check (\S+) --offline$", text, re.MULTILINE)
    assert checks == kits
    service = service_of("hiddenarm-organisation@.service")
    assert service["StateDirectory"].split() == ["hiddenarm", *(kit.removeprefix("/var/lib/") for kit in kits)]
    assert [argument for argument in unit_arguments() if argument.startswith("/")] == [
        kit.replace("%i", "hotel") for kit in kits
    ]
    lines = service_of("lines.conf")
    assert lines["KillMode"] == "mixed"  # tail goes with the rest
    assert "\nExecStart=\n" in (ROOT / "deploy" / "lines.conf").read_text()  # in place of that of the unit
    verify_unit("hiddenarm-organisation@.service")
    one = service_of("hiddenarm@.service")
    own = {"ExecStart", "ExecStartPre", "StateDirectory"}
    assert {name: service[name] for name in service if name not in own} == {
        name: one[name] for name in one if name not in own
    }


def test_the_compose_file_runs_commands_that_there_are() -> None:
    text = (ROOT / "deploy" / "compose.yaml").read_text()
    lists = [json.loads(found) for found in re.findall(r'(?:command|test): (\[".*"\])', text)]
    serve, health = lists
    commands.commands[serve[0]].make_context(serve[0], [str(ROOT), *serve[2:]])
    commands.commands[health[2]].make_context(health[2], [str(ROOT), *health[4:]])
    assert health[4:] == ["--live"]  # that a peer is away is no reason to restart a container
    image = (ROOT / "deploy" / "Dockerfile").read_text()
    assert json.loads(re.findall(r"^CMD (.*)$", image, re.MULTILINE)[0]) == serve
    assert health[1] == json.loads(re.findall(r"^ENTRYPOINT (.*)$", image, re.MULTILINE)[0])[0]


def test_the_image_has_extras_that_there_are() -> None:
    """Those of the package that a role may need, and none that only research or development has."""
    image = (ROOT / "deploy" / "Dockerfile").read_text()
    (named,) = re.findall(r"pip install --no-cache-dir '/src\[([\w,]+)\]'$", image, re.MULTILINE)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(named.split(",")) == extras.keys() - {"research", "cluster", "docs", "dev"}
    for line in re.findall(r"pip install .*", GUIDE):
        assert set(re.findall(r"\w+", "".join(re.findall(r"\[(.*)\]", line)))) <= extras.keys()
    section = GUIDE.split("## 10. Run as services")[1]
    assert re.findall(r'pip install "\$\(ls dist/hiddenarm-\*\.whl\)\[http\]"', section)


OBJECTS = ("role.yaml", "client.yaml")


@pytest.mark.parametrize("version", ["1.29", "1.34"])
@pytest.mark.parametrize("name", OBJECTS)
def test_the_kubernetes_objects_are_accepted(version: str, name: str) -> None:
    """By the schemas of the API, strictly: a field that there is not is an error."""
    for item in kubernetes_objects(name):
        kubernetes_validate.validate(item, version, strict=True)
    broken = kubernetes_objects(name)[-1]
    broken["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, version, strict=True)


def kubernetes_objects(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / name).read_text()))


def pod(name: str) -> dict[str, Any]:
    found: dict[str, Any] = kubernetes_objects(name)[-1]["spec"]["template"]["spec"]
    return found


@pytest.mark.parametrize("name", OBJECTS)
def test_the_kubernetes_objects_fit_together(name: str) -> None:
    """Names, labels and ports; what a role needs of its service; what the restricted profile of pods asks for."""
    space, account, service, policy, stateful = kubernetes_objects(name)
    assert {item["metadata"]["namespace"] for item in (account, service, policy, stateful)} == {
        space["metadata"]["name"]
    }
    labels = stateful["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == policy["spec"]["podSelector"]["matchLabels"] == labels
    assert (pod(name)["serviceAccountName"], stateful["spec"]["serviceName"]) == (account["metadata"]["name"],) * 2
    (role,) = pod(name)["containers"]
    ports = {port["name"]: port["containerPort"] for port in role["ports"]}
    assert {entry["ports"][0]["port"] for entry in policy["spec"]["ingress"]} == set(ports)
    (reached,) = service["spec"]["ports"]
    assert reached["port"] == ports[reached["targetPort"]]
    # peers come from anywhere, as TLS tells who they are; applications from one namespace; metrics are for one scraper
    assert [bool(entry.get("from")) for entry in policy["spec"]["ingress"]] == [name == "client.yaml", True]
    assert stateful["spec"]["template"]["metadata"]["annotations"]["prometheus.io/port"] == str(ports["monitor"])
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert stateful["spec"]["replicas"] == 1
    assert {probe: role[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")} == {
        "livenessProbe": "/livez",
        "readinessProbe": "/readyz",
    }
    assert pod(name)["securityContext"]["runAsNonRoot"] is True
    user = re.findall(r"--uid (\d+)", (ROOT / "deploy" / "Dockerfile").read_text())
    assert user == [str(pod(name)["securityContext"]["runAsUser"])]
    for container in (*pod(name)["initContainers"], role):
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_an_actor_in_a_pod_serves_https_where_its_service_leads(tmp_path: Path) -> None:
    """With the lines of the guide in the federation file; the name of its service is that in the guide's commands."""
    (lines,) = re.findall(r"^    \[actor\]\n((?:    .*\n)*    http_key = .*\n)", GUIDE, re.MULTILINE)
    entry = "[actor]\n" + textwrap.dedent(lines)
    text = re.sub(r"\[actor\]\nhttp = .*\n", entry, federation_file_text())
    (tmp_path / "federation.toml").write_text(text)
    kit = FederationFile.read(tmp_path / "federation.toml").kit_file(Identity(Role.ACTOR))
    _, _, service, _, _ = kubernetes_objects("client.yaml")
    (role,) = pod("client.yaml")["containers"]
    assert kit.http == f"0.0.0.0:{role['ports'][0]['containerPort']}"
    assert kit.monitor_listen == "0.0.0.0"
    named = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    assert f"https://{named}:{service['spec']['ports'][0]['port']}" in GUIDE
    assert pod("client.yaml")["volumes"][0]["secret"]["secretName"] in GUIDE
    assert f"install -m 600 {kit.http_certificate} {kit.http_key} actor/" in GUIDE


@pytest.mark.parametrize(("name", "member"), [("role.yaml", "hotel"), ("client.yaml", "actor")])
def test_a_pod_makes_its_kit_from_the_secret_and_keeps_its_state(tmp_path: Path, name: str, member: str) -> None:
    """The line of the first container, with other paths, twice: the second time there is state, and a new file."""
    kits = provision(tmp_path, durable=True)
    secret = tmp_path / "secret"
    secret.mkdir(mode=0o755)
    for path in (kits / member).iterdir():
        if path.is_file():
            (secret / path.name).write_bytes(path.read_bytes())
            (secret / path.name).chmod(0o644)  # as secrets are mounted
    bash, option = pod(name)["initContainers"][0]["command"]
    (line,) = pod(name)["initContainers"][0]["args"]
    for there, here in (
        ("/opt/hiddenarm/bin/hiddenarm", f"{sys.executable} -m hiddenarm"),
        ("/var/lib/hiddenarm", f"{tmp_path}/volume"),
        ("/secret/", f"{secret}/"),
    ):
        assert there in line
        line = line.replace(there, here)
    command, kit, *options = pod(name)["containers"][0]["args"]
    assert (command, kit) == ("serve", "/var/lib/hiddenarm/kit")
    commands.commands[command].make_context(command, [str(ROOT), *options])
    for _ in range(2):
        done = subprocess.run([bash, option, line], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stdout + done.stderr
        kept = tmp_path / "volume" / "kit" / "state"
        kept.mkdir(mode=0o700, exist_ok=True)
        (secret / "another").write_text("of the second start")
    assert kept.is_dir()
    assert (tmp_path / "volume" / "kit" / "another").read_text() == "of the second start"


def test_an_image_is_built_of_the_package_alone() -> None:
    """What .dockerignore lets through, by its last line that fits: no kit, no test, no history."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    let_in = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert let_in == {"LICENSE", "README.md", "pyproject.toml", "setup.py", "src"}
    assert all((ROOT / name).exists() for name in let_in)


def test_the_commands_for_user_and_folder_are_those_of_the_units() -> None:
    blocks = [block for language, block in BLOCK.findall(GUIDE) if language == "text"]
    (block,) = [block for block in blocks if "useradd" in block]
    for prompt, command in re.findall(r"^(\w+[#$] )(.*)$", "".join(blocks), re.MULTILINE):
        assert subprocess.run(["bash", "-n", "-c", command]).returncode == 0, prompt + command
    service = service_of("hiddenarm@.service")
    assert re.search(rf"useradd --system .* {service['User']}$", block, re.MULTILINE)
    assert f"/var/lib/{service['StateDirectory'].replace('%i', 'hotel')}" in block
    assert service["ExecStart"].split()[0].removesuffix("/bin/hiddenarm") in block
    for unit in re.findall(r"deploy/(\S+\.(?:service|conf))", "".join(blocks)):
        assert (ROOT / "deploy" / unit).is_file()
