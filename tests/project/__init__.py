"""A project that uses the package, for the tests: its own tables, and servers that run it."""
