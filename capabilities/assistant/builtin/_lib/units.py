"""Units and their factors. Knows what people call them, and no tool."""

from __future__ import annotations

from typing import Final

from capabilities.contract.context import ToolError

#: Dimension, then factor to its base unit, then the names. Names are looked up as written, then in lower case.
UNITS: Final[dict[str, dict[float, str]]] = {
    "length": {
        1e-9: "nm nanometre nanometer",
        1e-6: "µm um micrometre micrometer micron",
        1e-3: "mm millimetre millimeter",
        1e-2: "cm centimetre centimeter",
        1e-1: "dm decimetre decimeter",
        1.0: "m metre meter",
        1e3: "km kilometre kilometer",
        0.0254: "in inch inches",
        0.3048: "ft foot feet",
        0.9144: "yd yard",
        1609.344: "mi mile",
        1852.0: "nmi nautical_mile",
    },
    "mass": {
        1e-6: "mg milligram",
        1e-3: "g gram gramme",
        1.0: "kg kilogram kilo",
        1e3: "t tonne metric_ton",
        0.028349523125: "oz ounce",
        0.45359237: "lb lbs pound",
        6.35029318: "st stone",
        907.18474: "ton short_ton",
        1016.0469088: "long_ton",
    },
    "volume": {
        1e-3: "ml millilitre milliliter cm3 cm³ cc",
        1e-2: "cl centilitre centiliter",
        1e-1: "dl decilitre deciliter",
        1.0: "l litre liter dm3 dm³",
        1e3: "m3 m³ cubic_metre cubic_meter",
        0.00492892159375: "tsp teaspoon",
        0.01478676478125: "tbsp tablespoon",
        0.0295735295625: "floz fl_oz fluid_ounce",
        0.2365882365: "cup",
        0.473176473: "pt pint",
        0.946352946: "qt quart",
        3.785411784: "gal gallon us_gallon",
        4.54609: "imperial_gallon uk_gallon",
        0.56826125: "imperial_pint uk_pint",
        28.316846592: "ft3 ft³ cubic_foot cubic_feet",
    },
    "area": {
        1e-6: "mm2 mm²",
        1e-4: "cm2 cm²",
        1.0: "m2 m² sqm square_metre square_meter",
        1e4: "ha hectare",
        1e6: "km2 km² square_kilometre square_kilometer",
        0.00064516: "in2 in² square_inch square_inches",
        0.09290304: "ft2 ft² sqft square_foot square_feet",
        4046.8564224: "ac acre",
        2589988.110336: "mi2 mi² square_mile",
    },
    "speed": {
        1.0: "m/s mps",
        1 / 3.6: "km/h kmh kph",
        0.44704: "mph mi/h",
        1852 / 3600: "kn kt knot",
        0.3048: "ft/s fps",
    },
    "time": {
        1e-9: "ns nanosecond",
        1e-6: "µs us microsecond",
        1e-3: "ms millisecond",
        1.0: "s sec second",
        60.0: "min minute",
        3600.0: "h hr hour",
        86400.0: "d day",
        604800.0: "wk week",
        31557600.0 / 12: "month",
        31557600.0: "y yr year",
    },
    "data": {
        0.125: "bit",
        125.0: "kbit kilobit",
        125e3: "Mbit megabit",
        125e6: "Gbit gigabit",
        1.0: "B byte",
        1e3: "kB KB kilobyte",
        1e6: "MB megabyte",
        1e9: "GB gigabyte",
        1e12: "TB terabyte",
        1e15: "PB petabyte",
        2.0**10: "KiB kibibyte",
        2.0**20: "MiB mebibyte",
        2.0**30: "GiB gibibyte",
        2.0**40: "TiB tebibyte",
    },
}

#: Degrees, as (factor, offset) to kelvin.
TEMPERATURES: Final[dict[str, tuple[float, float]]] = {
    "celsius c °c": (1.0, 273.15),
    "fahrenheit f °f": (5 / 9, 459.67 * 5 / 9),
    "kelvin k": (1.0, 0.0),
}


def _table() -> dict[str, tuple[str, float, float]]:
    table: dict[str, tuple[str, float, float]] = {}
    for dimension, units in UNITS.items():
        for factor, names in units.items():
            for name in names.split():
                table[name] = (dimension, factor, 0.0)
    for names, (factor, offset) in TEMPERATURES.items():
        for name in names.split():
            table[name] = ("temperature", factor, offset)
    return table


TABLE: Final = _table()
LOWER: Final = {name.lower(): unit for name, unit in TABLE.items()}


def convert(value: float, from_unit: str, to_unit: str) -> float:
    """The value in the other unit. Raises ToolError for an unknown unit, for two of different dimensions, and for a
    temperature below absolute zero."""
    dimension, factor, offset = _unit(from_unit)
    other, to_factor, to_offset = _unit(to_unit)
    if dimension != other:
        raise ToolError(f"{from_unit} is a unit of {dimension} and {to_unit} one of {other}: they do not convert.")
    base = value * factor + offset
    # Rounding may put absolute zero itself a little below.
    if dimension == "temperature" and base < -1e-9:
        lowest = f"{(0 - offset) / factor:.2f}".rstrip("0").rstrip(".")
        raise ToolError(f"There is no temperature below absolute zero, {lowest} {from_unit}.")
    return (value * factor + offset - to_offset) / to_factor


def _unit(name: str) -> tuple[str, float, float]:
    written = "_".join(name.replace("degrees", "").split())
    for spelling in (written, written.lower().removesuffix("."), written.lower().rstrip("s")):
        if unit := TABLE.get(spelling) or LOWER.get(spelling):
            return unit
    raise ToolError(f"There is no unit {name!r} here: write it as km, lb, celsius, l, m2, km/h, min or GiB.")
