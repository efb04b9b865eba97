"""The note in a Parquet schema from which `datasets` knows pictures from other structs.

Belongs here: the types of columns as `datasets` writes them, and the type of an embedded picture.
"""

import json
from typing import Any

import pyarrow as pa

PICTURE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def with_hub_features(schema: pa.Schema) -> pa.Schema:
    """The schema with the note; without it `datasets` shows a picture as a struct of bytes."""
    note = json.dumps({"info": {"features": hub_features(schema)}})
    return schema.with_metadata({"huggingface": note})


def hub_features(schema: pa.Schema) -> dict[str, Any]:
    """Column → its type as `datasets` writes it."""
    return {field.name: _feature(field.type) for field in schema}


def _feature(kind: pa.DataType) -> dict[str, Any]:
    if kind == PICTURE:
        return {"_type": "Image"}
    if pa.types.is_list(kind):
        return {"feature": _feature(kind.value_type), "_type": "List"}
    if pa.types.is_struct(kind):
        return {field.name: _feature(field.type) for field in kind}
    return {"dtype": str(kind), "_type": "Value"}
