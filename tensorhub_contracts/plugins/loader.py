"""Loads one plugin by itself: imports it, judges its hooks and calls them. Whatever goes wrong stays with that plugin."""

from __future__ import annotations

import importlib.metadata
import inspect
import sys
from collections.abc import Callable
from typing import Any

import attrs
import pluggy

from tensorhub_contracts.plugins import hookspecs
from tensorhub_contracts.plugins.declaring import DecoderDeclaration, contract_decoders_of
from tensorhub_contracts.plugins.discovery import EntryPointRecord, shadowing
from tensorhub_contracts.plugins.isolation import BrokenError, Outcome, isolated
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


def load_plugin(record: EntryPointRecord) -> Loaded:
    """Import what an entry point names and ask it for its contracts and decoders.

    Never raises for anything that the plugin does; see `isolated`.
    """
    imported = load_entry_point(record, GROUP)
    if imported.fault:
        return Loaded(fault=imported.fault, traceback=imported.traceback)
    file = isolated(lambda: _file_of(record), title=record.title, trusted=record.shipped).value or ""
    asked = isolated(lambda: _ask(imported.value, record), title=record.title, trusted=record.shipped)
    if asked.value is None:
        return Loaded(file=file, fault=asked.fault, traceback=asked.traceback)
    decoders, owned = asked.value
    return Loaded(decoders, owned, file)


def load_entry_point(record: EntryPointRecord, group: str) -> Outcome[Any]:
    """Import what an entry point of a group names, by itself; see `isolated`.

    What we ship is imported from our own files, and not from a package of the same name that comes earlier on the path.
    """
    if record.shipped and (shadow := shadowing(record)):
        return Outcome(fault=shadow)
    entry_point = importlib.metadata.EntryPoint(record.name, record.value, group)
    return isolated(lambda: entry_point.load(), title=record.title, trusted=record.shipped)


def _ask(plugin: Any, record: EntryPointRecord) -> tuple[tuple[RegisteredDecoder, ...], OwnedContracts | None]:
    _judge(plugin, record)
    manager = _manager(plugin, record)
    owned = _owned(manager)
    return _decoders(manager), owned


def _judge(plugin: Any, record: EntryPointRecord) -> None:
    """Refuse what cannot be a plugin before it is registered."""
    if plugin is None or inspect.isclass(plugin) or inspect.isroutine(plugin):
        kind = "None" if plugin is None else "a class" if inspect.isclass(plugin) else "a function"
        raise BrokenError(f"{record.value} is {kind}; a plugin is a module or an object with hooks")
    version = getattr(plugin, "TENSORHUB_PLUGIN_API", None)
    if version != hookspecs.PLUGIN_API or isinstance(version, bool):
        found = "states none" if version is None else f"was written for {version!r}"
        raise BrokenError(f"TENSORHUB_PLUGIN_API: this release has version {hookspecs.PLUGIN_API} of the interface, and the plugin {found}")


def _manager(plugin: Any, record: EntryPointRecord) -> pluggy.PluginManager:
    """Register a plugin in a manager of its own, so that order and names of others change nothing."""
    manager = pluggy.PluginManager("tensorhub")
    manager.add_hookspecs(hookspecs)
    options = {name: getattr(getattr(plugin, name, None), "tensorhub_impl", None) for name in dir(plugin)}
    marked = {name: each.get("specname") or name for name, each in options.items() if each is not None}
    known = [name for name, _ in inspect.getmembers(hookspecs, inspect.isfunction)]
    for name, hook in marked.items():
        if hook not in known:
            raise BrokenError(f"{name} is marked as a hook, and there is no such hook; hooks are {' and '.join(known)}")
    try:
        manager.register(plugin, record.name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        signatures = "; ".join(
            f"{name}{inspect.signature(getattr(plugin, name))} where the hook is {hook}{inspect.signature(getattr(hookspecs, hook))}"
            for name, hook in marked.items()
        )
        raise BrokenError(f"a hook has another signature: {signatures}") from error
    if not manager.get_hookcallers(plugin):
        raise BrokenError(f"{record.value} has no hook; mark {' or '.join(known)} with tensorhub_contracts.hookimpl")
    return manager


def _owned(manager: pluggy.PluginManager) -> OwnedContracts | None:
    for owned in manager.hook.provide_contracts():
        if type(owned) is not OwnedContracts:
            raise BrokenError(f"provide_contracts returned {type(owned).__name__}; return what read_contracts gives")
        return owned
    return None


def _decoders(manager: pluggy.PluginManager) -> tuple[RegisteredDecoder, ...]:
    decoders = []
    for provided in manager.hook.provide_decoders():
        for function in provided:
            declarations = contract_decoders_of(function) if not inspect.isclass(function) else ()
            if not declarations:
                raise BrokenError(f"provide_decoders returned {function!r}, which declares no contract; a wrapper needs functools.wraps")
            decoder = f"{function.__module__}:{function.__qualname__}"
            decoders += [RegisteredDecoder(declaration, decoder, function) for declaration in declarations]
    return tuple(dict.fromkeys(decoders))


def _file_of(record: EntryPointRecord) -> str:
    """Return the file that the plugin was imported from."""
    module = sys.modules.get(record.value.partition(":")[0].strip())
    return str(getattr(module, "__file__", None) or "")
