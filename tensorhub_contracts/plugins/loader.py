"""Loads one plugin by itself: imports it, judges its hooks and calls them. Whatever goes wrong stays with that plugin."""

from __future__ import annotations

import contextlib
import importlib.metadata
import inspect
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import attrs
import pluggy

from tensorhub_contracts.plugins import hookspecs
from tensorhub_contracts.plugins.declaring import DecoderDeclaration, contract_decoders_of
from tensorhub_contracts.plugins.discovery import EntryPointRecord
from tensorhub_contracts.plugins.shipped_only import GROUP
from tensorhub_contracts.registry.plugin_contracts import OwnedContracts


@attrs.frozen
class RegisteredDecoder:
    """One contract that one decoder of a plugin reads. `name` is `module:qualname`."""

    declaration: DecoderDeclaration
    name: str
    function: Callable[..., Any]


@attrs.frozen
class Loaded:
    """What a plugin was found to be: what it provides, or why it is broken, with the traceback if there is one."""

    decoders: tuple[RegisteredDecoder, ...] = ()
    owned: OwnedContracts | None = None
    file: str = ""
    fault: str = ""
    traceback: str = ""


class _Broken(Exception):
    """What a plugin does wrong, in words."""


def load_plugin(record: EntryPointRecord) -> Loaded:
    """Import what an entry point names and ask it for its contracts and decoders.

    Never raises for anything that the plugin does, SystemExit and KeyboardInterrupt included; a Ctrl-C of the user goes
    through. What the plugin, or a process that it starts, prints while it is imported goes to standard error.
    """
    file = ""
    with _interrupts_told_apart() as interrupted:
        try:
            with contextlib.nullcontext() if record.shipped else _output_to_stderr():
                plugin = importlib.metadata.EntryPoint(record.name, record.value, GROUP).load()
                file = _file_of(plugin, record)
                _judge(plugin, record)
                manager = _manager(plugin, record)
                owned = _owned(manager)
                return Loaded(_decoders(manager), owned, file)
        except _Broken as broken:
            return Loaded(file=file, fault=str(broken))
        except BaseException as error:
            if interrupted():
                raise
            lines = "".join(traceback.format_exception(error))
            return Loaded(file=file, fault=_in_a_line(error), traceback=lines)


@contextlib.contextmanager
def _interrupts_told_apart() -> Iterator[Callable[[], bool]]:
    """Give a function that says whether the user pressed Ctrl-C: a plugin may raise KeyboardInterrupt by itself."""
    pressed: list[bool] = []
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        yield lambda: False  # signals are handled in the main thread alone
        return

    def handle(number: int, frame: FrameType | None) -> None:
        pressed.append(True)
        previous(number, frame)

    signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, previous)


@contextlib.contextmanager
def _output_to_stderr() -> Iterator[None]:
    """Send what is printed to standard error: `print`, writes to descriptor 1, and processes that inherit it."""
    try:
        sys.stdout.flush()
        kept = os.dup(1)
        os.dup2(2, 1)
    except (OSError, ValueError, AttributeError):
        kept = -1  # no such descriptors, or no such stream: nothing that could be mixed
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        if kept >= 0:
            os.dup2(kept, 1)
            os.close(kept)


def _judge(plugin: Any, record: EntryPointRecord) -> None:
    """Refuse what cannot be a plugin before it is registered."""
    if plugin is None or inspect.isclass(plugin) or inspect.isroutine(plugin):
        kind = "None" if plugin is None else "a class" if inspect.isclass(plugin) else "a function"
        raise _Broken(f"{record.value} is {kind}; a plugin is a module or an object with hooks")
    version = getattr(plugin, "TENSORHUB_PLUGIN_API", None)
    if version != hookspecs.PLUGIN_API or isinstance(version, bool):
        found = "states none" if version is None else f"was written for {version!r}"
        raise _Broken(f"TENSORHUB_PLUGIN_API: this release has version {hookspecs.PLUGIN_API} of the interface, and the plugin {found}")


def _manager(plugin: Any, record: EntryPointRecord) -> pluggy.PluginManager:
    """Register a plugin in a manager of its own, so that order and names of others change nothing."""
    manager = pluggy.PluginManager("tensorhub")
    manager.add_hookspecs(hookspecs)
    marked = [name for name in dir(plugin) if hasattr(getattr(plugin, name, None), "tensorhub_impl")]
    known = [name for name, _ in inspect.getmembers(hookspecs, inspect.isfunction) if name.startswith("provide_")]
    for name in marked:
        specified = getattr(plugin, name).tensorhub_impl.get("specname") or name
        if specified not in known:
            raise _Broken(f"{name} is marked as a hook, and there is no such hook; hooks are {' and '.join(known)}")
    try:
        manager.register(plugin, record.name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        signatures = "; ".join(
            f"{name}{inspect.signature(getattr(plugin, name))} where the hook is {name}{inspect.signature(getattr(hookspecs, name))}"
            for name in marked
            if name in known
        )
        raise _Broken(f"a hook has another signature: {signatures}") from error
    if not manager.get_hookcallers(plugin):
        raise _Broken(f"{record.value} has no hook; mark {' or '.join(known)} with tensorhub_contracts.hookimpl")
    return manager


def _owned(manager: pluggy.PluginManager) -> OwnedContracts | None:
    for owned in manager.hook.provide_contracts():
        if not isinstance(owned, OwnedContracts):
            raise _Broken(f"provide_contracts returned {type(owned).__name__}; return what read_contracts gives")
        return owned
    return None


def _decoders(manager: pluggy.PluginManager) -> tuple[RegisteredDecoder, ...]:
    decoders = []
    for provided in manager.hook.provide_decoders():
        for function in provided:
            declarations = contract_decoders_of(function) if callable(function) and not inspect.isclass(function) else ()
            if not declarations:
                raise _Broken(f"provide_decoders returned {function!r}, which declares no contract; a wrapper needs functools.wraps")
            decoder = f"{function.__module__}:{function.__qualname__}"
            decoders += [RegisteredDecoder(declaration, decoder, function) for declaration in declarations]
    return tuple(dict.fromkeys(decoders))


def _file_of(plugin: Any, record: EntryPointRecord) -> str:
    """Return the file that the plugin was imported from."""
    module = sys.modules.get(record.value.partition(":")[0].strip())
    return str(getattr(module, "__file__", "") or "")


def _in_a_line(error: BaseException) -> str:
    """Write an error with the place where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f", at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    try:
        text = str(error).strip().replace("\n", "; ")
    except Exception:
        text = "its text cannot be had"  # an exception of the plugin's own may fail at that too
    return f"{type(error).__name__}{': ' + text if text else ''}{where}"
