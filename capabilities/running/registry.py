"""The tools that this service brings along: a typed, documented function becomes a spec.

A category of built-in tools is one module in a package that an app names when it is ready: `registry.discover`.
Knows how a function is described to a model, and nothing of organisations, permissions or rows.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from capabilities.contract.context import ToolContext, ToolError
from capabilities.contract.trust import ALLOW, InUntrusted
from capabilities.contract.wire import TOOL_NAME, canonical_json

#: Rule for a crash between a call's start and its result. `retry`: the tool only reads, or repeating it does no
#: harm. `retry_with_key`: the far side drops a repeat that carries the same key. `never`: the outcome is unknown.
OnCrash = Literal["retry", "retry_with_key", "never"]
#: Things that a call can change: nothing, rows or files of this organisation, or something outside.
Effect = Literal["read", "write", "external"]

ToolFunction = Callable[..., Any]


@dataclass(frozen=True)
class CategorySpec:
    """A category as its module declares it, in a constant named CATEGORY."""

    name: str
    title: str
    description: str
    keywords: tuple[str, ...] = ()
    is_core: bool = False


@dataclass(frozen=True)
class ServiceField:
    """One thing to know of a service. A secret one is write-only; one with a default need not be filled in."""

    name: str
    label: str
    help: str = ""
    default: str = ""
    is_secret: bool = False
    is_required: bool = True
    #: True where it says where, or how safely, secrets are sent: with another value they have to be typed again.
    binds_secrets: bool = True


@dataclass(frozen=True)
class ServiceSpec:
    """Something outside that tools talk to, and that an organisation sets up once: an address, a credential.

    A module declares its own in a constant SERVICES; a tool names the one it needs.
    """

    name: str
    title: str
    description: str
    fields: tuple[ServiceField, ...]
    #: False for what the operator of this installation has not switched on: its tools are listed, and never sent.
    is_available: bool = True
    #: One harmless read call, for its Test button: it returns anything, or raises ToolError.
    test: Callable[[ToolContext], object] | None = field(default=None, compare=False)

    def missing(self, values: Mapping[str, str]) -> list[str]:
        """Labels of the fields that still need a value."""
        wanted = [field for field in self.fields if field.is_required]
        return [field.label for field in wanted if not (values.get(field.name) or field.default)]

    def filled(self, values: Mapping[str, str]) -> dict[str, str]:
        """Every field with its value, or its default."""
        return {field.name: values.get(field.name) or field.default for field in self.fields}

    @property
    def works_unset(self) -> bool:
        """True where the defaults alone are enough."""
        return self.is_available and not self.missing({})


@dataclass(frozen=True)
class BuiltinTool:
    """One built-in tool: what the model reads of it, and the function that runs."""

    name: str
    category: str
    description: str
    parameters: Mapping[str, Any]
    effect: Effect
    on_crash: OnCrash
    timeout: float
    function: ToolFunction
    arguments: type[BaseModel]
    human_format: str
    #: Name of the service that it needs, or empty.
    service: str = ""
    #: Text that the model reads on arguments that do not fit, in place of what is wrong with them.
    complaint: str = ""
    #: True where its result is text that somebody outside the organisation wrote; and the rule for its call where
    #: such text is in the conversation.
    untrusted: bool = False
    in_untrusted: InUntrusted = ALLOW
    #: Values of single arguments with which a call only reads, whatever others do: {"action": ("list",)}.
    reads_with: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def parameters_text(self) -> str:
        """The JSON Schema of the arguments, as canonical text."""
        return canonical_json(self.parameters)

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """Defaults of the arguments that a call may leave out, where they say something."""
        fields = self.arguments.model_fields.items()
        return {name: field.default for name, field in fields if not field.is_required() and field.default}

    def only_reads(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether the tool says of a call with these arguments that it changes nothing."""
        return any(arguments.get(name) in reads for name, reads in self.reads_with.items())

    def call(self, context: ToolContext, arguments: Mapping[str, Any]) -> Any:
        """Run it. Raises ToolError, with a sentence for the model, where the arguments or the world do not allow it."""
        try:
            values = self.arguments.model_validate(dict(arguments))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "arguments"
            raise ToolError(f"{where}: {first['msg']}", nothing_came=True) from error
        return self.function(context, **{name: getattr(values, name) for name in type(values).model_fields})


@dataclass
class Registry:
    """Every built-in category and tool of this process, by name."""

    categories: dict[str, CategorySpec] = field(default_factory=dict)
    tools: dict[str, BuiltinTool] = field(default_factory=dict)
    services: dict[str, ServiceSpec] = field(default_factory=dict)
    #: The app that brings a category or a service, where organisations may be without it, by kind and name.
    apps: dict[tuple[str, str], str] = field(default_factory=dict)

    def discover(self, package: str, app: str = "") -> None:
        """Import each module of the package, and register its category, tools and services. A second time is harmless.
        `app` names an app that organisations may be without.

        Raises ValueError for a category, tool or service that is declared twice, and for a tool whose service no module
        declares.
        """
        for info in pkgutil.iter_modules(importlib.import_module(package).__path__):
            if info.name.startswith("_"):
                continue
            module = importlib.import_module(f"{package}.{info.name}")
            self.add_category(module.CATEGORY)
            services = getattr(module, "SERVICES", ())
            for service in services:
                self.add_service(service)
            if app:
                own = [("category", module.CATEGORY.name), *(("service", each.name) for each in services)]
                self.apps |= dict.fromkeys(own, app)
        for each in self.tools.values():
            if each.service and each.service not in self.services:
                raise ValueError(f"Tool {each.name} needs a service that no module declares: {each.service}.")

    def of(self, app: str) -> Registry:
        """The categories, tools and services that the app brings."""
        return self._part(lambda kind, name: self.apps.get((kind, name)) == app)

    def without(self, app: str) -> Registry:
        """Those that are not the app's."""
        return self._part(lambda kind, name: self.apps.get((kind, name)) != app)

    def _part(self, is_in: Callable[[str, str], bool]) -> Registry:
        categories = {name: each for name, each in self.categories.items() if is_in("category", name)}
        tools = {name: each for name, each in self.tools.items() if each.category in categories}
        services = {name: each for name, each in self.services.items() if is_in("service", name)}
        return Registry(categories, tools, services)

    def add_category(self, spec: CategorySpec) -> None:
        """Add a category. Raises ValueError where another has its name."""
        known = self.categories.setdefault(spec.name, spec)
        if known != spec:
            raise ValueError(f"Category {spec.name} is declared twice.")

    def add_service(self, spec: ServiceSpec) -> None:
        """Add a service. Raises ValueError where another has its name."""
        known = self.services.setdefault(spec.name, spec)
        if known != spec:
            raise ValueError(f"Service {spec.name} is declared twice.")

    def add_tool(self, tool: BuiltinTool) -> None:
        """Add a tool. Raises ValueError where another function has its name."""
        known = self.tools.get(tool.name)
        if known is not None and _qualified_name(known.function) != _qualified_name(tool.function):
            raise ValueError(f"Tool {tool.name} is declared twice.")
        self.tools[tool.name] = tool


def _qualified_name(function: ToolFunction) -> tuple[str, str]:
    """Return where the code of a function is: the same place again, when its module is loaded a second time."""
    return function.__module__, function.__qualname__


registry = Registry()


def tool(
    *,
    category: str,
    effect: Effect,
    human_format: str,
    on_crash: OnCrash | None = None,
    timeout: float = 20.0,
    name: str | None = None,
    service: str = "",
    complaint: str = "",
    untrusted: bool = False,
    in_untrusted: InUntrusted = ALLOW,
    reads_with: Mapping[str, tuple[str, ...]] | None = None,
    into: Registry = registry,
) -> Callable[[ToolFunction], ToolFunction]:
    """Register a function as a built-in tool.

    Its first parameter is the ToolContext; the others, typed for pydantic (`Annotated[str, Field(description=...)]`),
    become the JSON Schema. The docstring is the description that the model reads. `human_format` is the one-line
    display of a call, a format string over the arguments: "Adding task: {title}". `timeout` is in seconds. `on_crash`
    is `retry` for a tool that only reads and `never` otherwise, unless said. `service` names what must be set up before
    it works; its values are in `context.service`. `complaint` is a sentence for arguments that do not fit, where the
    tool has one of its own. `untrusted` and `in_untrusted` are explained in capabilities.contract.trust; with
    `reads_with` a call that only reads is not asked for behind text from outside. Raises ValueError for a name that is
    none, or that another function has; and without a docstring.
    """

    def register(function: ToolFunction) -> ToolFunction:
        tool_name = name or function.__name__
        if not TOOL_NAME.match(tool_name):
            raise ValueError(f"{tool_name!r} is no tool name: 1 to 64 of a-z, A-Z, 0-9, _ and -.")
        arguments = arguments_model(function, tool_name)
        into.add_tool(
            BuiltinTool(
                name=tool_name,
                category=category,
                description=inspect.cleandoc(function.__doc__ or ""),
                parameters=schema_of(arguments),
                effect=effect,
                on_crash=on_crash or ("retry" if effect == "read" else "never"),
                timeout=timeout,
                function=function,
                arguments=arguments,
                human_format=human_format,
                service=service,
                complaint=complaint,
                untrusted=untrusted,
                in_untrusted=in_untrusted,
                reads_with=reads_with or {},
            )
        )
        return function

    return register


def arguments_model(function: ToolFunction, name: str) -> type[BaseModel]:
    """A pydantic model of a tool function's parameters, without the context; unknown arguments are refused. Raises
    ValueError for a function without a docstring."""
    if not function.__doc__:
        raise ValueError(f"Tool {name} has no docstring: it is what the model reads.")
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[parameter.name] = (hints[parameter.name], default)
    return create_model(f"{name}_arguments", __config__=ConfigDict(extra="forbid"), **fields)


def schema_of(arguments: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of the arguments, without the titles that pydantic adds: they cost tokens and say nothing."""
    schema: dict[str, Any] = _without_titles(arguments.model_json_schema())
    schema.setdefault("properties", {})
    return schema


def _without_titles(node: Any) -> Any:
    """Return the schema without the titles that pydantic writes."""
    if isinstance(node, list):
        return [_without_titles(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {key: value for key, value in node.items() if not (key == "title" and isinstance(value, str))}
    values = {key: kept.pop(key) for key in ("default", "const", "enum", "examples") if key in kept}
    if "properties" in node:  # a property may itself be called "title"
        return {
            key: {name: _without_titles(value) for name, value in child.items()}
            if key == "properties"
            else _without_titles(child)
            for key, child in kept.items()
        } | values
    return {key: _without_titles(value) for key, value in kept.items()} | values
