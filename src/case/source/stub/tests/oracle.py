"""Checks emptied functions with the parser of CPython, which knows nothing of ours.

Stdin is a list of [source, stubbed, function, call]. Prints what is wrong with the first one, or nothing.
"""

import ast
import asyncio
import json
import sys

EMPTY = "raise NotImplementedError"


def parsed(source):
    # As bytes, which may begin with a byte order mark.
    return ast.parse(source.encode())


def definitions(node, above=()):
    for child in ast.iter_child_nodes(node):
        inner = above
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            inner = above + (child.name,)
            if not isinstance(child, ast.ClassDef):
                yield ".".join(inner), child
        yield from definitions(child, inner)


class Text:
    """A source as bytes, with CPython's places in it."""

    def __init__(self, source):
        self.bytes = source.encode()
        self.starts = [0]
        at = 0
        while at < len(self.bytes):
            byte = self.bytes[at : at + 1]
            at += 1
            if byte == b"\n" or (byte == b"\r" and self.bytes[at : at + 1] != b"\n"):
                self.starts.append(at)

    def start(self, node):
        line, column = node.lineno, node.col_offset
        for decorator in getattr(node, "decorator_list", []):
            line, column = min((line, column), (decorator.lineno, decorator.col_offset))
        at = self.starts[line - 1] + column
        if getattr(node, "decorator_list", []):
            at = self.bytes.rindex(b"@", 0, at)
        return at

    def end(self, node):
        return self.starts[node.end_lineno - 1] + node.end_col_offset


def expected(source, function):
    """The emptied source, and the place where a body was added, which is compared without it."""
    text, tree = Text(source), parsed(source)
    named = [node for name, node in definitions(tree) if name == function]
    assert named, "CPython finds no such function"
    out, at, is_added = b"", 0, False
    for node in named:
        body = node.body
        if ast.get_docstring(node, clean=False) is not None:
            body = body[1:]
        if not body:
            is_added = True
            continue
        out += text.bytes[at : text.start(body[0])] + EMPTY.encode()
        at = text.end(body[-1])
    return (out + text.bytes[at:]).decode(), is_added


def check(source, stubbed, function, call):
    wanted, is_added = expected(source, function)
    if is_added:
        assert stubbed.count(EMPTY) == source.count(EMPTY) + 1, "one body is added"
        without = "".join(stubbed.replace(EMPTY, "").split()).replace(";", "")
        assert without == "".join(source.split()).replace(";", ""), "more is changed"
    else:
        assert stubbed == wanted, f"CPython wants {wanted!r}"
    before = [ast.get_docstring(node, clean=False) for _, node in definitions(parsed(source))]
    after = [node for _, node in definitions(parsed(stubbed))]
    names = [name for name, _ in definitions(parsed(stubbed))]
    for name, node in zip(names, after):
        if name == function:
            assert ast.get_docstring(node, clean=False) in before, "the docstring is lost"
            assert isinstance(node.body[-1], ast.Raise), "the body is another"
    scope = {"__name__": "stubbed", "asyncio": asyncio}
    exec(compile(stubbed.encode(), "stubbed.py", "exec"), scope)
    try:
        exec(compile(call, "call.py", "exec"), scope)
    except NotImplementedError:
        return
    raise AssertionError("the call raises nothing")


for source, stubbed, function, call in json.load(sys.stdin):
    try:
        check(source, stubbed, function, call)
    except Exception as error:
        print(f"{source!r} became {stubbed!r}: {type(error).__name__}: {error}")
        break
