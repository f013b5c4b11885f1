"""The parts of results/schema that follow from the model: `python -m vmtoll.publish.schema` writes them."""

import json
from collections.abc import Mapping

from vmtoll.analysis.schema import FOLDER, MODEL_TABLES, schema
from vmtoll.model.finding import FINDINGS
from vmtoll.model.payload import fields_of


def generated_files() -> dict[str, bytes]:
    """File name → content: the columns of tables whose fields the model describes, those of summaries with the figures
    that they lacked, and what each finding code means, with the fields of its payload.
    """
    names = ("severity", "influence", "meaning", "fault", "injected")
    findings = {
        code.value: {**{name: getattr(kind, name) for name in names}, "payload": fields_of(code)}
        for code, kind in FINDINGS.items()
    }
    tables = {f"{name}.json": _json(schema(name)) for name in (*MODEL_TABLES, "summaries")}
    return {**tables, "findings.json": _json(findings)}


def _json(content: Mapping[str, object]) -> bytes:
    """JSON with a line for each key, and for each entry of a list of objects."""
    lines = [f" {_text(key)}: {_lines(value)}" for key, value in content.items()]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _lines(value: object) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(f"  {_text(entry)}" for entry in value) + "\n ]"
    return _text(value)


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    for name, text in generated_files().items():
        (FOLDER / name).write_bytes(text)
