"""A renderer of the part of Helm's templates that the chart uses: values, if, range, and a few functions."""

import pathlib
import re

import yaml

TOKEN = re.compile(r'"[^"]*"|[()|]|[^\s()|]+')
TAG = re.compile(r"(\s*)\{\{(-?)\s*(.*?)\s*(-?)\}\}(\s*)", re.S)


def look_up(scope, path):
    """A value by its path; an unknown one is an error, which Helm would pass over."""
    for name in filter(None, path.split(".")):
        scope = scope[name]
    # Helm reads each number of a file of values as a float64.
    return float(scope) if isinstance(scope, int) and not isinstance(scope, bool) else scope


def as_text(value):
    if isinstance(value, float):
        # As Go prints one: 1048576 is 1.048576e+06.
        digits, exponent = f"{value:.15e}".split("e")
        return f"{value:g}" if abs(value) < 1e6 else f"{digits.rstrip('0').rstrip('.')}e{exponent}"
    return {True: "true", False: "false", None: ""}.get(value, str(value)) if isinstance(value, (bool, type(None))) else str(value)


FUNCTIONS = {
    "int64": int,
    "add": lambda *numbers: sum(int(number) for number in numbers),
    "mul": lambda one, other: int(one) * int(other),
    "div": lambda one, other: int(one) // int(other),
    "eq": lambda one, other: one == other,
    "ne": lambda one, other: one != other,
    "not": lambda value: not value,
    "and": lambda *values: values[-1] if all(values) else next(value for value in values if not value),
    "or": lambda *values: next((value for value in values if value), values[-1]),
    "quote": lambda value: '"' + as_text(value).replace("\\", "\\\\").replace('"', '\\"') + '"',
    "toYaml": lambda value: yaml.safe_dump(value, default_flow_style=False).rstrip("\n"),
    "nindent": lambda columns, text: "\n" + "\n".join(" " * int(columns) + line for line in str(text).splitlines()),
}


def evaluate(expression, scope, dot):
    tokens = TOKEN.findall(expression)

    def atom():
        token = tokens.pop(0)
        if token == "(":
            value = pipeline()
            assert tokens.pop(0) == ")"
            return value
        if token.startswith('"'):
            return token[1:-1]
        if token == ".":
            return dot
        if token.startswith("."):
            return look_up(scope, token)
        return FUNCTIONS.get(token) or int(token)

    def call(*last):
        head, arguments = atom(), []
        while tokens and tokens[0] not in ("|", ")"):
            arguments.append(atom())
        arguments += last
        return head(*arguments) if callable(head) else head

    def pipeline():
        value = call()
        while tokens and tokens[0] == "|":
            tokens.pop(0)
            value = call(value)
        return value

    value = pipeline()
    assert not tokens, expression
    return value


def pieces(text):
    """Text and tags in turn; a dash takes the blanks on its side away."""
    found, at = [], 0
    for tag in TAG.finditer(text):
        before, left, inside, right, after = tag.groups()
        found.append(("text", text[at : tag.start()] + ("" if left else before)))
        found.append(("tag", inside))
        at = tag.end() if right else tag.end() - len(after)
    return [*found, ("text", text[at:])]


def render(text, scope):
    parts = pieces(text)

    def block(at, dot, active):
        """The text up to `else` or `end` of this block, and where that stands."""
        out = []
        while at < len(parts):
            kind, content = parts[at]
            word, _, rest = content.partition(" ")
            if kind == "text":
                out.append(content if active else "")
            elif word in ("end", "else"):
                return "".join(out), at
            elif word == "if":
                holds = bool(active and evaluate(rest, scope, dot))
                then, at = block(at + 1, dot, active and holds)
                otherwise = ""
                if parts[at][1] == "else":
                    otherwise, at = block(at + 1, dot, active and not holds)
                out.append(then if holds else otherwise)
            elif word == "range":
                values = evaluate(rest, scope, dot) if active else []
                start = at + 1
                _, at = block(start, None, False)
                out.extend(block(start, value, active)[0] for value in values)
            elif active:
                out.append(as_text(evaluate(content, scope, dot)))
            at += 1
        return "".join(out), at

    return block(0, None, True)[0]


def merged(values, changes):
    both = {**values}
    for name, change in changes.items():
        both[name] = merged(values[name], change) if isinstance(change, dict) and isinstance(values.get(name), dict) else change
    return both


def chart(folder, release, changes):
    """The objects that the chart makes with these changes of its values, by kind."""
    folder = pathlib.Path(folder)
    values = merged(yaml.safe_load((folder / "values.yaml").read_text()), changes)
    objects = {}
    files = {"Get": lambda name: (folder / name).read_text()}
    for template in sorted((folder / "templates").glob("*.yaml")):
        text = render(template.read_text(), {"Values": values, "Release": {"Name": release}, "Files": files})
        for document in yaml.safe_load_all(text):
            if document:
                assert document["kind"] not in objects
                objects[document["kind"]] = document
    return values, objects
