"""What annotations and records need of `typing`, at run time without it: importing it takes 6 ms of a start-up of 35.

Type checkers see the real names. At run time nobody evaluates an annotation (PEP 563), so that the names need not mean
anything, but for Optional, which is made of the real one when somebody does (`records.decode`). NamedTuple is a plain
one: to make a class takes a tenth of the time that typing's takes (0.2 ms each, for some forty records).

For the modules that every run loads; those that are loaded for a rank table or by the library may import typing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take a variable of this name for true

if TYPE_CHECKING:
    from typing import Any, Callable, Final, Literal, NamedTuple, NoReturn, Optional, Union
else:
    from types import MappingProxyType

    class _Unread:
        """Stands for what only a type checker reads."""

        def __class_getitem__(cls, _: object) -> type[_Unread]:
            return cls

    Any = Callable = Final = Literal = NoReturn = Union = _Unread

    class Optional:
        """Stands for typing's, and gives it where it is evaluated."""

        def __class_getitem__(cls, item: object) -> object:
            import typing  # only for who reads annotations

            return typing.Optional[item]

    def _item(index: int) -> property:
        return property(lambda record: record[index])

    class NamedTuple(tuple):
        """A tuple whose items have names, given as annotations of a subclass, and defaults: as typing.NamedTuple."""

        __slots__ = ()
        _fields = ()
        _field_defaults = MappingProxyType({})

        def __init_subclass__(cls) -> None:
            cls._fields = tuple(getattr(cls, "__annotations__", ()))  # 3.9 has none where nothing is annotated
            cls._field_defaults = {name: cls.__dict__[name] for name in cls._fields if name in cls.__dict__}
            for index, name in enumerate(cls._fields):
                setattr(cls, name, _item(index))

        def __new__(cls, *values: object, **named: object) -> NamedTuple:
            """Make one of values by place and by name; the rest are defaults."""
            if named or len(values) != len(cls._fields):
                values = cls._complete(values, named)
            return tuple.__new__(cls, values)

        @classmethod
        def _complete(cls, values: tuple[object, ...], named: dict[str, object]) -> tuple[object, ...]:
            rest = cls._fields[len(values) :]
            given = {**cls._field_defaults, **named}
            if len(values) > len(cls._fields) or not named.keys() <= set(rest) <= given.keys():
                raise TypeError(f"{cls.__name__} takes {', '.join(cls._fields)}; given were {values} and {named}")
            return (*values, *(given[name] for name in rest))

        def __getnewargs__(self) -> tuple[object, ...]:
            """Give what a copy is made of (pickle)."""
            return tuple(self)

        def __repr__(self) -> str:
            values = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self))
            return f"{type(self).__name__}({values})"

        def _replace(self, **named: object) -> NamedTuple:
            values = [named.pop(name, value) for name, value in zip(self._fields, self)]
            return tuple.__new__(type(self), values) if not named else type(self)(*values, **named)

        def _asdict(self) -> dict[str, object]:
            return dict(zip(self._fields, self))


__all__ = ["TYPE_CHECKING", "Any", "Callable", "Final", "Literal", "NamedTuple", "NoReturn", "Optional", "Union"]
