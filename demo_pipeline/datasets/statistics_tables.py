"""Statistics of the datasets: tables, each the result of a SQL query over the views.

Belongs here: the queries, and the check that the datasets agree with each other.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from demo_pipeline.problems import Problem

if TYPE_CHECKING:  # importing it takes 0.1 s and 12 MB, which only queries are worth
    from duckdb import DuckDBPyConnection

Tables = Mapping[str, list[dict[str, Any]]]
STATISTICS_FILE = "statistics.json"


@dataclass(frozen=True, slots=True)
class Query:
    """A table of the statistics: its name, the views that it needs, and its SQL."""

    name: str
    needs: frozenset[str]
    sql: str


def _query(name: str, needs: str, sql: str) -> Query:
    return Query(name, frozenset(needs.split()), sql)


QUERIES = (
    _query(
        "overview",
        "trajectories",
        """SELECT count(*) AS trajectories, count_if(success) AS successful,
                  count_if(complete) AS complete, sum(steps)::BIGINT AS steps,
                  sum(hidden_actions)::BIGINT AS hidden_actions,
                  count(DISTINCT task_id) AS tasks,
                  count(DISTINCT application) AS applications,
                  count(osworld_task_id) AS benchmark,
                  round(sum(completion_time_ms) / 60000, 1) AS minutes
           FROM trajectories""",
    ),
    _query(
        "steps_per_trajectory",
        "trajectories",
        """SELECT difficulty, count(*) AS trajectories, min(steps) AS least,
                  median(steps) AS median, round(avg(steps), 2) AS mean, max(steps) AS most
           FROM trajectories GROUP BY 1
           ORDER BY list_position(['easy', 'medium', 'hard'], difficulty)""",
    ),
    _query(
        "applications",
        "trajectories",
        """SELECT application, count(*) AS trajectories, count_if(success) AS successful,
                  sum(steps)::BIGINT AS steps
           FROM trajectories GROUP BY 1 ORDER BY 2 DESC, 1""",
    ),
    _query(
        "actions",
        "steps",
        """SELECT action_type, count(*) AS steps,
                  round(count(*) / sum(count(*)) OVER (), 4) AS share,
                  round(median(end_ms - press_ms), 1) AS median_ms,
                  count(target_width) AS with_target, count_if(leak) AS leaks
           FROM steps GROUP BY 1 ORDER BY 2 DESC, 1""",
    ),
    _query(
        "hidden_actions",
        "hidden_actions",
        """SELECT reason, count(*) AS actions, count(DISTINCT trajectory_id) AS trajectories
           FROM hidden_actions GROUP BY 1 ORDER BY 2 DESC, 1""",
    ),
    _query(
        "frames",
        "steps",
        """SELECT reason_code, count(*) AS steps, round(median(lead_ms), 1) AS median_lead_ms,
                  count_if(leak) AS leaks, round(avg(leak::INTEGER), 4) AS leak_rate
           FROM steps GROUP BY 1 ORDER BY 2 DESC, 1""",
    ),
    _query(
        "leak_rates",
        "steps",
        """SELECT coalesce(action_type, 'all') AS action_type, count(*) AS pointer_actions,
                  count(*) FILTER (leak) AS leaks,
                  count(*) FILTER (leak AND unavoidable) AS unavoidable_leaks,
                  round(leaks / greatest(pointer_actions, 1), 4) AS leak_rate,
                  round(unavoidable_leaks / greatest(pointer_actions, 1), 4)
                      AS unavoidable_leak_rate
           FROM steps
           WHERE action_type IN ('click', 'double_click', 'right_click', 'drag', 'scroll')
           GROUP BY ROLLUP (action_type) ORDER BY grouping(action_type) DESC, 2 DESC, 1""",
    ),
    _query(
        "trees",
        "steps",
        """SELECT freshness, count(*) AS steps, round(median(tree_age_ms), 1) AS median_age_ms
           FROM steps GROUP BY 1 ORDER BY 2 DESC, 1""",
    ),
    _query(
        "clocks",
        "steps",
        """SELECT clock_method, count(DISTINCT trajectory_id) AS trajectories,
                  round(max(clock_uncertainty_ms), 1) AS worst_uncertainty_ms
           FROM steps GROUP BY 1 ORDER BY 2 DESC, 1""",
    ),
    _query(
        "screens",
        "steps",
        """SELECT platform, round((1920 - 2 * pad_x) / scale)::BIGINT AS width,
                  round((1080 - 2 * pad_y) / scale)::BIGINT AS height,
                  count(DISTINCT trajectory_id) AS trajectories
           FROM steps WHERE scale > 0 GROUP BY ALL ORDER BY 4 DESC, 1, 2, 3""",
    ),
    _query(
        "sft_splits",
        "sft",
        """SELECT split, count(*) AS samples, count(DISTINCT trajectory_id) AS trajectories,
                  count(DISTINCT task_id) AS tasks
           FROM sft GROUP BY 1
           ORDER BY list_position(['train', 'val', 'test', 'held_out'], split)""",
    ),
    _query(
        "messages_splits",
        "messages",
        """SELECT split, count(*) AS records, count(DISTINCT trajectory_id) AS trajectories
           FROM messages GROUP BY 1
           ORDER BY list_position(['train', 'val', 'test', 'held_out'], split)""",
    ),
    _query(
        "exports",
        "exports",
        """SELECT export, status, version, any_value(bytes) AS bytes,
                  count_if(records > 0) AS trajectories, sum(records)::BIGINT AS records
           FROM exports GROUP BY ALL ORDER BY export""",
    ),
)

# (views, message, query that must find no trajectory).
_AGREEMENTS = (
    (
        frozenset({"trajectories", "steps"}),
        "its number of steps differs between trajectories.parquet and steps.parquet",
        """SELECT trajectory_id FROM trajectories
           LEFT JOIN (SELECT trajectory_id, count(*) AS found FROM steps GROUP BY 1)
           USING (trajectory_id) WHERE steps <> coalesce(found, 0) ORDER BY 1""",
    ),
    (
        frozenset({"trajectories", "hidden_actions"}),
        "its hidden actions differ between trajectories.parquet and hidden_actions.parquet",
        """SELECT trajectory_id FROM trajectories
           LEFT JOIN (SELECT trajectory_id, count(*) AS found FROM hidden_actions GROUP BY 1)
           USING (trajectory_id) WHERE hidden_actions <> coalesce(found, 0) ORDER BY 1""",
    ),
    (
        frozenset({"sft", "steps"}),
        "an SFT sample shows a step that is not in steps.parquet",
        """SELECT DISTINCT trajectory_id FROM sft ANTI JOIN steps
           USING (trajectory_id, step_index) ORDER BY 1""",
    ),
    (
        frozenset({"sft", "messages"}),
        "its split differs between sft and messages",
        """SELECT DISTINCT trajectory_id FROM
           (SELECT trajectory_id, split FROM sft) JOIN
           (SELECT trajectory_id, split AS other FROM messages) USING (trajectory_id)
           WHERE split <> other ORDER BY 1""",
    ),
)


def statistics(sql: "DuckDBPyConnection", present: frozenset[str]) -> Tables:
    """Every table whose views exist, by name; a row is an object of plain JSON values."""
    return {query.name: rows(sql, query.sql) for query in QUERIES if query.needs <= present}


def rows(sql: "DuckDBPyConnection", query: str) -> list[dict[str, Any]]:
    """The result of a query, one object per row."""
    result = sql.execute(query)
    names = [column[0] for column in result.description or ()]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def disagreements(sql: "DuckDBPyConnection", present: frozenset[str]) -> list[Problem]:
    """Where the datasets contradict each other, one problem per trajectory."""
    remedy = "build the datasets again, all from the same trajectories"
    return [
        Problem("datasets_differ", STATISTICS_FILE, message, remedy=remedy, demonstration=str(key))
        for views, message, query in _AGREEMENTS
        if views <= present
        for (key,) in sql.execute(query).fetchall()
    ]
