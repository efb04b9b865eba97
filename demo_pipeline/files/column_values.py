"""Which values a column may have: a choice, a range, a pattern, and in which rows.

Belongs here: domains, their words for people, and the search for a value outside one. A schema
declares a column's domain beside its type; the files do not repeat it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import pyarrow as pa

DOMAIN = b"domain"  # key in the metadata of a column


@dataclass(frozen=True, slots=True)
class Domain:
    """What the values of a column are; of a column of lists, the values in them.

    Attributes:
        values: all that there are; empty: any.
        low, high: the least and the largest number.
        pattern: a regular expression that each text as a whole fits.
        given, when: another column. There is a value exactly in the rows where that one has one of
            `when`, or without `when` any value; an empty list is not a value.
        only: in these rows there may be no value, too.
    """

    values: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    pattern: str = ""
    given: str = ""
    when: tuple[str, ...] = ()
    only: bool = False

    def where(self, column: str, *when: str) -> Self:
        """The same, with a value exactly in the rows that `given` and `when` say."""
        return replace(self, given=column, when=when)

    def only_where(self, column: str, *when: str) -> Self:
        """The same, with a value in no other rows than these."""
        return replace(self, given=column, when=when, only=True)

    def metadata(self) -> dict[str, str]:
        """As a column of a declared schema carries it."""
        return {} if self == ANY else {DOMAIN.decode(): json.dumps(asdict(self))}

    @property
    def words(self) -> str:
        """Its rules, for people."""
        told = [", ".join(self.values), self.pattern and f"fits `{self.pattern}`"]
        if self.low is not None:
            told.append(
                f"≥ {self.low:g}" if self.high is None else f"{self.low:g} to {self.high:g}"
            )
        if self.given:
            rows = f"with {self.given}" + (f" {', '.join(self.when)}" if self.when else "")
            told.append(f"only {rows}" if self.only else rows)
        return "; ".join(filter(None, told))

    def fault(self, column: str, table: pa.Table) -> str:
        """What is wrong with a column, with the number of the first such row; never a value."""
        values = table[column]
        if self.given:
            wrong = self._wrong_presence(values, table[self.given])
            if wrong is not None:
                return f"row {wrong + 1}: {column} has a value in the wrong rows ({self.words})"
        if not (self.values or self.pattern or self.low is not None):
            return ""
        known = values.drop_null()
        plain = known.combine_chunks().flatten() if pa.types.is_list(values.type) else known
        if all(map(self._allows, plain.unique().to_pylist())):
            return ""
        for number, value in enumerate(values.to_pylist(), start=1):
            some = value if isinstance(value, list) else [] if value is None else [value]
            if not all(map(self._allows, some)):
                return f"row {number}: {column} is out of its domain ({self.words})"
        return ""

    def _allows(self, value: Any) -> bool:
        if self.values:
            return value in self.values
        if self.pattern:
            return re.fullmatch(self.pattern, value, re.DOTALL) is not None
        high = float("inf") if self.high is None else self.high
        return self.low is None or (value is not None and self.low <= value <= high)

    def _wrong_presence(self, values: Any, others: Any) -> int | None:
        """The first row that has a value and should not, or the other way round."""
        import pyarrow.compute as pc  # noqa: PLC0415 - only for columns of some rows

        there = values.is_valid()
        if pa.types.is_list(values.type):
            there = pc.greater(pc.list_value_length(values), 0)
        wanted = others.is_valid()
        if self.when:
            wanted = pc.is_in(others, value_set=pa.array(self.when, others.type))
        wrong = pc.and_not(there, wanted) if self.only else pc.xor(there, wanted)
        row = pc.index(wrong, value=True).as_py()
        return None if row < 0 else row


ANY = Domain()
COUNT = Domain(low=0)
TEXT = Domain(pattern=".+")
NO_DOMAINS: Mapping[str, Domain] = {}


def one_of(*values: str) -> Domain:
    """One of these texts."""
    return Domain(tuple(map(str, values)))


def between(low: float, high: float | None = None) -> Domain:
    """A number from `low`, to `high`."""
    return Domain(low=low, high=high)


def fitting(pattern: str) -> Domain:
    """A text that a regular expression describes as a whole."""
    return Domain(pattern=pattern)


def column_domains(schema: pa.Schema) -> Iterator[tuple[str, Domain]]:
    """Yield the columns of a declared schema that have a domain."""
    for column in schema:
        text = (column.metadata or {}).get(DOMAIN)
        if text is not None:
            members = json.loads(text)
            members |= {name: tuple(members[name]) for name in ("values", "when")}
            yield column.name, Domain(**members)


def without_domains(schema: pa.Schema) -> pa.Schema:
    """The schema as files have it."""
    plain = [
        column.with_metadata({k: v for k, v in (column.metadata or {}).items() if k != DOMAIN})
        for column in schema
    ]
    return pa.schema(plain, metadata=schema.metadata)
