"""Expressions: type rules and closures that evaluate all lanes at once, a file per kind."""
