"""Arrow tables as pandas DataFrames, and what their columns mean.

Belongs here: which pandas types the columns get. The columns are declared by the modules that write
the tables.
"""

from collections.abc import Mapping

import pandas as pd
import pyarrow as pa

from demo_pipeline.actions.action_tables import ACTIONS_SCHEMA
from demo_pipeline.datasets.index import TRAJECTORIES_SCHEMA
from demo_pipeline.evaluation.score_tables import SCORES_SCHEMA
from demo_pipeline.files.parquet import column_descriptions
from demo_pipeline.recording.input_log import EVENTS_SCHEMA
from demo_pipeline.trajectories.provenance import PROVENANCE_SCHEMA

FRAME_SCHEMAS: Mapping[str, pa.Schema] = {
    "trajectories": TRAJECTORIES_SCHEMA,
    "steps": PROVENANCE_SCHEMA,
    "actions": ACTIONS_SCHEMA,
    "events": EVENTS_SCHEMA,
    "scores": SCORES_SCHEMA,
}
# Without these a null would turn whole numbers into fractions, and truth values and texts into
# objects.
_NULLABLE = {
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
    pa.string(): pd.StringDtype(),
}


def data_frame(table: pa.Table) -> pd.DataFrame:
    """A table as a DataFrame whose column types do not depend on the rows.

    Columns that may be null have pandas' nullable types (`Int32`, `Int64`, `boolean`, `string`);
    missing fractions are NaN. Cells with lists are arrays.
    """
    columns = {
        field.name: table[field.name].to_pandas(
            types_mapper=_NULLABLE.get if field.nullable else None
        )
        for field in table.schema
    }
    return pd.DataFrame(columns)


def described_columns(name: str) -> pd.DataFrame:
    """The columns of a table, one per row: column, type, nullable, description with the unit.

    Args:
        name: trajectories, steps, actions, events or scores.

    Raises:
        ValueError: there is no table with this name.
    """
    if name not in FRAME_SCHEMAS:
        raise ValueError(f"no table {name!r}; there are {', '.join(FRAME_SCHEMAS)}")
    schema = FRAME_SCHEMAS[name]
    descriptions = column_descriptions(schema)
    return pd.DataFrame(
        {
            "column": schema.names,
            "type": [str(field.type) for field in schema],
            "nullable": [field.nullable for field in schema],
            "description": [descriptions[field.name] for field in schema],
        }
    )
