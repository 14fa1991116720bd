"""The lexical rules of Penn Treebank tokenization, as the COCO evaluation's tokenizer applies them.

`scan` walks through a text. At each place the rules that can begin with the character there are tried. The rule whose
match reaches furthest wins, with what it looks at ahead of the token counted in; of several that reach equally far, the
first in `RULES` wins. Characters that no rule takes are dropped.

The patterns are written for text that went through `simplify`: one character stands for each kind of characters outside
ASCII. `(?i:...)` marks what matches in either case; the rest is exact, as in the original, where "art." before a number
is an abbreviation in any case and "mtg." is not when it is written "MTG.".
"""

import re
from dataclasses import dataclass
from functools import cache, lru_cache

from .ptb_characters import join_pairs, simplify

# Insides of character classes.
_LETTERS = "A-Za-z\u00df\u00c0\u017f\u0131\u0130\u212a"
_CAPITALS = "A-Z\u00c0\u0130\u212a\u24b6\u2160"
_DIGITS = "0-9\u0660"
_WORD_CHARACTERS = _LETTERS + "\u0301\u00ad"
_BLANKS = " \\t\u00a0\u2000"
_BLANKS_AND_ENDS = _BLANKS + "\\n\u0085"
_SYMBOLS = "%&+\\\\^|~\u00b0\u24b6\u207a\u00b2\u2044"

# Parts of words.
_ACCENTED = "&[aeiouAEIOU](?i:acute|grave|uml);"
_WORD_PART = f"(?:[{_WORD_CHARACTERS}]|{_ACCENTED})"
_WORD_OR_DIGIT = f"(?:[{_WORD_CHARACTERS}{_DIGITS}]|{_ACCENTED})"
_STEM = f"{_WORD_PART}{_WORD_OR_DIGIT}*+"
_WORD = rf"{_STEM}(?:[.!?]{_STEM})*+"
_ALPHANUMERIC = f"[{_LETTERS}{_DIGITS}]"
_APOSTROPHE = "(?:['\u2019]|(?i:&apos;))"
_ANY_APOSTROPHE = "(?:['`\u2019\u2018]|(?i:&apos;))"
_ENCLITIC = f"(?:{_APOSTROPHE}(?:[msdMSD]|(?i:re|ve|ll)))"
_NEGATION = f"(?:(?i:n){_ANY_APOSTROPHE}(?i:t))"

# Numbers.
_POINT = "[.:,\u00ad\u066b]"
_NUMBER = f"[-+]?(?:[{_DIGITS}]++(?:{_POINT}[{_DIGITS}]++)*+|(?:{_POINT}[{_DIGITS}]++)++)"

# Markup.
_NAME = "[A-Za-z][A-Za-z0-9_:.-]*+"
_ATTRIBUTE = rf"{_NAME}(?:\ *=\ *(?:'[^'\n]*+'|\"[^\"\n]*+\"))?"
_TAG = rf"<(?:[!?][A-Za-z-][^>\n]*+|{_NAME}(?:\ ++{_ATTRIBUTE})*+\ *+/?|/{_NAME})\ *+>"

# Addresses. The class of host names holds the range from comma to underscore, digits and capitals with it.
_NOT_IN_WEB = ' \\t\\n\\f\\r"<>|()'
_NOT_LAST_IN_WEB = _NOT_IN_WEB + ".!?,{}-"
_WWW_HOST = rf"(?i:www)\.(?:[^{_NOT_IN_WEB}.!?,{{}}]++\.)+[A-Za-z]{{2,4}}"
_COM_HOST = rf"(?:[^{_NOT_IN_WEB}.!?`'{{}},-_$]++\.)+(?i:com|net|org|edu)"
_NOT_IN_MAIL = _NOT_IN_WEB + "{}\u00a0"

# Abbreviations, by what may follow without a new sentence: a word in lower case, anything, a number.
_INITIALS = r"(?:(?i:(?:canada|eu|japan|korean|non|sino)-u\.s|u\.s\.-u\.(?:k|s\.s\.r))|[A-Za-z](?:\.[A-Za-z])+)"
_BEFORE_LOWER_WORDS = (
    "jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thurs fri "
    "ala ariz calif colo conn ct dak fla ga ind kan kans ky md mich minn mo mont neb nev okla penn tenn va vt wis wisc "
    "wyo assn bancorp bhd bros co corp cos inc intl ltd plc rt sys univ "
    "al bldg blvd ed.d esq est etc ext jr ph.d rd seq sq sr tel"
)
_STATES_WITH_CAPITAL = "ark az del ill la mass miss ore pa tex wash"
_ANYWHERE_WORDS = (
    "adj adm adv assoc asst atty attys brig capt cmdr col comdr cpl det dr drs ens gen gov govs hon insp lieut lt maj "
    "messrs mlle mme mr mrs ms msgr pfc pres prof profs pvt rep reps rev sen sens sfc sgt spc supt supts "
    "a.k.a alex ave cf cie dept elec ft invt jos mt natl ph st ste treas vs wm"
)
_BEFORE_NUMBER_WORDS = "art bldg ca fig figs no nos op pp prop"


def _any_case(words):
    return f"(?i:{'|'.join(map(re.escape, words.split()))})"


def _with_capital(words):
    return "|".join(f"{word[0].upper()}(?i:{re.escape(word[1:])})" for word in words.split())


_BEFORE_LOWER = rf"(?:{_any_case(_BEFORE_LOWER_WORDS)}|{_with_capital(_STATES_WITH_CAPITAL)}|(?i:pp?t)[ey](?i:s?))\."
_ANYWHERE = rf"(?:{_INITIALS}|{_any_case(_ANYWHERE_WORDS)}|M(?i:iss)|(?i:m)[ft](?i:g)|[A-Za-z])\."
_BEFORE_NUMBER = rf"{_any_case(_BEFORE_NUMBER_WORDS)}\."

# What shows that a sentence has ended before.
_OPENERS = (
    "a about according additionally after an as at but earlier he her here however if in it last many more mr. ms. "
    "now once one other our she since so some such that the their then there these they this we what when while yet you"
)
_NEW_SENTENCE = f"[{_BLANKS_AND_ENDS}]++(?:{_with_capital(_OPENERS)}|{_TAG})[{_BLANKS_AND_ENDS}]"
_NEW_SENTENCE_OR_CAPITAL = f"[{_BLANKS_AND_ENDS}](?:[{_BLANKS_AND_ENDS}{_CAPITALS}]|{_TAG})"
_COMMA = "[,;:\u3001]"

_PHONE_END = "[0-9]{3,4}[- \u00a0]?[0-9]{3,5}"
_FILE_TYPES = (
    "bat|bmp|c|cgi|class|cpp|dll|docx?|exe|gif|gz|h|html?|jar|java|jpe?g|mov|mp3|pdf|php|pl|png|ppt|ps|py|sql|tar|txt|"
    "wav|x|xml|zip"
)
_HYPHENATED = rf"[A-Za-z0-9][A-Za-z0-9.,\u00ad]*(?:-(?:{_INITIALS}\.|[A-Za-z0-9\u00ad]+))+"
_PARTICLE = f"(?:[dDoOlL]{_ANY_APOSTROPHE}{_ALPHANUMERIC})?"
_COMPOUND = f"{_PARTICLE}{_ALPHANUMERIC}+(?:[-_\u2010]{_PARTICLE}{_ALPHANUMERIC}+)*"
_SUM_OF_CAPITALS = "[A-Z]+(?:(?:(?i:&amp;)|[+&])[A-Z]+)+"


def _unchanged(token):
    return token


def _always(text):
    return lambda token: text


def _replacing(replacements):
    return lambda token: replacements.get(token, token)


def _without_soft_hyphens(token):
    return token.replace("\u00ad", "") or "-"


def _with_plain_ampersand(token):
    return re.sub("(?i:&amp;)", "&", token)


def _with_fixed_blanks(token):
    return token.replace(" ", "\u00a0")


def _with_named_parentheses(token):
    return token.replace("(", "-LRB-").replace(")", "-RRB-")


def _phone_number(token):
    return _with_named_parentheses(_with_fixed_blanks(token))


def _dashes(token):
    return "--" if 3 <= len(token) <= 4 else token


_QUOTES = {
    "\u0091\u2018\u201b\u2039": "`",
    "\u0092\u2019\u203a": "'",
    "\u0093\u201c\u00ab": "``",
    "\u0094\u201d\u00bb": "''",
}
_NAMED_QUOTES = str.maketrans({quote: name for quotes, name in _QUOTES.items() for quote in quotes})


def _opening_quote(token):
    return _plain_quotes(token).replace("'", "`").replace('"', "``").translate(_NAMED_QUOTES)


def _closing_quote(token):
    return _plain_quotes(token).replace('"', "''").translate(_NAMED_QUOTES)


def _plain_quotes(token):
    return token.replace("&apos;", "'").replace("&quot;", '"')


_FRACTIONS = {"\u00bc": "1/4", "\u00bd": "1/2", "\u00be": "3/4", "\u2153": "1/3", "\u2154": "2/3"}
_CURRENCIES = {"\u00a2": "cents", "\u00a3": "#", "\u0080": "$", "\u00a4": "$", "\u20a0": "$", "\u20ac": "$"}
_BRACKETS = {"(": "-LRB-", ")": "-RRB-", "[": "-LSB-", "]": "-RSB-", "{": "-LCB-", "}": "-RCB-"}


@dataclass(frozen=True)
class Rule:
    """A kind of token.

    Attributes:
        start: the characters a token can begin with, as the inside of a character class.
        token: the pattern of the token.
        write: what is written for the text of the token; `None` writes nothing.
        ahead: what must follow the token.
        again: so many characters at the end of the token are read once more after it.
    """

    start: str
    token: str
    write: object = _unchanged
    ahead: str = ""
    again: int = 0


_ANY = r"\s\S"
_WORD_START = _WORD_CHARACTERS + "&"
_ALPHANUMERIC_START = _LETTERS + _DIGITS
_APOSTROPHE_START = "'\u2019&"

RULES = [
    # Words that are two, and words with what is attached to them.
    Rule("Cc", "(?i:can)", ahead="(?i:not)"),
    Rule("GgWw", "(?i:gon|wan)", ahead="(?i:na)"),
    Rule("Gg", "(?i:got)", ahead="(?i:ta)"),
    Rule("GgLl", "(?i:gim|lem)", ahead="(?i:me)"),
    Rule("'", "(?i:'t)", _closing_quote, ahead="(?i:is|was)"),
    Rule("CcFf", r"(?i:c\+\+|[cf]#)"),
    Rule("<", _TAG, _with_fixed_blanks),
    Rule("&", "(?i:&(?:mdash|md|ndash);)", _always("--")),
    Rule("\u2013", "\u2013", _always("--")),
    Rule("&", "(?i:&amp;)", _always("&")),
    Rule("&", "(?i:&(?:cdq|ht|lr|odq|qc|ql|qr|tl|ur|#[0-9]+);)"),
    Rule(_WORD_START, _WORD, _without_soft_hyphens, ahead=_ENCLITIC),
    Rule("A-Za-z\u00ad", "[A-Za-z\u00ad]*[A-MO-Za-mo-z]\u00ad*", _without_soft_hyphens, ahead=_NEGATION),
    Rule(_WORD_START, _WORD, _without_soft_hyphens),
    Rule(
        _LETTERS,
        f"[{_LETTERS}]{{2,}}+(?<=[AEIOUYaeiouy]){_ANY_APOSTROPHE}[aeiouA-Z][{_LETTERS}]*"
        f"|[A-HJ-XZn]{_ANY_APOSTROPHE}[{_LETTERS}]{{2,}}|[Oo]{_ANY_APOSTROPHE}[Oo]|[DJLdjl]{_APOSTROPHE}"
        f"|(?i:dunkin|ol|somethin){_APOSTROPHE}|(?i:ass't|c'mon|cont'd\\.?|e'er|ev'ry|li'l|nat'l|nor'easter|s'mores)",
    ),
    Rule(_APOSTROPHE_START, f"{_APOSTROPHE}(?i:cause|em|till?|[2-9]0s|n{_APOSTROPHE}?)"),
    Rule("Yy", f"[Yy]{_APOSTROPHE}", ahead=f"[{_LETTERS}]"),
    # Addresses.
    Rule("Hh", f"(?i:https?)://[^{_NOT_IN_WEB}{{}}]+[^{_NOT_LAST_IN_WEB}]"),
    Rule("Ww", f"{_WWW_HOST}(?:/[^{_NOT_IN_WEB}]+[^{_NOT_LAST_IN_WEB}])"),
    Rule("Ww", _WWW_HOST),
    Rule(_ANY, f"{_COM_HOST}(?:/[^{_NOT_IN_WEB}]+[^{_NOT_LAST_IN_WEB}])"),
    Rule(_ANY, _COM_HOST),
    Rule(
        "A-Za-z0-9<&",
        f"(?:<|(?i:&lt;))?[A-Za-z0-9][^{_NOT_IN_MAIL}]*@(?:[^{_NOT_IN_MAIL}.]++\\.)*[^{_NOT_IN_MAIL}.]++(?:>|(?i:&gt;))?",
    ),
    Rule("@", "@[A-Za-z_][A-Za-z0-9_]*"),
    Rule("#", f"#{_WORD_PART}+"),
    Rule(_APOSTROPHE_START, _ENCLITIC, _closing_quote, ahead="[^A-Za-z]"),
    Rule("Nn", _NEGATION, _closing_quote),
    # Numbers.
    Rule(_DIGITS, f"[{_DIGITS}]{{1,2}}[-/][{_DIGITS}]{{1,2}}[-/][{_DIGITS}]{{2,4}}"),
    Rule(_DIGITS + "+.:,\u00ad\u066b-", _NUMBER, _without_soft_hyphens),
    Rule("\u207a\u00b2\u2082", "\u207a?(?:\u00b2+|\u2082+)"),
    Rule(
        _DIGITS,
        f"(?:[{_DIGITS}]{{1,4}}[- \u00a0])?[{_DIGITS}]{{1,4}}(?:\\\\?/|\u2044)[{_DIGITS}]{{1,4}}",
        _with_fixed_blanks,
    ),
    Rule("\u00bc", "\u00bc", _replacing(_FRACTIONS)),
    Rule(
        "-ACPSacps",
        rf"(?i:-[lr][crs]b-|anti-|c{_APOSTROPHE}est|c\.d\.s|cap{_APOSTROPHE}n|pro-|s(?:&amp;|&)(?:ls|p-500))",
        _with_plain_ampersand,
    ),
    Rule("A-Za-z0-9", r"[A-Za-z0-9]+(?:-[A-Za-z]+){0,2}(?:\\?/[A-Za-z0-9]+(?:-[A-Za-z]+){0,2}){1,2}"),
    Rule("A-Z$#", r"[A-Z]*\$|#"),
    Rule("\u00a3", "\u00a3", _replacing(_CURRENCIES)),
    # Abbreviations and what ends with a full stop.
    Rule("A-Za-z", rf"{_INITIALS}\.", ahead=_NEW_SENTENCE, again=1),
    Rule("A-Za-z", "[A-Za-z]", ahead=rf"\.{_NEW_SENTENCE}"),
    Rule("CPcp", r"(?i:co|pt[ey])\.", ahead=f"[{_BLANKS}](?i:ltd|lim)"),
    Rule("A-Za-z", _BEFORE_LOWER, ahead=_NEW_SENTENCE_OR_CAPITAL, again=1),
    Rule("A-Za-z", _BEFORE_LOWER, ahead="(?s:..)"),
    Rule("A-Za-z", _BEFORE_LOWER, again=1),
    Rule("A-Za-z", _ANYWHERE),
    Rule("A-Za-z", _BEFORE_NUMBER, ahead=f"[{_BLANKS_AND_ENDS}]?[{_DIGITS}]"),
    Rule("A-Za-z", _INITIALS, ahead=f"[{_BLANKS_AND_ENDS}]"),
    Rule(
        _WORD_START + _DIGITS,
        rf"{_WORD_OR_DIGIT}++(?:\.{_WORD_OR_DIGIT}++)*\.(?i:{_FILE_TYPES})",
        ahead=f"[{_BLANKS_AND_ENDS}.?!,]",
    ),
    Rule(_APOSTROPHE_START, f"{_APOSTROPHE}[0-9][0-9]", ahead=f"[{_BLANKS_AND_ENDS}]"),
    Rule(_WORD_START, rf"{_WORD}\.", _without_soft_hyphens, ahead=_COMMA),
    # Faces.
    Rule("<>:;=", r"[<>]?[:;=][-o*']?[()DPdpO\\{@|\[\]]", _with_named_parentheses, ahead="[^A-Za-z0-9]"),
    Rule(
        "-^x=~<>'(",
        r"[-^x=~<>']_[-^x=~<>']|\([-^x=~<>'][_.]?[-^x=~<>']\)|\([\^x=~<>']-[\^x=~<>'`]\)|[\^x=~<>]\.\[\^[Xx]=[^<\n]*+<>\]",
        _with_named_parentheses,
    ),
    Rule("(", rf"\([0-9]{{2,3}}\)[ \u00a0]?{_PHONE_END}", _phone_number),
    Rule("+0-9", rf"(?:\+\+?)?(?:[0-9]{{2,4}}[- \u00a0])?[0-9]{{2,4}}[- \u00a0]{_PHONE_END}", _phone_number),
    Rule("+0-9", r"(?:(?:\+\+?)?[0-9]{2,4}\.)?[0-9]{2,4}\.[0-9]{3,4}\.[0-9]{3,5}"),
    # Punctuation.
    Rule('"&', '"|(?i:&quot;)', _opening_quote, ahead="[A-Za-z0-9$]"),
    Rule('"&', '"|(?i:&quot;)', _closing_quote),
    Rule("<&", "<|(?i:&lt;)", _always("<")),
    Rule(">&", ">|(?i:&gt;)", _always(">")),
    Rule(r"(){}\[\]", r"[(){}\[\]]", _replacing(_BRACKETS)),
    Rule("-", "-+", _dashes),
    Rule(".\u0085\u2026", r"\.{3,5}|(?:\.[ \u00a0]){2,4}\.|[\u0085\u2026]", _always("...")),
    Rule("@#_", "@+|#+|_+"),
    Rule(r"*\\", r"\*+|(?:\\\*){1,3}"),
    Rule(r",;:\u3001?!.=/", r"[?!]+|[,;:\u3001.=/]"),
    # Compounds.
    Rule("A-Za-z0-9", rf"{_HYPHENATED}\.", _without_soft_hyphens, ahead=_COMMA),
    Rule("A-Za-z0-9", _HYPHENATED, _without_soft_hyphens),
    Rule(_ALPHANUMERIC_START, rf"{_COMPOUND}\.", ahead=_COMMA),
    Rule(_ALPHANUMERIC_START, _COMPOUND),
    Rule("A-Z", rf"{_SUM_OF_CAPITALS}\.", _with_plain_ampersand, ahead=_COMMA),
    Rule("A-Z", _SUM_OF_CAPITALS, _with_plain_ampersand),
    # Quotes and the rest.
    Rule("'", "'", _opening_quote, ahead=r"[A-Za-z][^ \t\n\r\u00a0]"),
    Rule(_APOSTROPHE_START, _ENCLITIC, _closing_quote),
    Rule("'&`\u2018\u2019\u201c", "''|'|(?i:&apos;)|[`\u2018\u2019\u201c]{1,2}", _closing_quote),
    Rule("<>", "<<|>>"),
    Rule(_BLANKS + "\u200b&", f"[{_BLANKS}]+|\u200b|(?i:&nbsp;)", None),
    Rule(_SYMBOLS, f"[{_SYMBOLS}]"),
]


# How many characters a rule sees at first. Without a bound, text such as "<!a<!a<!a" would take quadratic time.
_WINDOW = 400


@cache
def _rules_starting_with(character):
    return tuple(
        (re.compile(f"({rule.token})(?:{rule.ahead})"), rule)
        for rule in RULES
        if re.match(f"[{rule.start}]", character, re.IGNORECASE)
    )


# Most text needs no rules each time. A stretch of plain words, with commas after some and perhaps a full stop at the
# end of the line, is just split, unless one of the words is two or an abbreviation. And letters with quotes, hyphens
# and the like before a blank make the same tokens wherever they stand, so these are remembered.
_PLAIN = re.compile(
    rf"(?:[A-Za-z]++[,;]?+(?: ++(?![{_BLANKS}])|(?=\n)|\Z))*+"
    r"(?:[A-Za-z]{2,}+\.(?= *+(?:\n|\Z)))?+"
)
_SELF_CONTAINED = re.compile(rf"([A-Za-z'\"!?,)-]++)(?: ++(?![{_BLANKS}])|(?=\n))")
_ABBREVIATIONS = f"{_BEFORE_LOWER_WORDS} {_STATES_WITH_CAPITAL} {_ANYWHERE_WORDS} {_BEFORE_NUMBER_WORDS}"
_ABBREVIATIONS += " mfg mtg ppte pptes ppty pptys pte ptes pty ptys"
_NOT_PLAIN = frozenset(
    [f"{word}." for word in _ABBREVIATIONS.split()] + ["cannot", "gimme", "gonna", "gotta", "lemme", "wanna"]
)


def scan(text, simple=None, start=0, end=None):
    """Tokens of a line of text, in lower case.

    Args:
        text: the text after `split_pairs`; its lines end with a line feed, and no other control character ends one.
        simple: `simplify(text)`, if it is known already.
        start, end: the bounds of the line; what follows is looked at, because abbreviations may depend on it.
    """
    simple = simplify(text) if simple is None else simple
    end = len(text) if end is None else end
    tokens, position = [], start
    while position < end:
        plain = _PLAIN.match(simple, position)
        if plain.end() > position and (words := _plain_words(plain[0])):
            tokens += words
            position = plain.end()
        elif chunk := _SELF_CONTAINED.match(simple, position):
            tokens += _chunk_tokens(chunk[1])
            position = chunk.end()
        else:
            token, position = _next_token(text, simple, position)
            if token:
                tokens.append(token)
    return tokens


def _plain_words(stretch):
    words = stretch.lower().replace(",", " ,").replace(";", " ;").split()
    if words[-1][-1] == "." and words[-1] not in _NOT_PLAIN:
        words[-1:] = [words[-1][:-1], "."]
    return words if _NOT_PLAIN.isdisjoint(words) else None


@lru_cache(maxsize=1 << 16)
def _chunk_tokens(chunk):
    text, tokens, position = f"{chunk} ", [], 0
    while position < len(chunk):
        token, position = _next_token(text, text, position)
        tokens.append(token)
    return tokens


def _next_token(text, simple, position):
    """The token at `position`, or `None` where there is none, and the place to go on from."""
    match, rule = _longest_match(simple, position)
    if match is None:
        return None, position + 1
    end = match.end(1)
    token = None if rule.write is None else join_pairs(rule.write(text[position:end])).lower()
    return token, end - rule.again


def _longest_match(simple, position, window=_WINDOW):
    reach, longest, rule = position, None, None
    for pattern, candidate in _rules_starting_with(simple[position]):
        match = pattern.match(simple, position, position + window)
        if match and match.end() > reach:
            reach, longest, rule = match.end(), match, candidate
    if reach == position + window and reach < len(simple):
        return _longest_match(simple, position, 2 * window)
    return longest, rule
