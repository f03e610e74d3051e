"""Where results go."""

from __future__ import annotations

from typing import get_args

from headwater.durations import MILLISECOND
from headwater.topology.sections import TEXT_LIMIT, VARIABLE
from headwater.topology.sinks import (
    CURSORS,
    DSN,
    FIELDS,
    HEADER,
    HEADERS_LIMIT,
    NAME,
    OURS,
    PASSWORD,
    RETENTION_LEAST,
    SINKS_LIMIT,
    TIMEOUT_LIMIT,
    URL,
)
from headwater.topology.tree import SinkType
from headwater_operator.crds import cel
from headwater_operator.crds.fields import (
    Rule,
    Schema,
    choice,
    duration,
    hidden,
    listed,
    mapping,
    subdomain,
    text,
    with_rules,
)


def sinks() -> Schema:
    found = listed("Where results go; each gets every result once.", _sink(), SINKS_LIMIT)
    # What is the same folder by way of "." the operator tells apart.
    one, other = "(one.path + '/')", "(other.path + '/')"
    return with_rules(
        found,
        Rule("self.all(one, self.exists_one(other, one == other))", "give each sink once"),
        Rule(
            "self.all(one, !has(one.path) || self.exists_one(other, has(other.path) && "
            f"({one}.startsWith({other}) || {other}.startsWith({one}))))",
            "give each sink a folder of its own, not one within another",
        ),
    )


def _sink() -> Schema:
    authority = "self.find('^https?://[^/?#]*')"
    fields: dict[str, Schema] = {
        "type": choice("What it is.", get_args(SinkType)),
        "path": with_rules(
            text("A folder on the root's volume, such as results.", pattern=r"^[^/\x00][^\x00]*$"),
            Rule("self.split('/').all(part, part != '..')", 'must be without ".."'),
        ),
        "secretRef": subdomain("The Secret that holds the address and the password."),
        "url": with_rules(
            hidden(
                "An address such as https://example.org/results; a password goes into headersEnv.",
                f"^{URL.pattern.replace('?P<port>', '')}$",
                "must be an address such as https://example.org/results, without a user or a password",
            ),
            Rule(
                f"!{authority}.matches(':[0-9]+$') || (int({authority}.find('[0-9]+$')) > 0 && "
                f"int({authority}.find('[0-9]+$')) < 65536)",
                "must have a port from 1 to 65535",
            ),
        ),
        "dsn": with_rules(
            hidden(
                "The address of a database without a password, such as postgresql://mill@db/plant.",
                rf"^({DSN.pattern})[^\x00]*$",
                "must be an address such as postgresql://mill@db/plant or host=db dbname=plant",
            ),
            Rule(
                f"!self.matches({cel.quoted(PASSWORD.pattern)})",
                "holds a password; put the address with the password into a Secret: secretRef",
            ),
        ),
        "dsnEnv": hidden(
            "The environment variable that holds the address of the database.",
            f"^{VARIABLE.pattern}$",
            "must be the name of an environment variable, which holds the address",
        ),
        "table": with_rules(
            text(
                "A table, or a schema, a dot and a table.",
                pattern=rf"^({NAME.pattern}\.)?{NAME.pattern}$",
            ),
            Rule(
                f"self != '{CURSORS}' && !self.endsWith('.{CURSORS}')",
                "give another table: this one holds the cursors",
            ),
        ),
        "headersEnv": _headers(),
        "timeout": duration("How long one attempt may take.", at_least=MILLISECOND, at_most=TIMEOUT_LIMIT),
        "retention": duration(
            "How long a row stays in the table after it was written; without it for ever.",
            at_least=RETENTION_LEAST,
        ),
    }
    rules = [
        Rule(
            f"!has(self.{field}) || " + " || ".join(f"self.type == '{kind}'" for kind in kinds),
            f"a sink of this type has none; drop {field}",
            f".{field}",
        )
        for field in fields
        if (kinds := [kind for kind, known in FIELDS.items() if field in known])
    ]
    rules += [
        Rule(
            f"self.type != '{kind}' || has(self.{field})",
            "is missing",
            f".{field}",
            "FieldValueRequired",
        )
        for kind, known in FIELDS.items()
        for field, is_required in known.items()
        if is_required
    ]
    rules.append(
        Rule(
            "self.type != 'postgres' || has(self.dsn) || has(self.dsnEnv) || has(self.secretRef)",
            "give dsnEnv, dsn or secretRef",
            ".dsnEnv",
            "FieldValueRequired",
        )
    )
    return mapping("One of them.", fields, ("type",), *rules)


def _headers() -> Schema:
    ours = ", ".join(f"'{name}'" for name in sorted(OURS))
    found: Schema = {
        "description": "Headers, and the environment variables that hold them.",
        "type": "object",
        "maxProperties": HEADERS_LIMIT,
        "additionalProperties": {
            "type": "string",
            "minLength": 1,
            "maxLength": TEXT_LIMIT,
        },
    }
    return with_rules(
        found,
        Rule(
            f"self.all(name, name.matches({cel.quoted(f'^{HEADER.pattern}$')}))",
            "must name headers, such as Authorization",
        ),
        Rule(
            f"self.all(name, self[name].matches({cel.quoted(f'^{VARIABLE.pattern}$')}))",
            "must give the names of environment variables, which hold the values",
        ),
        Rule(f"self.all(name, !(name.lowerAscii() in [{ours}]))", "has a header that the sink writes itself"),
        Rule(
            "self.all(name, self.exists_one(other, other.lowerAscii() == name.lowerAscii()))",
            "give each header once",
        ),
    )
