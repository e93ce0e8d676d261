"""Names in any alphabet, in letters that every provider takes: `Größe` is Groesse, `лист` is list. Pure."""

from __future__ import annotations

import unicodedata

#: Letters that a base letter alone would not say.
_WRITTEN = {
    "ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss", "ẞ": "SS", "æ": "ae", "Æ": "AE",
    "œ": "oe", "Œ": "OE", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ð": "d", "Ð": "D", "þ": "th",
    "Þ": "Th", "ı": "i", "ŋ": "ng",
}  # fmt: skip
#: Cyrillic, whose letters are called otherwise than they sound.
_CYRILLIC = {
    "а": "a", "б": "b", "в": "v", "г": "g", "д": "d", "е": "e", "ж": "zh", "з": "z", "и": "i", "й": "y", "к": "k",
    "л": "l", "м": "m", "н": "n", "о": "o", "п": "p", "р": "r", "с": "s", "т": "t", "у": "u", "ф": "f", "х": "kh",
    "ц": "ts", "ч": "ch", "ш": "sh", "щ": "shch", "ъ": "", "ы": "y", "ь": "", "э": "e", "ю": "yu", "я": "ya",
    "ё": "e", "і": "i", "ї": "yi", "є": "ye", "ґ": "g",
}  # fmt: skip


def ascii_name(text: str) -> str:
    """The name in ASCII letters as far as its characters have some: by what they sound like, or by their number."""
    if text.isascii():
        return text
    return "".join(map(_written, unicodedata.normalize("NFC", text)))


def _written(character: str) -> str:
    if character.isascii():
        return character
    if character in _WRITTEN:
        return _WRITTEN[character]
    if (sound := _CYRILLIC.get(character.lower())) is not None:
        return sound.capitalize() if character.isupper() else sound
    plain = "".join(each for each in unicodedata.normalize("NFKD", character) if not unicodedata.combining(each))
    if plain.isascii():
        return plain
    return "".join(_named(each) for each in plain)


def _named(character: str) -> str:
    """A letter by its name, `tsu` of KATAKANA LETTER TU; another sign by its number; nothing for what is neither."""
    if not unicodedata.category(character).startswith(("L", "N")):
        return ""
    name = unicodedata.name(character, "")
    _, found, sound = name.partition(" LETTER ")
    sound = sound.rpartition(" WITH ")[0] or sound
    if found and sound.isascii() and sound.replace(" ", "").isalpha():
        sound = sound.split()[-1].lower()
        return sound.capitalize() if character.isupper() else sound
    if "MARK" in name:
        return ""
    return f"u{ord(character):x}"
