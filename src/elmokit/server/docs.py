"""/docs: the routes on one page of our own, made from the OpenAPI document; it loads nothing from anywhere."""

import json
from html import escape
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.responses import HTMLResponse

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #ccc; } summary { cursor: pointer; padding: .3rem 0; }
code, pre { font: 14px/1.45 ui-monospace, monospace; } pre { background: #f4f4f4; padding: .8rem; overflow-x: auto; }
table { border-collapse: collapse; } td, th { padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: top; }
b { display: inline-block; width: 3.5rem; } details { margin-left: .5rem; }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd; } pre { background: #262626; } }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def docs_router(app: FastAPI) -> APIRouter:
    """The page; /openapi.json is FastAPI's own."""
    router = APIRouter()

    @router.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(page(app.openapi()), headers={"content-security-policy": POLICY})

    return router


def page(document: dict[str, Any]) -> str:
    """The OpenAPI document as HTML."""
    groups: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            part = _route(document, path, method, route)
            groups.setdefault((route.get("tags") or ["Other"])[0], []).append(part)
    info = document["info"]
    body = "".join(f"<h2>{escape(tag)}</h2>{''.join(parts)}" for tag, parts in groups.items())
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(info["title"])}</title>'
        f"<style>{STYLE}</style></head><body><h1>{escape(info['title'])} {escape(info['version'])}</h1>"
        f'<p>{escape(info["description"])}</p><p>For programs: <a href="openapi.json">openapi.json</a></p>'
        f"{body}</body></html>"
    )


def _route(document: dict[str, Any], path: str, method: str, route: dict[str, Any]) -> str:
    parts = [f"<p>{escape(route.get('description', ''))}</p>"]
    content = route.get("requestBody", {}).get("content", {}).get("application/json", {})
    for schema in _alternatives(document, content.get("schema", {})):
        parts.append(_fields(document, schema))
        for example in schema.get("examples", []):
            command = f"curl SERVER{path} --json '{json.dumps(example)}'"
            parts.append(f"<pre>{escape(command)}</pre>")
    answers = "".join(
        f"<tr><td>{escape(status)}</td><td>{escape(told.get('description', ''))}</td></tr>"
        for status, told in route.get("responses", {}).items()
    )
    parts.append(f"<table>{answers}</table>")
    head = f"<summary><b>{method.upper()}</b> <code>{escape(path)}</code> {escape(route.get('summary', ''))}</summary>"
    return f"<details>{head}{''.join(parts)}</details>"


def _fields(document: dict[str, Any], schema: dict[str, Any]) -> str:
    rows = []
    for name, field in schema.get("properties", {}).items():
        default = f"default {json.dumps(field['default'])}" if "default" in field else ""
        default = "required" if name in schema.get("required", []) else default
        kind = escape(_kind(document, field))
        rows.append(
            f"<tr><td><code>{escape(name)}</code></td><td>{kind}</td>"
            f"<td>{escape(field.get('description', ''))} <i>{escape(default)}</i></td></tr>"
        )
    return f"<table>{''.join(rows)}</table>"


def _alternatives(document: dict[str, Any], schema: dict[str, Any]) -> list[dict[str, Any]]:
    if "anyOf" in schema:
        return [_resolve(document, part) for part in schema["anyOf"]]
    return [_resolve(document, schema)] if schema else []


def _resolve(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in schema:
        return schema
    found: dict[str, Any] = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found


def _kind(document: dict[str, Any], field: dict[str, Any]) -> str:
    """A type in words."""
    if "anyOf" in field:
        return " or ".join(_kind(document, part) for part in field["anyOf"] if part.get("type") != "null")
    if "enum" in field:
        return " | ".join(map(str, field["enum"]))
    if "$ref" in field:
        return str(_resolve(document, field).get("title", "object"))
    if field.get("type") == "array":
        return f"list of {_kind(document, field.get('items', {}))}"
    return str(field.get("type", "anything"))
