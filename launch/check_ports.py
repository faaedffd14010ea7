"""Before a start: the port is ours to bind, the engine's own ports are others, and no variable breaks them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from advisor.plan_types import Finding
from launch.engine_command import EngineCommand, option_value
from launch.ports import PortState, ask_port, free_port_near

# option, its default where vLLM uses it at all, the option that makes it do so (vLLM 0.32 config/parallel.py)
_OPTION_PORTS = (
    ("--data-parallel-rpc-port", 29550, "--data-parallel-size"),
    ("--master-port", 29501, "--nnodes"),
    ("--grpc-port", None, ""),
)
_VARIABLE_PORTS = ("VLLM_DP_MASTER_PORT", "VLLM_NIXL_SIDE_CHANNEL_PORT", "VLLM_MOONCAKE_BOOTSTRAP_PORT")


def check_ports(
    command: EngineCommand, env: Mapping[str, str], ask: Callable[[str, int], PortState] = ask_port
) -> list[Finding]:
    """Everything that is wrong with the ports of a start. `env` is the engine's."""
    found = _vllm_port(env)
    own = _own_ports(command.argv, env)
    taken: dict[int, str] = {command.port: "--port"}
    for name, port in own:
        if port in taken:
            found.append(_collision(name, taken[port], port))
        else:
            taken[port] = name
    if not 0 < command.port < 65536:
        return [*found, _finding("port-forbidden", f"{command.port} is no port", "choose one from 1024 to 65535")]
    found += _bindable(command.host, command.port, "--port", ask)
    found += [f for name, port in own if name.startswith("--") for f in _bindable("", port, name, ask)]
    return found


def _own_ports(words: Sequence[str], env: Mapping[str, str]) -> list[tuple[str, int]]:
    """(what names it, port) of the ports that this engine uses between its own processes."""
    ports = []
    for option, default, switch in _OPTION_PORTS:
        stated = option_value(words, option)
        used = switch and (option_value(words, switch) or "1") != "1"
        port = int(stated) if stated is not None and stated.isdecimal() else default if used else None
        if port is not None:
            ports.append((option, port))
    names = ("VLLM_PORT", *(name for name in _VARIABLE_PORTS if name in env))
    ports += [(name, int(env[name])) for name in names if env.get(name, "").isdecimal() and env[name] != "0"]
    return ports


def _vllm_port(env: Mapping[str, str]) -> list[Finding]:
    """Kubernetes gives every container the address of a Service named vllm in VLLM_PORT (vllm#18209, vllm#34199)."""
    stated = env.get("VLLM_PORT")
    if stated is None or stated.isdecimal():
        return []
    if "://" in stated:
        return [
            _finding(
                "port-is-uri",
                f"VLLM_PORT is {stated}: Kubernetes sets it for a Service named vllm, and vLLM wants a number",
                "rename the Service, or set enableServiceLinks: false; here: unset VLLM_PORT",
            )
        ]
    return [_finding("port-is-uri", f"VLLM_PORT is {stated!r}, not a number", "unset VLLM_PORT")]


def _bindable(host: str, port: int, name: str, ask: Callable[[str, int], PortState]) -> list[Finding]:
    state, asked = ask(host, port), (host, port, name, ask)
    where = f"port {port}" if name == "--port" else f"port {port} ({name})"
    if state.state == "listening":
        return [_finding("port-in-use", f"{where} is in use by {state.held_by}", f"stop it, or {_another(*asked)}")]
    if state.state == "bound":
        return [
            _finding(
                "port-in-use",
                f"{where} is bound by a program that does not listen yet, such as a server that is still loading",
                f"wait for it, stop it, or {_another(*asked)}",
            )
        ]
    if state.state == "forbidden":
        return [_finding("port-forbidden", f"{where} may not be bound by this user", f"choose a {name} from 1024 on")]
    if state.state == "no_address":
        return [
            _finding(
                "host-not-here", f"{host!r} is no address of this machine", "write 127.0.0.1, 0.0.0.0 or one it has"
            )
        ]
    return []


def _another(host: str, port: int, name: str, ask: Callable[[str, int], PortState]) -> str:
    free = free_port_near(host, port, ask)
    return f"choose another {name}" + (f": {free} is free" if free is not None else "")


def _collision(name: str, other: str, port: int) -> Finding:
    """No error is printed where it happens: clients get answers that are no HTTP (vllm#20119)."""
    return _finding("ports-collide", f"{name} and {other} are both {port}", f"give {name} a port of its own")


def _finding(code: str, message: str, remedy: str) -> Finding:
    return Finding(code=code, severity="error", message=message, remedy=remedy, source="asked of the kernel")
