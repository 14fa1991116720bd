"""The lexical rules of Penn Treebank tokenization, as the COCO evaluation's tokenizer applies them.

`scan` walks through a text. At each place every rule that can start there is tried; the rule whose match reaches furthest
wins, looking ahead included, and of several equally long ones the first in `RULES`. A rule is a pattern (group 1 is the
token, what follows it in the pattern is only looked at) and a function that writes the token. Characters that no rule
takes are dropped.
"""

import re
import unicodedata
from functools import cache

# Letters of the Basic Multilingual Plane that Unicode gained after version 6.2, which the original's tables were made
# from: to the original they are unknown characters.
_YOUNGER_LETTERS = (
    "037F 0528-052F 0560 0588 05EF 0860-086A 0870-0887 0889-088E 08A1 08AD-08C9 0978 0980 09FC 0AF9 0C34 0C5A 0C5D 0C80 "
    "0CDD 0D04 0D54-0D56 0D5F 0E86 0E89 0E8C 0E8E-0E93 0E98 0EA0 0EA8-0EA9 0EAC 13F5 13F8-13FD 16F1-16F8 170D 171F 1878 "
    "191D-191E 19B0-19C0 19C8-19C9 1B4C 1C80-1C88 1C90-1CBA 1CBD-1CBF 1CF2-1CF3 1CFA 2C2F 2C5F 312E-312F 31BB-31BF "
    "4DB6-4DBF 9FCD-9FFF A698-A69D A78F A794-A79F A7AB-A7CA A7D0-A7D1 A7D3 A7D5-A7D9 A7F2-A7F7 A8FD-A8FE A9E0-A9E4 "
    "A9E6-A9EF A9FA-A9FE AA7E-AA7F AB30-AB5A AB5C-AB69 AB70-ABBF"
)
# Accents, vowel signs and the like that count as parts of words.
_MARKS = (
    "02C2-02C5 02D2-02DF 02E5-02EB 02ED 02EF-036F 0375 0378-0379 0384-0385 03F6 0483-0487 055A-055F 0591-05BD 05BF "
    "05C1-05C2 05C4-05C5 05C7 0615-061A 064B-065E 0670 06D6-06E4 06E7-06ED 06FD-06FE 070F 0711 0730-074C 07A6-07B0 "
    "07EB-07F3 0900-0903 093C 093E-094E 0951-0955 0962-0963 0981-0983 09BC 09BE-09C4 09C7-09C8 09CB-09CD 09D7 09E2-09E3 "
    "0A01-0A03 0A3C 0A3E-0A4F 0A81-0A83 0ABC 0ABE-0ACF 0B82 0BBE-0BC2 0BC6-0BC8 0BCA-0BCD 0C01-0C03 0C3E-0C56 0D3E-0D44 "
    "0D46-0D48 0E31 0E34-0E3A 0E47-0E4E 0EB1 0EB4-0EBC 0EC8-0ECD 1885-1886"
)
_SYMBOLS = (
    "0025-0026 002B 005C 005E 007C 007E 00A6-00A9 00AC 00AE-00BA 00D7 00F7 0387 05BE 05C0 05C3 05C6 05F3-05F4 0600-0603 "
    "0606-060A 060C 0614 061B 061E 066A 066D 0703-070D 07F6-07F8 0964-0965 0E4F 1FBD 2016-2017 2020-2023 2030-2038 203B "
    "203E-2042 2044 207A-207F 208A-208E 2100-214F 2160-216F 2190-2BFF 3012 30FB FF01-FF0F FF1A-FF20 FF3B-FF40 FF5B-FF65"
)


def _parse_ranges(text):
    for item in text.split():
        first, _, last = item.partition("-")
        yield int(first, 16), int(last or first, 16)


def _ranges_of(predicate):
    """The inside of a regular expression's character class for all characters below U+10000 that fulfil `predicate`."""
    parts, start = [], None
    for code in range(0x10001):
        inside = code < 0x10000 and predicate(chr(code))
        if inside and start is None:
            start = code
        elif not inside and start is not None:
            parts.append(f"\\u{start:04x}-\\u{code - 1:04x}")
            start = None
    return "".join(parts)


def _class_of(ranges):
    return "".join(f"\\u{first:04x}-\\u{last:04x}" for first, last in _parse_ranges(ranges))


_young = {code for first, last in _parse_ranges(_YOUNGER_LETTERS) for code in range(first, last + 1)}
_categories = [unicodedata.category(chr(code)) for code in range(0x10000)]

# Insides of character classes.
_letter = _ranges_of(lambda c: _categories[ord(c)][0] == "L" and ord(c) not in _young)
_upper = _ranges_of(lambda c: _categories[ord(c)] == "Lu" and ord(c) not in _young) + "\u2160-\u216f\u24b6-\u24cf"
_digit = _ranges_of(lambda c: _categories[ord(c)] == "Nd" and c not in "\u0de6-\u0def\ua9f0-\ua9f9")
_wordish = _letter + _class_of(_MARKS) + "\u00ad"
_space = r" \t\u00a0\u2000-\u200a\u3000"
_spacenl = _space + r"\n\u0085"

SPLET = r"&[aeiouAEIOU](?i:acute|grave|uml);"
LETTER = f"(?:[{_wordish}]|{SPLET})"
WORD = f"{LETTER}+"
DIGIT = f"[{_digit}]"
APOS = r"(?:['\u0092\u2019]|(?i:&apos;))"
APOS_OR_QUOTE = r"(?:['\u0092\u2019\u0091\u2018\u201b]|(?i:&apos;))"
HYPHEN = r"[-_\u058a\u2010\u2011]"
ACRO = r"(?:[A-Za-z](?:\.[A-Za-z])+|(?i:(?:canada|sino|korean|eu|japan|non)-u\.s|u\.s\.-(?:u\.k|u\.s\.s\.r)))"
NUM = f"(?:{DIGIT}+(?:[.:,\u00ad\u066b\u066c]{DIGIT}+)*|(?:[.:,\u00ad\u066b\u066c]{DIGIT}+)+)"
REDAUX = f"(?:{APOS}(?:[msdMSD]|(?i:re|ve|ll)))"
SREDAUX = f"(?:(?i:n){APOS_OR_QUOTE}(?i:t))"
SGML = r"<\/?[A-Za-z!?][^>\n]*>"
IN_SENTENCE = r"[,;:\u3001]"
SENTENCE_END = f"[{_spacenl}](?:[{_spacenl}]|[{_upper}]|{SGML})"

# Abbreviations. Before a lower-case word the first kind keeps its dot; before anything that looks like the beginning of a
# sentence it keeps it and a full stop follows. The second kind always keeps it; the third does so before a number only.
_MONTHS = "jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec"
_DAYS = "mon|tues?|wed|thu(?:rs)?|fri"
_STATES = (
    "ala|ariz|calif|colo|conn|ct|dak|fla|ga|ind|kans?|ky|md|mich|minn|mo|mont|neb|nev|okla|penn|tenn|va|vt|wisc?|wyo"
)
_STATES_CAPITALIZED = (
    "A(?i:z)|A(?i:rk)|D(?i:el)|I(?i:ll)|L(?i:a)|M(?i:ass)|M(?i:iss)|O(?i:re)|P(?i:a)|T(?i:ex)|W(?i:ash)"
)
_COMPANIES = "inc|cos?|corp|pp?t[ye]s?|ltd|plc|rt|bancorp|bhd|assn|univ|intl|sys"
_BEFORE_LOWER = (
    f"{_MONTHS}|{_DAYS}|{_STATES}|{_COMPANIES}|tel|est|ext|sq|jr|sr|bros|(?:ed|ph)\\.d|blvd|rd|esq|etc|al|seq|bldg"
)
_TITLES = (
    "mr|mrs|ms|drs?|profs?|sens?|reps?|attys?|lt|col|gen|messrs|govs?|adm|rev|maj|sgt|cpl|pvt|mt|capt|ste?|ave|pres|lieut|"
    "hon|brig|co?mdr|pfc|spc|supts?|det|adj|adv|asst|assoc|ens|insp|mlle|mme|msgr|sfc|ft"
)
_BEFORE_CAPITAL = f"{_TITLES}|alex|wm|jos|cie|cf|treas|invt|elec|natl|m[ft]g|dept|ph"
_BEFORE_NUMBER = "ca|figs?|prop|nos?|art|pp|op"
ABBREV1 = rf"(?:(?i:{_BEFORE_LOWER})|{_STATES_CAPITALIZED})\."
ABBREV2 = rf"(?:(?i:{_BEFORE_CAPITAL})|{ACRO}|[A-Za-z]|M(?i:iss))\."
ABBREV3 = rf"(?i:{_BEFORE_NUMBER})\."
ABBREV4 = r"(?i:vs|a\.k\.a)\."
_SENTENCE_STARTERS = (
    "About|According|Additionally|After|An?|As|At|But|Earlier|He|Her|Here|However|If|In|It|Last|Many|More|Mr\\.|Ms\\.|Now|"
    "Once|One|Other|Our|She|Since|So|Some|Such|That|The|Then|There|These|They|This|We|When|While|What|Yet|You"
)

_BRACKETS = {"(": "-LRB-", ")": "-RRB-", "[": "-LSB-", "]": "-RSB-", "{": "-LCB-", "}": "-RCB-"}
_QUOTE_NAMES = [
    (re.compile("[\u0091\u2018\u201b\u2039]"), "`"),
    (re.compile("[\u0092\u2019\u203a]"), "'"),
    (re.compile("[\u0093\u201c\u00ab]"), "``"),
    (re.compile("[\u0094\u201d\u00bb]"), "''"),
]
_APOSTROPHE = re.compile("(?i:&apos;)|'")
_DOUBLE_QUOTE = re.compile('(?i:&quot;)|"')
_FRACTIONS = {"\u00bc": "1/4", "\u00bd": "1/2", "\u00be": "3/4", "\u2153": "1/3", "\u2154": "2/3"}
_CURRENCIES = {"\u00a2": "cents", "\u00a3": "#", "\u0080": "$", "\u00a4": "$", "\u20a0": "$", "\u20ac": "$"}


def _same(token):
    return token


def _without_soft_hyphens(token):
    return token.replace("\u00ad", "") or "-"


def _plain_ampersand(token):
    return re.sub("(?i:&amp;)", "&", token)


def _closing_quotes(token):
    return _name_quotes(token, "'", "''")


def _opening_quotes(token):
    return _name_quotes(token, "`", "``")


def _name_quotes(token, single, double):
    token = _DOUBLE_QUOTE.sub(double, _APOSTROPHE.sub(single, token))
    for pattern, name in _QUOTE_NAMES:
        token = pattern.sub(name, token)
    return token


def _no_break_spaces(token):
    return token.replace(" ", "\u00a0")


def _phone(token):
    return _no_break_spaces(token).replace("(", "-LRB-").replace(")", "-RRB-")


def _hyphens(token):
    return "--" if 3 <= len(token) <= 4 else token


RULES = []


def _rule(token, write=_same, ahead=""):
    RULES.append((re.compile(f"({token})(?:{ahead})"), write))


def _always(text):
    return lambda token: text


_rule(r"(?i:can)", ahead="(?i:not)")
_rule(r"(?i:'t)", _closing_quotes, ahead="(?i:was)")
_rule(r"(?i:gon|wan)", ahead="(?i:na)")
_rule(r"(?i:got)", ahead="(?i:ta)")
_rule(r"(?i:lem|gim)", ahead="(?i:me)")
_rule(f"{APOS}(?i:t)", _closing_quotes, ahead="(?i:is)")
_rule(SGML, _no_break_spaces)
_rule(r"(?i:&(?:MD|mdash|ndash);)|[\u0096\u0097\u2013-\u2015]", _always("--"))
_rule(r"(?i:&amp;)", _always("&"))
_rule(r"(?i:&(?:HT|TL|UR|LR|QC|QL|QR|odq|cdq|#[0-9]+);)")
_rule(WORD, _without_soft_hyphens, ahead=REDAUX)
_rule("[A-Za-z\u00ad]*[A-MO-Za-mo-z]\u00ad*", _without_soft_hyphens, ahead=SREDAUX)
_rule(WORD, _without_soft_hyphens)
_rule(
    f"{APOS}(?i:n){APOS}?|[lLdDjJ]{APOS}|(?i:dunkin|somethin|ol){APOS}|{APOS}(?i:em)"
    f"|[A-HJ-XZn]{APOS_OR_QUOTE}[{_letter}]{{2,}}|{APOS}[2-9]0s|{APOS}(?i:till?)"
    f"|[{_letter}]+(?<=[aeiouyAEIOUY]){APOS_OR_QUOTE}[aeiouA-Z][{_letter}]*"
    f"|{APOS}(?i:cause)|(?i:cont'd)\\.?|(?i:nor'easter|c'mon|e'er|s'mores|ev'ry|li'l|nat'l|ass't)"
)
_rule(f"(?i:y){APOS}", ahead=f"[{_letter}]")
_rule(r'(?i:https?):\/\/[^ \t\n\f\r"<>|()]+[^ \t\n\f\r"<>|.!?(){},-]')
_rule(
    r"(?:(?i:www)\.(?:[^ \t\n\f\r\"<>|.!?(){},]+\.)+[a-zA-Z]{2,4}"
    r"|(?:[^ \t\n\f\r\"`'<>|.!?(){},-_$]+\.)+(?i:com|net|org|edu))"
    r"(?:\/[^ \t\n\f\r\"<>|()]+[^ \t\n\f\r\"<>|.!?(){},-])?"
)
_rule(r'[a-zA-Z0-9][^ \t\n\f\r"<>|()\u00a0]*@(?:[^ \t\n\f\r"<>|().\u00a0]+\.)*[^ \t\n\f\r"<>|().\u00a0]+')
_rule(f"@[a-zA-Z_][a-zA-Z_0-9]*|#{WORD}")
_rule(REDAUX, _closing_quotes, ahead="[^A-Za-z]")
_rule(SREDAUX, _closing_quotes)
_rule(f"{DIGIT}{{1,2}}[-/]{DIGIT}{{1,2}}[-/]{DIGIT}{{2,4}}")
_rule(f"[-+]?{NUM}", _without_soft_hyphens)
_rule(r"[\u207a\u207b\u208a\u208b]?(?:[\u2070\u00b9\u00b2\u00b3\u2074-\u2079]+|[\u2080-\u2089]+)")
_rule(f"(?:{DIGIT}{{1,4}}[- \u00a0])?{DIGIT}{{1,4}}(?:\\\\?/|\u2044){DIGIT}{{1,4}}", _no_break_spaces)
_rule(r"[\u00bc-\u00be\u2153-\u215e]", lambda token: _FRACTIONS.get(token, token))
_rule(
    rf"(?i:-(?:RRB|LRB|RCB|LCB|RSB|LSB)-|C\.D\.s|pro-|anti-|S(?:&|&amp;)P-500|S(?:&|&amp;)Ls|Cap{APOS}n|c{APOS}est)",
    _plain_ampersand,
)
_rule(r"[A-Za-z0-9]+(?:-[A-Za-z]+){0,2}(?:\\?/[A-Za-z0-9]+(?:-[A-Za-z]+){0,2}){1,2}")
_rule(r"[A-Z]*\$|#")
_rule(
    r"[\u00a2-\u00a5\u0080\u20a0\u20ac\u060b\u0e3f\u20a4\uffe0\uffe1\uffe5\uffe6]",
    lambda token: _CURRENCIES.get(token, token),
)
_rule(f"(?:{ACRO}|[A-Za-z])\\.", ahead=f"[{_space}]+(?:{_SENTENCE_STARTERS})[{_space}]")
_rule(ABBREV1, ahead=SENTENCE_END)
_rule(ABBREV1, ahead="(?s:..)")
_rule(ABBREV1)
_rule(ABBREV2)
_rule(ABBREV3, ahead=f"[{_space}]*{DIGIT}")
_rule(ABBREV4)
_rule(ACRO, ahead=f"[{_spacenl}]")
_rule(f"{APOS}[0-9][0-9]", _closing_quotes, ahead=f"[{_spacenl}]")
_rule(f"{WORD}\\.", _without_soft_hyphens, ahead=IN_SENTENCE)
_PHONE_END = r"[0-9]{3,4}[- \u00a0]?[0-9]{3,5}"
_rule(rf"(?:\([0-9]{{2,3}}\)[ \u00a0]?){_PHONE_END}", _phone)
_rule(rf"(?:\+\+?)?(?:[0-9]{{2,4}}[- \u00a0])?[0-9]{{2,4}}[- \u00a0]{_PHONE_END}", _phone)
_rule(r"(?:(?:\+\+?)?[0-9]{2,4}\.)?[0-9]{2,4}\.[0-9]{3,4}\.[0-9]{3,5}", _phone)
_rule(r'"|(?i:&quot;)', _opening_quotes, ahead="[A-Za-z0-9$]")
_rule(r'"|(?i:&quot;)', _closing_quotes)
_rule(r"<|(?i:&lt;)", _always("<"))
_rule(r">|(?i:&gt;)", _always(">"))
_rule(r"[(){}\[\]]", _BRACKETS.__getitem__)
_rule("-+", _hyphens)
_rule(r"\.{3,5}|(?:\.[ \u00a0]){2,4}\.|[\u0085\u2026]", _always("..."))
_rule("@+|#+|_+")
_rule(r"\*+|(?:\\\*){1,3}")
_rule(IN_SENTENCE)
_rule("[?!]+")
_rule(r"[.\u00a1\u00bf\u037e\u0589\u061f\u06d4\u0700-\u0702\u07fa\u3002]")
_rule("=")
_rule("/")
HTHING = rf"[A-Za-z0-9][A-Za-z0-9.,\u00ad]*(?:-(?:{ACRO}\.|[A-Za-z0-9\u00ad]+))+"
_rule(rf"{HTHING}\.", _without_soft_hyphens, ahead=IN_SENTENCE)
_rule(HTHING, _without_soft_hyphens)
_ALNUM = f"[{_letter}{_digit}]"
_PARTICLE = f"(?:[dDoOlL]{APOS_OR_QUOTE}{_ALNUM})"
THING = f"{_PARTICLE}?{_ALNUM}+(?:{HYPHEN}{_PARTICLE}?{_ALNUM}+)*"
_rule(rf"{THING}\.", ahead=IN_SENTENCE)
_rule(THING)
THINGA = r"[A-Z]+(?:(?:[+&]|(?i:&amp;))[A-Z]+)+"
_rule(rf"{THINGA}\.", _plain_ampersand, ahead=IN_SENTENCE)
_rule(THINGA, _plain_ampersand)
_rule("'", _opening_quotes, ahead=r"[A-Za-z][^ \t\n\r\u00a0]")
_rule(REDAUX, _closing_quotes)
_rule(
    rf"{APOS}|''|[`\u2018\u2019\u201a-\u201f\u0091-\u0094\u2039\u203a\u00ab\u00bb]{{1,2}}",
    _closing_quotes,
)
_rule("<<|>>")
_rule(f"[{_class_of(_SYMBOLS)}]")


def _rules():
    return RULES


@cache
def _skipped():
    return re.compile(rf"[\x00{_space}\u200b\u200e\u200f\ufeff]+|(?i:&nbsp;)")


def scan(text):
    """Tokens of a text, as written by the rules, each line end as a token of its own (a newline)."""
    tokens, position, length = [], 0, len(text)
    skip = _skipped()
    while position < length:
        skipped = skip.match(text, position)
        if skipped:
            position = skipped.end()
            continue
        reach, best, writer = position, None, None
        for pattern, write in RULES:
            match = pattern.match(text, position)
            if match and match.end() > reach:
                reach, best, writer = match.end(), match, write
        if best is None:
            if text[position] == "\n":
                tokens.append("\n")
            position += 1
            continue
        tokens.append(writer(best[1]))
        position = best.end(1)
    return tokens
