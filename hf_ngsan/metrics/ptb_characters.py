"""The kinds of characters in Penn Treebank tokenization.

`simplify` replaces each character by one that represents its kind, so that the lexical rules can use small character
classes. The kinds are those of Unicode 6.2, on which the tables of Stanford CoreNLP 3.4.1 are based. Later characters,
and all beyond the Basic Multilingual Plane (emoji, rare ideographs), are unknown. The latter count as two characters,
because Java counts UTF-16 code units: `split_pairs` splits them, and `join_pairs` undoes this.
"""

import unicodedata
from collections.abc import Iterator

SMALL_LETTER, CAPITAL_LETTER, MARK, DIGIT, SYMBOL = "\u00df", "\u00c0", "\u0301", "\u0660", "\u00b0"
CIRCLED_CAPITAL, ROMAN_CAPITAL, UNKNOWN = "\u24b6", "\u2160", "\ue000"
WIDE_SPACE, ZERO_WIDTH, DASH, HYPHEN, SEPARATOR = "\u2000", "\u200b", "\u2013", "\u2010", "\u066b"
SUPERSCRIPT, SUBSCRIPT, RAISED_SIGN, FRACTION, CURRENCY = "\u00b2", "\u2082", "\u207a", "\u00bc", "\u00a3"
APOSTROPHE, OPENING_QUOTE, OTHER_QUOTE = "\u2019", "\u2018", "\u201c"

# Kinds that are lists of characters, as ranges of code points in hexadecimal.
LISTED = {
    WIDE_SPACE: "2000-200A 3000",
    ZERO_WIDTH: "0000 200B 200E-200F FEFF",
    DASH: "0096-0097 2013-2015",
    HYPHEN: "058A 2010-2011",
    SEPARATOR: "066B-066C",
    SUPERSCRIPT: "00B2-00B3 00B9 2070 2074-2079",
    SUBSCRIPT: "2080-2089",
    RAISED_SIGN: "207A-207B 208A-208B",
    FRACTION: "00BC-00BE 2153-215E",
    CURRENCY: "0080 00A2-00A5 060B 0E3F 20A0 20A4 20AC FFE0-FFE1 FFE5-FFE6",
    APOSTROPHE: "0092 2019",
    OPENING_QUOTE: "0091 2018 201B",
    OTHER_QUOTE: "0093-0094 00AB 00BB 201A 201C-201F 2039-203A",
    CIRCLED_CAPITAL: "24B6-24CF",
    ROMAN_CAPITAL: "2160-216F",
    # Accents, vowel signs and similar marks that count as parts of words.
    MARK: (
        "02C2-02C5 02D2-02DF 02E5-02EB 02ED 02EF-036F 0375 0378-0379 0384-0385 03F6 0483-0487 055A-055F 0591-05BD "
        "05BF 05C1-05C2 05C4-05C5 05C7 0615-061A 064B-065E 0670 06D6-06E4 06E7-06ED 06FD-06FE 070F 0711 0730-074C "
        "07A6-07B0 07EB-07F3 0900-0903 093C 093E-094E 0951-0955 0962-0963 0981-0983 09BC 09BE-09C4 09C7-09C8 "
        "09CB-09CD 09D7 09E2-09E3 0A01-0A03 0A3C 0A3E-0A4F 0A81-0A83 0ABC 0ABE-0ACF 0B82 0BBE-0BC2 0BC6-0BC8 "
        "0BCA-0BCD 0C01-0C03 0C3E-0C56 0D3E-0D44 0D46-0D48 0E31 0E34-0E3A 0E47-0E4E 0EB1 0EB4-0EBC 0EC8-0ECD"
    ),
    # Cherokee, which had no case then, and two Mongolian letters that are marks today.
    SMALL_LETTER: "13A0-13F4 1885-1886",
    # Letters and digits added after Unicode 6.2.
    UNKNOWN: (
        "037F 0528-052F 0560 0588 05EF 0860-086A 0870-0887 0889-088E 08A1 08AD-08C9 0978 0980 09FC 0AF9 0C34 0C5A 0C5D "
        "0C80 0CDD 0D04 0D54-0D56 0D5F 0DE6-0DEF 0E86 0E89 0E8C 0E8E-0E93 0E98 0EA0 0EA8-0EA9 0EAC 13F5 13F8-13FD "
        "16F1-16F8 170D 171F 1878 191D-191E 19B0-19C0 19C8-19C9 1B4C 1C80-1C8A 1C90-1CBA 1CBD-1CBF 1CF2-1CF3 1CFA 2C2F "
        "2C5F 312E-312F 31BB-31BF 4DB6-4DBF 9FCD-9FFF A698-A69D A78F A794-A79F A7AB-A7DC A7F2-A7F7 A8FD-A8FE A9E0-A9E4 "
        "A9E6-A9FE AA7E-AA7F AB30-AB5A AB5C-AB69 AB70-ABBF"
    ),
}
# Single symbols. Letters and digits in these ranges remain letters and digits.
SYMBOLS = (
    "00A1 00A6-00B8 00BF 00D7 00F7 037E 0387 0589 05BE 05C0 05C3 05C6 05F3-05F4 0600-0603 0606-060A 060C 0614 061B "
    "061E-061F 066A 066D 06D4 0700-070D 07F6-07F8 0964-0965 0E4F 1FBD 2016-2017 2020-2023 2030-2038 203B 203E-2042 "
    "207C-207E 208C-208E 2100-214F 2190-2BFF 3002 3012 30FB FF01-FF0F FF1A-FF20 FF3B-FF40 FF5B-FF65"
)
# Characters with a separate kind: Latin letters whose other case is ASCII, the no-break space, the soft hyphen, the
# next-line control, the ellipsis, the fraction slash and the ideographic comma.
THEMSELVES = "\u017f\u0131\u0130\u212a\u00a0\u00ad\u0085\u2026\u2044\u3001"


def code_points(ranges: str) -> Iterator[int]:
    for item in ranges.split():
        first, _, last = item.partition("-")
        yield from range(int(first, 16), int(last or first, 16) + 1)


class Kinds(dict[int, str]):
    """Maps a code point to the character that represents its kind; entries are computed on first use."""

    def __init__(self) -> None:
        super().__init__((code, chr(code)) for code in range(0x80))
        self.update((code, kind) for kind, ranges in LISTED.items() for code in code_points(ranges))
        self.update((ord(character), character) for character in THEMSELVES)
        self.symbols = frozenset(code_points(SYMBOLS))

    def __missing__(self, code: int) -> str:
        category = unicodedata.category(chr(code))
        other = SYMBOL if code in self.symbols else UNKNOWN
        kinds = {"Lu": CAPITAL_LETTER, "Nd": DIGIT}
        self[code] = kinds.get(category, SMALL_LETTER if category[0] == "L" else other)
        return self[code]


KINDS = Kinds()


def split_pairs(text: str) -> str:
    """Returns the text in UTF-16 code units: each character beyond the Basic Multilingual Plane is two surrogates."""
    if text.isascii() or max(text) <= "\uffff":
        return text
    units = text.encode("utf-16-le", "surrogatepass")
    return "".join(map(chr, memoryview(units).cast("H")))


def join_pairs(text: str) -> str:
    """Undoes `split_pairs`; a lone surrogate becomes the replacement character."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def simplify(text: str) -> str:
    """Returns a text of the same length in which each character is replaced by the one that represents its kind."""
    return text if text.isascii() and "\0" not in text else text.translate(KINDS)
