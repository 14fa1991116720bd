"""The lexical rules of Penn Treebank tokenization, as in the tokenizer of the COCO evaluation.

`scan` goes through a text. At each position, it tries the rules that can start with the character there. The rule with
the longest match wins, including the text that must follow the token; in a tie, the first one in `RULES` wins.
Characters that match no rule are dropped.

The patterns are written for the output of `simplify`, in which one character represents each kind of non-ASCII
characters. `(?i:...)` marks case-insensitive parts; the rest is case-sensitive, as in the original, where "art." before
a number is an abbreviation in any case, but "MTG." is not an abbreviation, unlike "mtg.".
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

from .ptb_characters import join_pairs, simplify

# Contents of character classes.
LETTERS = "A-Za-z\u00df\u00c0\u017f\u0131\u0130\u212a"
CAPITALS = "A-Z\u00c0\u0130\u212a\u24b6\u2160"
DIGITS = "0-9\u0660"
WORD_CHARACTERS = LETTERS + "\u0301\u00ad"
BLANKS = " \\t\u00a0\u2000"
BLANKS_AND_ENDS = BLANKS + "\\n\u0085"
SYMBOLS = "%&+\\\\^|~\u00b0\u24b6\u207a\u00b2\u2044"

# Parts of words.
ACCENTED = "&[aeiouAEIOU](?i:acute|grave|uml);"
WORD_PART = f"(?:[{WORD_CHARACTERS}]|{ACCENTED})"
WORD_OR_DIGIT = f"(?:[{WORD_CHARACTERS}{DIGITS}]|{ACCENTED})"
STEM = f"{WORD_PART}{WORD_OR_DIGIT}*+"
WORD = rf"{STEM}(?:[.!?]{STEM})*+"
ALPHANUMERIC = f"[{LETTERS}{DIGITS}]"
APOSTROPHE = "(?:['\u2019]|(?i:&apos;))"
ANY_APOSTROPHE = "(?:['`\u2019\u2018]|(?i:&apos;))"
ENCLITIC = f"(?:{APOSTROPHE}(?:[msdMSD]|(?i:re|ve|ll)))"
NEGATION = f"(?:(?i:n){ANY_APOSTROPHE}(?i:t))"

# Numbers.
POINT = "[.:,\u00ad\u066b]"
NUMBER = f"[-+]?(?:[{DIGITS}]++(?:{POINT}[{DIGITS}]++)*+|(?:{POINT}[{DIGITS}]++)++)"

# Markup.
NAME = "[A-Za-z][A-Za-z0-9_:.-]*+"
ATTRIBUTE = rf"{NAME}(?:\ *=\ *(?:'[^'\n]*+'|\"[^\"\n]*+\"))?"
TAG = rf"<(?:[!?][A-Za-z-][^>\n]*+|{NAME}(?:\ ++{ATTRIBUTE})*+\ *+/?|/{NAME})\ *+>"

# URLs and e-mail addresses. The class of host names has the range from comma to underscore, which includes digits and
# capitals.
NOT_IN_WEB = ' \\t\\n\\f\\r"<>|()'
NOT_LAST_IN_WEB = NOT_IN_WEB + ".!?,{}-"
WWW_HOST = rf"(?i:www)\.(?:[^{NOT_IN_WEB}.!?,{{}}]++\.)+[A-Za-z]{{2,4}}"
COM_HOST = rf"(?:[^{NOT_IN_WEB}.!?`'{{}},-_$]++\.)+(?i:com|net|org|edu)"
NOT_IN_MAIL = NOT_IN_WEB + "{}\u00a0"

# Abbreviations, by the text that may follow in the same sentence: a word in lower case, anything, a number.
INITIALS = r"(?:(?i:(?:canada|eu|japan|korean|non|sino)-u\.s|u\.s\.-u\.(?:k|s\.s\.r))|[A-Za-z](?:\.[A-Za-z])+)"
BEFORE_LOWER_WORDS = (
    "jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thurs fri "
    "ala ariz calif colo conn ct dak fla ga ind kan kans ky md mich minn mo mont neb nev okla penn tenn va vt wis wisc "
    "wyo assn bancorp bhd bros co corp cos inc intl ltd plc rt sys univ "
    "al bldg blvd ed.d esq est etc ext jr ph.d rd seq sq sr tel"
)
STATES_WITH_CAPITAL = "ark az del ill la mass miss ore pa tex wash"
ANYWHERE_WORDS = (
    "adj adm adv assoc asst atty attys brig capt cmdr col comdr cpl det dr drs ens gen gov govs hon insp lieut lt maj "
    "messrs mlle mme mr mrs ms msgr pfc pres prof profs pvt rep reps rev sen sens sfc sgt spc supt supts "
    "a.k.a alex ave cf cie dept elec ft invt jos mt natl ph st ste treas vs wm"
)
BEFORE_NUMBER_WORDS = "art bldg ca fig figs no nos op pp prop"


def any_case(words: str) -> str:
    return f"(?i:{'|'.join(map(re.escape, words.split()))})"


def with_capital(words: str) -> str:
    return "|".join(f"{word[0].upper()}(?i:{re.escape(word[1:])})" for word in words.split())


BEFORE_LOWER = rf"(?:{any_case(BEFORE_LOWER_WORDS)}|{with_capital(STATES_WITH_CAPITAL)}|(?i:pp?t)[ey](?i:s?))\."
ANYWHERE = rf"(?:{INITIALS}|{any_case(ANYWHERE_WORDS)}|M(?i:iss)|(?i:m)[ft](?i:g)|[A-Za-z])\."
BEFORE_NUMBER = rf"{any_case(BEFORE_NUMBER_WORDS)}\."

# Words that indicate that the previous sentence has ended.
OPENERS = (
    "a about according additionally after an as at but earlier he her here however if in it last many more mr. ms. "
    "now once one other our she since so some such that the their then there these they this we what when while yet you"
)
NEW_SENTENCE = f"[{BLANKS_AND_ENDS}]++(?:{with_capital(OPENERS)}|{TAG})[{BLANKS_AND_ENDS}]"
NEW_SENTENCE_OR_CAPITAL = f"[{BLANKS_AND_ENDS}](?:[{BLANKS_AND_ENDS}{CAPITALS}]|{TAG})"
COMMA = "[,;:\u3001]"

PHONE_END = "[0-9]{3,4}[- \u00a0]?[0-9]{3,5}"
FILE_TYPES = (
    "bat|bmp|c|cgi|class|cpp|dll|docx?|exe|gif|gz|h|html?|jar|java|jpe?g|mov|mp3|pdf|php|pl|png|ppt|ps|py|sql|tar|txt|"
    "wav|x|xml|zip"
)
FILE_TYPE = f"(?i:(?=[{''.join(sorted({name[0] for name in FILE_TYPES.split('|')}))}])(?:{FILE_TYPES}))"
HYPHENATED = rf"[A-Za-z0-9][A-Za-z0-9.,\u00ad]*+(?:-(?:{INITIALS}\.|[A-Za-z0-9\u00ad]+))+"
PARTICLE = f"(?:[dDoOlL]{ANY_APOSTROPHE}{ALPHANUMERIC})?"
COMPOUND = f"{PARTICLE}{ALPHANUMERIC}+(?:[-_\u2010]{PARTICLE}{ALPHANUMERIC}+)*"
SUM_OF_CAPITALS = "[A-Z]+(?:(?:(?i:&amp;)|[+&])[A-Z]+)+"


def always(text: str) -> Callable[[str], str]:
    return lambda token: text


def replacing(replacements: Mapping[str, str]) -> Callable[[str], str]:
    """Returns a function that applies replacements to a token, one after another."""

    def write(token: str) -> str:
        for part, replacement in replacements.items():
            token = token.replace(part, replacement)
        return token

    return write


def without_soft_hyphens(token: str) -> str:
    return token.replace("\u00ad", "") or "-"


def with_plain_ampersand(token: str) -> str:
    return re.sub("(?i:&amp;)", "&", token)


FRACTIONS = {"\u00bc": "1/4", "\u00bd": "1/2", "\u00be": "3/4", "\u2153": "1/3", "\u2154": "2/3"}
CURRENCIES = {"\u00a2": "cents", "\u00a3": "#", "\u0080": "$", "\u00a4": "$", "\u20a0": "$", "\u20ac": "$"}
PARENTHESES = {"(": "-LRB-", ")": "-RRB-"}
BRACKETS = {**PARENTHESES, "[": "-LSB-", "]": "-RSB-", "{": "-LCB-", "}": "-RCB-"}
BLANK = {" ": "\u00a0"}
PLAIN_QUOTES = {"&apos;": "'", "&quot;": '"'}
NAMED_QUOTES = {
    **dict.fromkeys("\u0091\u2018\u201b\u2039", "`"),
    **dict.fromkeys("\u0092\u2019\u203a", "'"),
    **dict.fromkeys("\u0093\u201c\u00ab", "``"),
    **dict.fromkeys("\u0094\u201d\u00bb", "''"),
}
opening_quote = replacing({**PLAIN_QUOTES, "'": "`", '"': "``", **NAMED_QUOTES})
closing_quote = replacing({**PLAIN_QUOTES, '"': "''", **NAMED_QUOTES})


@dataclass(frozen=True)
class Rule:
    """A kind of token."""

    start: str  # possible first characters, as the content of a character class
    token: str  # pattern of the token
    write: Callable[[str], str] | None = str  # converts its text into the output; None writes nothing
    ahead: str = ""  # pattern of the text that must follow
    again: int = 0  # number of characters at its end that are read again after it


ANY = r"\s\S"
WORD_START = WORD_CHARACTERS + "&"
ALPHANUMERIC_START = LETTERS + DIGITS
APOSTROPHE_START = "'\u2019&"

RULES = [
    # Words that are split in two, and words with attached parts.
    Rule("Cc", "(?i:can)", ahead="(?i:not)"),
    Rule("GgWw", "(?i:gon|wan)", ahead="(?i:na)"),
    Rule("Gg", "(?i:got)", ahead="(?i:ta)"),
    Rule("GgLl", "(?i:gim|lem)", ahead="(?i:me)"),
    Rule("'", "(?i:'t)", closing_quote, ahead="(?i:is|was)"),
    Rule("CcFf", r"(?i:c\+\+|[cf]#)"),
    Rule("<", TAG, replacing(BLANK)),
    Rule("&", "(?i:&(?:mdash|md|ndash);)", always("--")),
    Rule("\u2013", "\u2013", always("--")),
    Rule("&", "(?i:&amp;)", always("&")),
    Rule("&", "(?i:&(?:cdq|ht|lr|odq|qc|ql|qr|tl|ur|#[0-9]+);)"),
    Rule(WORD_START, WORD, without_soft_hyphens, ahead=ENCLITIC),
    Rule("A-Za-z\u00ad", "[A-Za-z\u00ad]*[A-MO-Za-mo-z]\u00ad*", without_soft_hyphens, ahead=NEGATION),
    Rule(WORD_START, WORD, without_soft_hyphens),
    Rule(
        LETTERS,
        f"[{LETTERS}]{{2,}}+(?<=[AEIOUYaeiouy]){ANY_APOSTROPHE}[aeiouA-Z][{LETTERS}]*"
        f"|[A-HJ-XZn]{ANY_APOSTROPHE}[{LETTERS}]{{2,}}|[Oo]{ANY_APOSTROPHE}[Oo]|[DJLdjl]{APOSTROPHE}"
        f"|(?i:dunkin|ol|somethin){APOSTROPHE}|(?i:ass't|c'mon|cont'd\\.?|e'er|ev'ry|li'l|nat'l|nor'easter|s'mores)",
    ),
    Rule(APOSTROPHE_START, f"{APOSTROPHE}(?i:cause|em|till?|[2-9]0s|n{APOSTROPHE}?)"),
    Rule("Yy", f"[Yy]{APOSTROPHE}", ahead=f"[{LETTERS}]"),
    # URLs, e-mail addresses and handles.
    Rule("Hh", f"(?i:https?)://[^{NOT_IN_WEB}{{}}]+[^{NOT_LAST_IN_WEB}]"),
    Rule("Ww", f"{WWW_HOST}(?:/[^{NOT_IN_WEB}]+[^{NOT_LAST_IN_WEB}])"),
    Rule("Ww", WWW_HOST),
    Rule(ANY, f"{COM_HOST}(?:/[^{NOT_IN_WEB}]+[^{NOT_LAST_IN_WEB}])"),
    Rule(ANY, COM_HOST),
    Rule(
        "A-Za-z0-9<&",
        f"(?:<|(?i:&lt;))?[A-Za-z0-9][^{NOT_IN_MAIL}]*@(?:[^{NOT_IN_MAIL}.]++\\.)*[^{NOT_IN_MAIL}.]++(?:>|(?i:&gt;))?",
    ),
    Rule("@", "@[A-Za-z_][A-Za-z0-9_]*"),
    Rule("#", f"#{WORD_PART}+"),
    Rule(APOSTROPHE_START, ENCLITIC, closing_quote, ahead="[^A-Za-z]"),
    Rule("Nn", NEGATION, closing_quote),
    # Numbers.
    Rule(DIGITS, f"[{DIGITS}]{{1,2}}[-/][{DIGITS}]{{1,2}}[-/][{DIGITS}]{{2,4}}"),
    Rule(DIGITS + "+.:,\u00ad\u066b-", NUMBER, without_soft_hyphens),
    Rule("\u207a\u00b2\u2082", "\u207a?(?:\u00b2+|\u2082+)"),
    Rule(
        DIGITS, f"(?:[{DIGITS}]{{1,4}}[- \u00a0])?[{DIGITS}]{{1,4}}(?:\\\\?/|\u2044)[{DIGITS}]{{1,4}}", replacing(BLANK)
    ),
    Rule("\u00bc", "\u00bc", replacing(FRACTIONS)),
    Rule(
        "-ACPSacps",
        rf"(?i:-[lr][crs]b-|anti-|c{APOSTROPHE}est|c\.d\.s|cap{APOSTROPHE}n|pro-|s(?:&amp;|&)(?:ls|p-500))",
        with_plain_ampersand,
    ),
    Rule("A-Za-z0-9", r"[A-Za-z0-9]+(?:-[A-Za-z]+){0,2}(?:\\?/[A-Za-z0-9]+(?:-[A-Za-z]+){0,2}){1,2}"),
    Rule("A-Z$#", r"[A-Z]*\$|#"),
    Rule("\u00a3", "\u00a3", replacing(CURRENCIES)),
    # Abbreviations and other tokens that end with a full stop.
    Rule("A-Za-z", rf"{INITIALS}\.", ahead=NEW_SENTENCE, again=1),
    Rule("A-Za-z", "[A-Za-z]", ahead=rf"\.{NEW_SENTENCE}"),
    Rule("CPcp", r"(?i:co|pt[ey])\.", ahead=f"[{BLANKS}](?i:ltd|lim)"),
    Rule("A-Za-z", BEFORE_LOWER, ahead=NEW_SENTENCE_OR_CAPITAL, again=1),
    Rule("A-Za-z", BEFORE_LOWER, ahead="(?s:..)"),
    Rule("A-Za-z", BEFORE_LOWER, again=1),
    Rule("A-Za-z", ANYWHERE),
    Rule("A-Za-z", BEFORE_NUMBER, ahead=f"[{BLANKS_AND_ENDS}]?[{DIGITS}]"),
    Rule("A-Za-z", INITIALS, ahead=f"[{BLANKS_AND_ENDS}]"),
    Rule(
        WORD_START + DIGITS,
        rf"{WORD_OR_DIGIT}++(?:\.{WORD_OR_DIGIT}++)*\.{FILE_TYPE}",
        ahead=f"[{BLANKS_AND_ENDS}.?!,]",
    ),
    Rule(APOSTROPHE_START, f"{APOSTROPHE}[0-9][0-9]", ahead=f"[{BLANKS_AND_ENDS}]"),
    Rule(WORD_START, rf"{WORD}\.", without_soft_hyphens, ahead=COMMA),
    # Emoticons.
    Rule("<>:;=", r"[<>]?[:;=][-o*']?[()DPdpO\\{@|\[\]]", replacing(PARENTHESES), ahead="[^A-Za-z0-9]"),
    Rule(
        "-^x=~<>'(",
        r"[-^x=~<>']_[-^x=~<>']|\([-^x=~<>'][_.]?[-^x=~<>']\)|\([\^x=~<>']-[\^x=~<>'`]\)|[\^x=~<>]\.\[\^[Xx]=[^<\n]*+<>\]",
        replacing(PARENTHESES),
    ),
    Rule("(", rf"\([0-9]{{2,3}}\)[ \u00a0]?{PHONE_END}", replacing({**PARENTHESES, **BLANK})),
    Rule(
        "+0-9",
        rf"(?:\+\+?)?(?:[0-9]{{2,4}}[- \u00a0])?[0-9]{{2,4}}[- \u00a0]{PHONE_END}",
        replacing({**PARENTHESES, **BLANK}),
    ),
    Rule("+0-9", r"(?:(?:\+\+?)?[0-9]{2,4}\.)?[0-9]{2,4}\.[0-9]{3,4}\.[0-9]{3,5}"),
    # Punctuation.
    Rule('"&', '"|(?i:&quot;)', opening_quote, ahead="[A-Za-z0-9$]"),
    Rule('"&', '"|(?i:&quot;)', closing_quote),
    Rule("<&", "<|(?i:&lt;)", always("<")),
    Rule(">&", ">|(?i:&gt;)", always(">")),
    Rule(r"(){}\[\]", r"[(){}\[\]]", replacing(BRACKETS)),
    Rule("-", "-{3,4}(?!-)", always("--")),
    Rule("-", "-+"),
    Rule(".\u0085\u2026", r"\.{3,5}|(?:\.[ \u00a0]){2,4}\.|[\u0085\u2026]", always("...")),
    Rule("@#_", "@+|#+|_+"),
    Rule(r"*\\", r"\*+|(?:\\\*){1,3}"),
    Rule(r",;:\u3001?!.=/", r"[?!]+|[,;:\u3001.=/]"),
    # Compounds.
    Rule("A-Za-z0-9", rf"{HYPHENATED}\.", without_soft_hyphens, ahead=COMMA),
    Rule("A-Za-z0-9", HYPHENATED, without_soft_hyphens),
    Rule(ALPHANUMERIC_START, rf"{COMPOUND}\.", ahead=COMMA),
    Rule(ALPHANUMERIC_START, COMPOUND),
    Rule("A-Z", rf"{SUM_OF_CAPITALS}\.", with_plain_ampersand, ahead=COMMA),
    Rule("A-Z", SUM_OF_CAPITALS, with_plain_ampersand),
    # Quotes and other symbols.
    Rule("'", "'", opening_quote, ahead=r"[A-Za-z][^ \t\n\r\u00a0]"),
    Rule(APOSTROPHE_START, ENCLITIC, closing_quote),
    Rule("'&`\u2018\u2019\u201c", "''|'|(?i:&apos;)|[`\u2018\u2019\u201c]{1,2}", closing_quote),
    Rule("<>", "<<|>>"),
    Rule(BLANKS + "\u200b&", f"[{BLANKS}]+|\u200b|(?i:&nbsp;)", None),
    Rule(SYMBOLS, f"[{SYMBOLS}]"),
]


# Number of characters that a rule reads at first. Without a limit, text such as "<!a<!a<!a" would need quadratic time.
WINDOW = 400


@cache
def rules_starting_with(character: str) -> tuple[tuple[re.Pattern[str], Rule], ...]:
    return tuple(
        (re.compile(f"({rule.token})(?:{rule.ahead})"), rule)
        for rule in RULES
        if re.match(f"[{rule.start}]", character, re.IGNORECASE)
    )


# Shortcuts for most text. A sequence of plain words, with commas after some and an optional full stop at the end of the
# line, is just split, unless it ends with an abbreviation. And letters with quotes, hyphens and the like before a space
# have the same tokens everywhere, so these are cached if they are short.
PLAIN = re.compile(
    rf"(?:[A-Za-z]++[,;]?+(?: ++(?![{BLANKS}])|(?=\n)|\Z))*+"
    r"(?:[A-Za-z]{2,}+\.(?= *+(?:\n|\Z)))?+"
)
SELF_CONTAINED = re.compile(rf"([A-Za-z'\"!?,)-]{{1,40}}+)(?: ++(?![{BLANKS}])|(?=\n))")
ABBREVIATIONS = f"{BEFORE_LOWER_WORDS} {STATES_WITH_CAPITAL} {ANYWHERE_WORDS} {BEFORE_NUMBER_WORDS}"
ABBREVIATIONS += " mfg mtg ppte pptes ppty pptys pte ptes pty ptys"
NOT_LAST = frozenset(f"{word}." for word in ABBREVIATIONS.split())
TWO_WORDS = {words.replace(" ", ""): words for words in ("can not", "gim me", "gon na", "got ta", "lem me", "wan na")}


def scan(text: str, simple: str | None = None, start: int = 0, end: int | None = None) -> list[str]:
    """Returns the tokens of a line of text, in lower case.

    The text is an output of `split_pairs`; `simple` is `simplify(text)`, if already computed. Rules also see the text
    after the line (from `start` to `end`), because abbreviations may depend on it.
    """
    simple = simplify(text) if simple is None else simple
    end = len(text) if end is None else end
    tokens: list[str] = []
    position = start
    while position < end:
        stretch = PLAIN.match(simple, position)[0].lower()  # type: ignore[index]  # it matches an empty stretch too
        if stretch.endswith(".") and (last := stretch[stretch.rfind(" ") + 1 :]) in NOT_LAST:
            stretch = stretch[: -len(last)]
        if stretch:
            words = stretch.replace(",", " ,").replace(";", " ;").replace(".", " .").split()
            if not TWO_WORDS.keys().isdisjoint(words):
                words = " ".join(TWO_WORDS.get(word, word) for word in words).split(" ")
            tokens += words
            position += len(stretch)
        elif chunk := SELF_CONTAINED.match(simple, position):
            tokens += chunk_tokens(chunk[1])
            position = chunk.end()
        else:
            token, position = next_token(text, simple, position)
            if token:
                tokens.append(token)
    return tokens


@lru_cache(maxsize=1 << 16)
def chunk_tokens(chunk: str) -> list[str]:
    text, tokens, position = f"{chunk} ", [], 0
    while position < len(chunk):
        token, position = next_token(text, text, position)
        if token:
            tokens.append(token)
    return tokens


def next_token(text: str, simple: str, position: int) -> tuple[str | None, int]:
    """Returns the token at a position (`None` if there is none) and the position to continue at."""
    match, rule = longest_match(simple, position)
    if match is None or rule is None:
        return None, position + 1
    end = match.end(1)
    token = None if rule.write is None else join_pairs(rule.write(text[position:end])).lower()
    return token, end - rule.again


def longest_match(simple: str, position: int, window: int = WINDOW) -> tuple[re.Match[str] | None, Rule | None]:
    reach, longest, rule = position, None, None
    for pattern, candidate in rules_starting_with(simple[position]):
        match = pattern.match(simple, position, position + window)
        if match and match.end() > reach:
            reach, longest, rule = match.end(), match, candidate
    if reach == position + window and reach < len(simple):
        return longest_match(simple, position, 2 * window)
    return longest, rule
