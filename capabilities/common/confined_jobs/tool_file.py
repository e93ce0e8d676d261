"""A Python file that is one tool: its schema, its words, its saved tests. It is parsed, and never run or imported."""

from __future__ import annotations

import ast
from typing import Any

#: Constants of the file that say something of the tool, and the types that they have.
CONSTANTS: dict[str, tuple[type, ...]] = {
    "PARAMETERS": (dict,),
    "HUMAN_FORMAT": (str,),
    "CATEGORY": (str,),
    "EFFECT": (str,),
    "ON_CRASH": (str,),
    "INSTRUCTIONS": (str,),
    "RUNTIME": (str,),
    "TIMEOUT": (int, float),
    "HELPERS": (dict,),
    "TESTS": (list, tuple),
}
SIMPLE = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array", "dict": "object"}


class Broken(Exception):
    """The file is no tool; `line` says where."""

    def __init__(self, message: str, line: int = 1) -> None:
        super().__init__(message)
        self.line = line


def run(text: str) -> dict[str, Any]:
    """Return `description`, `parameters`, and the constants by their names in small letters; or `error` with `line`."""
    try:
        tree = ast.parse(text)
        return _content(tree)
    except SyntaxError as error:
        return {"error": f"This is not valid Python: {error.msg}.", "line": error.lineno or 1}
    except Broken as error:
        return {"error": str(error), "line": error.line}
    except ValueError as error:
        return {"error": f"This is not valid Python: {error}.", "line": 1}


def _content(tree: ast.Module) -> dict[str, Any]:
    functions = {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    function = functions.get("run")
    if function is None:
        raise Broken("The file needs a function named run: def run(...).")
    found = _constants(tree)
    description = ast.get_docstring(tree) or ast.get_docstring(function)
    if not description:
        raise Broken("Say what the tool does in a docstring at the top of the file: the model chooses by it.")
    parameters = found.pop("parameters", None)
    return {"description": description, "parameters": parameters or _schema(function), **found}


def _constants(tree: ast.Module) -> dict[str, Any]:
    """Return the constants that the file sets. A value that is not written out is refused: nothing here is run."""
    found: dict[str, Any] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            targets, value = statement.targets, statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            targets, value = [statement.target], statement.value
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Name) and target.id in CONSTANTS:
                found[target.id.lower()] = _literal(target.id, value)
    return found


def _literal(name: str, node: ast.expr) -> Any:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise Broken(f"{name} must be written out: numbers, texts, lists and dictionaries.", node.lineno) from error
    if not isinstance(value, CONSTANTS[name]) or isinstance(value, bool):
        kinds = " or ".join(each.__name__ for each in CONSTANTS[name])
        raise Broken(f"{name} must be a {kinds}.", node.lineno)
    return value


def _schema(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, Any]:
    """The JSON Schema that the annotations of the arguments say."""
    given = function.args
    if given.vararg or given.kwarg or given.posonlyargs:
        raise Broken("run takes its arguments by name: no *args, **kwargs or /.", function.lineno)
    arguments = [*given.args, *given.kwonlyargs]
    defaults: list[ast.expr | None] = [None] * (len(given.args) - len(given.defaults))
    defaults += [*given.defaults, *given.kw_defaults]
    properties, required = {}, []
    for argument, default in zip(arguments, defaults, strict=True):
        if argument.arg == "context":
            continue
        node = _type(argument)
        if default is None:
            required.append(argument.arg)
        else:
            node |= {"default": _default(argument.arg, default)}
        properties[argument.arg] = node
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _default(name: str, node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError) as error:
        raise Broken(f"The default of {name} must be written out.", node.lineno) from error


def _type(argument: ast.arg) -> dict[str, Any]:
    if argument.annotation is None:
        raise Broken(f"Give {argument.arg} a type, such as {argument.arg}: str, or set PARAMETERS.", argument.lineno)
    return _node(argument.annotation, argument)


def _node(annotation: ast.expr, argument: ast.arg) -> dict[str, Any]:
    if isinstance(annotation, ast.Name) and annotation.id in SIMPLE:
        return {"type": SIMPLE[annotation.id]}
    if isinstance(annotation, ast.Name) and annotation.id == "Any":
        return {}
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        members = [each for each in (annotation.left, annotation.right) if not _is_none(each)]
        if len(members) == 1:
            return {"anyOf": [_node(members[0], argument), {"type": "null"}]}
        return {"anyOf": [_node(each, argument) for each in members]}
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.value, ast.Name):
        return _generic(annotation.value.id, annotation.slice, argument)
    raise Broken(
        f"The type of {argument.arg} cannot be read: use str, int, float, bool, list, dict, or set PARAMETERS.",
        argument.lineno,
    )


def _generic(name: str, inner: ast.expr, argument: ast.arg) -> dict[str, Any]:
    if name == "list":
        return {"type": "array", "items": _node(inner, argument)}
    if name == "dict" and isinstance(inner, ast.Tuple) and len(inner.elts) == 2:
        return {"type": "object", "additionalProperties": _node(inner.elts[1], argument)}
    if name == "Optional":
        return {"anyOf": [_node(inner, argument), {"type": "null"}]}
    if name == "Literal":
        values = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        if all(isinstance(each, ast.Constant) for each in values):
            return {"enum": [each.value for each in values if isinstance(each, ast.Constant)]}
    raise Broken(f"The type of {argument.arg} cannot be read: set PARAMETERS.", argument.lineno)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
