"""Conditions on records for `kbatch consume --where`: Python's notation, as an expression of Arrow.

    partition == 3 and offset > 100
    key == 'a' or value.customer.id in (1, 2)
    timestamp >= '2026-11-01' and not value.paid

Names are columns; a dot goes into a typed value. Times without a zone are local. Nothing is called or
evaluated as Python.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kbatch.cli.options import CONDITION_HELP

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: lambda left, right: left == right,
    ast.NotEq: lambda left, right: left != right,
    ast.Lt: lambda left, right: left < right,
    ast.LtE: lambda left, right: left <= right,
    ast.Gt: lambda left, right: left > right,
    ast.GtE: lambda left, right: left >= right,
}


class ConditionError(ValueError):
    """A condition that cannot be read, or does not fit the columns."""


def condition_of(text: str, schema: pa.Schema) -> pc.Expression:
    """Return the expression of a condition.

    Parameters
    ----------
    text : str
    schema : pyarrow.Schema
        The columns that the condition may name.

    Raises
    ------
    ConditionError
        The text is not a condition, or names a column that does not exist.
    """
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ConditionError(f"{text!r} is not a condition: {error.msg}; write {CONDITION_HELP}") from error
    return _Reader(text, schema).expression(tree)


def columns_of(text: str) -> set[str]:
    """Return the columns that a condition names, if it can be read."""
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        return set()
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


class _Reader:
    def __init__(self, text: str, schema: pa.Schema) -> None:
        self._text = text
        self._schema = schema

    def expression(self, node: ast.expr) -> pc.Expression:
        match node:
            case ast.BoolOp(op=op, values=values):
                joined = self.expression(values[0])
                for each in values[1:]:
                    other = self.expression(each)
                    joined = joined & other if isinstance(op, ast.And) else joined | other
                return joined
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return ~self.expression(operand)
            case ast.Compare(left=left, ops=ops, comparators=others):
                return self._comparison(left, ops, others)
            case ast.Name() | ast.Attribute():
                return self._field(node)[0]
        raise self._error(node)

    def _comparison(self, left: ast.expr, ops: list[ast.cmpop], others: list[ast.expr]) -> pc.Expression:
        """Return a chain of comparisons, such as 1 < offset <= 9."""
        whole = None
        for op, right in zip(ops, others, strict=True):
            one = self._single(left, op, right)
            whole = one if whole is None else whole & one
            left = right
        assert whole is not None, "a comparison has an operator"
        return whole

    def _single(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> pc.Expression:
        match op:
            case ast.In() | ast.NotIn():
                field, kind = self._field(left)
                if not isinstance(right, ast.Tuple | ast.List):
                    raise self._error(right)
                found = field.isin(pa.array([self._literal(each, kind) for each in right.elts], kind))
                return found if isinstance(op, ast.In) else ~found
            case ast.Is() | ast.IsNot():
                field, _ = self._field(left)
                if not (isinstance(right, ast.Constant) and right.value is None):
                    raise self._error(right)
                return field.is_null() if isinstance(op, ast.Is) else field.is_valid()
        return _COMPARE[type(op)](*self._operands(left, right))

    def _operands(self, left: ast.expr, right: ast.expr) -> tuple[Any, Any]:
        """Return both sides; a literal gets the type of the column beside it."""
        if isinstance(left, ast.Name | ast.Attribute):
            field, kind = self._field(left)
            if isinstance(right, ast.Name | ast.Attribute):
                return field, self._field(right)[0]
            return field, self._scalar(right, kind)
        field, kind = self._field(right)
        return self._scalar(left, kind), field

    def _scalar(self, node: ast.expr, kind: pa.DataType) -> pc.Expression:
        return pc.scalar(pa.scalar(self._literal(node, kind), kind))

    def _literal(self, node: ast.expr, kind: pa.DataType) -> Any:
        """Return a number or text as a value of type `kind`."""
        try:
            value = ast.literal_eval(node)
            if isinstance(value, str) and (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
                value = value.encode()
            if isinstance(value, str) and pa.types.is_timestamp(kind):
                return datetime.fromisoformat(value).astimezone(UTC if kind.tz else None)
            if isinstance(value, str) and not pa.types.is_string(kind):
                return pa.scalar(value).cast(kind).as_py()
            return pa.scalar(value, kind).as_py()
        except (ValueError, TypeError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ConditionError(
                f"in {self._text!r}, {ast.unparse(node)} is not a valid {kind}, the type of what it is "
                f"compared with"
            ) from error

    def _field(self, node: ast.expr) -> tuple[pc.Expression, pa.DataType]:
        """Return a column, or a field in it, and its type."""
        path: list[str] = []
        name = node
        while isinstance(name, ast.Attribute):
            path.insert(0, name.attr)
            name = name.value
        if not isinstance(name, ast.Name):
            raise self._error(node)
        path.insert(0, name.id)
        return pc.field(*path), self._type_of(path)

    def _type_of(self, path: list[str]) -> pa.DataType:
        fields = {field.name: field.type for field in self._schema}
        for depth, name in enumerate(path):
            if name not in fields:
                where = f" in {'.'.join(path[:depth])}" if depth else ""
                raise ConditionError(
                    f"in {self._text!r}, there is no {name!r}{where}; there are "
                    f"{', '.join(fields) or 'no fields'}"
                )
            kind = fields[name]
            if pa.types.is_dictionary(kind):
                kind = kind.value_type
            is_struct = pa.types.is_struct(kind)
            fields = {field.name: field.type for field in kind} if is_struct else {}
        return kind

    def _error(self, node: ast.AST) -> ConditionError:
        return ConditionError(
            f"{self._text!r} is not a condition: {ast.unparse(node)} cannot be used there; "
            f"write {CONDITION_HELP}"
        )
