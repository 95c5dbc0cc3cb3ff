"""Changes one place of a module at a time and looks whether a test fails: a change that no test sees is a hole of the tests.

`make mutants MODULES="package/module.py package/folder"`; also `TESTS=` (files or folders), `COUNT=`, `SEED=`, `LIMIT=`
(seconds of tests for each mutant) and `JSON=` (a file). The tree is copied, and only copies are changed.

Which tests execute a line is recorded once for a state of the tree, and kept in `.mutants/`. What a fixture of a module,
a class or the session executes counts for every test in its scope, and what is executed on import for every test that
executes anything of the module. Processes that a test starts are measured as well, as far as they inherit its
environment and end in the ordinary way, also those of a virtual environment that the tests make and install the tree
in. Of one that is killed or forked, and of such an environment that no test process itself has started a program of,
nothing is known. A line that no test is known to execute is reported, and is a hole like any other.

The exit status is 1 if there is a hole that `equivalent.toml` does not list, and 2 if the tool could not do its work.
"""
