"""The commands that compute: `tensorhub_contracts.commands` imports their modules by name when they are invoked."""
