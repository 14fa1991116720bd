"""The tokenizer against known output, real captions, and the original if Java is installed."""

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_ngsan.metrics import PTBTokenizer, ptb_rules
from hf_ngsan.metrics.ptb_characters import simplify, split_pairs
from tests.tables import each_row

# Output of `java edu.stanford.nlp.process.PTBTokenizer -preserveLines -lowerCase` of CoreNLP 3.4.1 for each text.
CASES = [
    ("A man rides a horse.", "a man rides a horse ."),
    ("Two dogs, one cat; three birds: all asleep!", "two dogs , one cat ; three birds : all asleep !"),
    ('The sign reads "No Entry" in red', "the sign reads `` no entry '' in red"),
    ("He's sure they'd've gone, hasn't he?", "he 's sure they 'd 've gone , has n't he ?"),
    ("We cannot go, gonna stay, lemme see", "we can not go , gon na stay , lem me see"),
    ("'Twas late and 'tis dark", "'t was late and 't is dark"),
    ("the girls' coats and James's hat", "the girls ' coats and james 's hat"),
    ("rock 'n' roll in the '80s", "rock 'n' roll in the '80s"),
    ("it’s the baker’s “best” bread", "it 's the baker 's `` best '' bread"),
    ("a T-shirt, a well-worn state-of-the-art bag", "a t-shirt , a well-worn state-of-the-art bag"),
    ("a bus at 10:30 p.m. on 5th Ave.", "a bus at 10:30 p.m. on 5th ave."),
    ("St. Louis vs. the U.S. team", "st. louis vs. the u.s. team"),
    ("Mr. J. K. Smith Jr. of Acme Inc. waves", "mr. j. k. smith jr. of acme inc. waves"),
    ("platform no. 5 and fig. 3a", "platform no. 5 and fig. 3a"),
    ("in Wash. and Mass. they wash. Then rest", "in wash. and mass. they wash . then rest"),
    ("Capt. Ahab etc. and so on", "capt. ahab etc. and so on"),
    ("$5.99, £20, €7 and 10¢", "$ 5.99 , # 20 , $ 7 and 10 cents"),
    ("50% off, -3 degrees, +4", "50 % off , -3 degrees , +4"),
    ("1/2 cup, 2 3/4 cups, 3-1/2 cups and ½ pint", "1/2 cup , 2\xa03/4 cups , 3-1/2 cups and 1/2 pint"),
    ("1,000,000 bees in 1990s style", "1,000,000 bees in 1990s style"),
    ("call (555) 123-4567 or 555.123.4567", "call -lrb-555-rrb-\xa0123-4567 or 555.123.4567"),
    ("on 12/25/2010 at 7:45", "on 12/25/2010 at 7:45"),
    ("www.example.org/a/b?c=1, http://x.y/z.", "www.example.org/a/b?c=1 , http://x.y/z ."),
    ("write to jo.doe@mail.example.com!", "write to jo.doe@mail.example.com!"),
    ("@name likes #kites", "@name likes #kites"),
    ("see readme.txt, then run main.py .", "see readme.txt , then run main.py ."),
    ("a <b>bold</b> move <br/> &amp; more", "a <b> bold </b> move <br/> & more"),
    ("&quot;quoted&quot; &lt;tag&gt; &#39;", "`` quoted '' < tag > &#39;"),
    ("a (small) [grey] {cat}", "a -lrb- small -rrb- -lsb- grey -rsb- -lcb- cat -rcb-"),
    ("wait... what -- no --- way - ok", "wait ... what -- no -- way - ok"),
    ("why?! yes!! no...", "why ?! yes !! no ..."),
    ("smile :) wink ;-) ^_^ cat", "smile :-rrb- wink ;--rrb- ^_^ cat"),
    ("Ben & Jerry's AT&T R&B S&P-500", "ben & jerry 's at&t r&b s&p-500"),
    *[("C++ and C# code", "c++ and c# code"), ("a/b and/or w/o and 24/7", "a/b and/or w/o and 24/7")],
    ("snow_white *star* ~10 = a|b", "snow_white * star * ~ 10 = a | b"),
    ("2×4 m² 20°C №1 •", "2 × 4 m ² 20 ° c № 1 •"),
    ("naïve café Ångström façade", "naïve café ångström façade"),
    *[("猫が座る кошка γάτα", "猫が座る кошка γάτα"), ("a 🐈 on a mat🙂", "a on a mat")],
    ("zero\u200bwidth soft\xadhyphen no break", "zero width softhyphen no break"),
    ("١٢ and ３", "١٢ and ３"),
    ("O'Brien y'all o'clock c'mon e'er", "o'brien y' all o'clock c'mon e'er"),
    *[("don`t and rock´n", "do n`t and rock ´ n"), ("a.b.c. A.B. I. He came", "a.b.c. a.b. i . he came")],
    ("Co. Ltd. makes Pty. Ltd. signs", "co. ltd. makes pty. ltd. signs"),
    *[("“A” «B» ‹C› „D“", "`` a '' `` b '' ` c ' „ d ``"), ("f'real d'Arc l'eau", "f ` real d'arc l'eau")],
    ("Yahoo! E! OK!", "yahoo ! e ! ok !"),
    ("''double'' ``latex'' 'single'", "'' double '' `` latex '' ` single '"),
    *[("6'2\" tall", "6 ' 2 '' tall"), ("x. The end. y. the end", "x . the end . y. the end")],
]
PUNCTUATION = ["''", "'", "``", "`", ".", "?", "!", ",", ":", "-", "--", "...", ";"]


@each_row(("text", "tokens"), CASES)
def test_known_cases(text, tokens):
    assert PTBTokenizer(keep_punctuation=True).tokenize([text]) == [tokens]
    words = " ".join(token for token in tokens.split(" ") if token not in PUNCTUATION)
    assert PTBTokenizer().tokenize([text]) == [words]


def test_nothing_is_left_of_nothing():
    texts = ["", "   ", ".", "...", '"', "\u2026", "\U0001f600", "\ue000", "- ; :"]
    assert PTBTokenizer().tokenize(texts) == [""] * len(texts)
    assert PTBTokenizer().tokenize([]) == PTBTokenizer(joined=True).tokenize([]) == []
    with pytest.raises(ValueError, match="list"):
        PTBTokenizer().tokenize("a cat")


@each_row("end", ["\n", "\r", "\r\n", "\v", "\f", "\u2028", "\u2029"])
@each_row("joined", [False, True])
def test_line_ends_are_blanks_and_move_no_caption(end, joined):
    captions = [f"a cat{end}on a mat", f"{end}two dogs{end}", "a bird"]
    assert PTBTokenizer(joined).tokenize(captions) == ["a cat on a mat", "two dogs", "a bird"]


def test_joined_captions_depend_on_the_next_one_as_in_the_original():
    captions = [
        "at 12th Ave S.",
        "A man waits",
        "at 12th Ave S.",
        "two men wait",
        "it says etc.",
        "A dog :)",
        "smile :)",
    ]
    alone = ["at 12th ave s.", "a man waits", "at 12th ave s.", "two men wait", "it says etc.", "a dog -rrb-"]
    assert PTBTokenizer().tokenize(captions)[:6] == alone
    joined = PTBTokenizer(joined=True).tokenize(captions)
    assert joined == ["at 12th ave s", *alone[1:5], "a dog :-rrb-", "smile -rrb-"]


NASTY = st.text(
    st.one_of(
        st.sampled_from(list(" .,'\"-()<>/@#&;:!?$%_*~^=|\\aAsStTnN059\n\u00a0\u00ad\u2019\u00e9\U0001f600")),
        st.characters(),
    ),
    max_size=80,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(NASTY, max_size=4))
def test_any_text_gives_lower_case_words_and_one_line_a_caption(captions):
    alone = PTBTokenizer().tokenize(captions)
    joined = PTBTokenizer(joined=True).tokenize(captions)
    assert len(alone) == len(joined) == len(captions)
    for text in alone + joined:
        assert not re.search(r"[\n\r\v\f\u2028\u2029]|(^| ) |^ | $", text)
        assert not set(text.split(" ")) & set(PUNCTUATION)
        text.encode()  # no lone surrogate remains
    assert [PTBTokenizer().tokenize([caption])[0] for caption in captions] == alone


def by_rules_alone(text):
    """Returns the tokens that the rules find position by position, without the shortcuts for plain text."""
    simple, tokens, position = simplify(text), [], 0
    while position < len(text):
        token, position = ptb_rules.next_token(text, simple, position)
        tokens += [token] if token else []
    return tokens


PLAIN_WORDS = """
    a man the dog 's can't swim (left) no No. no. vs. Inc. mfg. wash. Wash. art. ART. hat. hat, cat; o'clock -- a-b
    U.S. cannot Cannot CANNOT cannot. cannot, gimme gonna; gotta lemme wanna! 'tis "stop" ?! ,,, )) 5 \u00e9t\u00e9
    'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb,
""".split()  # noqa: SIM905
JOINTS = [" "] * 8 + ["", "  ", ",", ", ", ". ", "\t", "\u00a0"]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(PLAIN_WORDS), st.sampled_from(JOINTS)).map("".join), max_size=12).map("".join)
    | NASTY.map(lambda text: split_pairs(re.sub("[\n\r\v\f\u2028\u2029]", " ", text)))
)
def test_shortcuts_for_plain_text_change_no_token(text):
    assert ptb_rules.scan(text) == by_rules_alone(text)


def test_a_long_word_stays_whole():
    word = "ab1" * 5000
    assert PTBTokenizer().tokenize([f"the {word}, again"]) == [f"the {word} again"]


def test_real_captions(metric_reference):
    known = metric_reference.read("context_dependent")
    for split in ("train", "val"):
        expected = metric_reference.read(f"tokenized_captions_{split}")
        tables = (metric_reference.captions(split), metric_reference.captions(split, {i: i for i in expected}))
        captions, ids = ([item for image in table.values() for item in image] for table in tables)
        assert dict(zip(ids, PTBTokenizer(joined=True).tokenize(captions), strict=True)) == expected
        exceptions = {i: entry["alone"] for i, entry in known[f"tokenized_captions_{split}"].items()}
        assert dict(zip(ids, PTBTokenizer().tokenize(captions), strict=True)) == expected | exceptions


@each_row("name", ["human", "shuffled", "noisy"])
def test_real_predictions(metric_reference, name):
    rows = sorted(metric_reference.read(f"predictions_val_{name}"), key=lambda row: row["image_id"])
    expected = metric_reference.read(f"tokenized_predictions_val_{name}")
    tokenized = PTBTokenizer(joined=True).tokenize([row["caption"] for row in rows])
    assert {str(row["image_id"]): text for row, text in zip(rows, tokenized, strict=True)} == expected


def test_reference_cases(metric_reference):
    cases = metric_reference.read("tokenizer_cases")
    texts = [case["text"] for case in cases]
    assert PTBTokenizer().tokenize(texts) == [case["tokens"] for case in cases]
    assert PTBTokenizer(keep_punctuation=True).tokenize(texts) == [case["ptb"] for case in cases]


def test_made_up_captions_against_the_original(java):
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer as Original

    generator = random.Random(0)
    pieces = [word for text, _ in CASES for word in text.split(" ") if "<" not in word]
    joints = [" "] * 8 + ["", "-", "'", '"', ".", ",", "/", "...", "  ", "\t", "\u00a0"]
    captions = [
        "".join(generator.choice(pieces) + generator.choice(joints) for _ in range(generator.randint(1, 8)))
        for _ in range(1500)
    ]
    original = Original().tokenize({i: [{"caption": caption}] for i, caption in enumerate(captions)})
    ours = PTBTokenizer(joined=True).tokenize(captions)
    different = [(c, original[i], ours[i]) for i, c in enumerate(captions) if original[i] != [ours[i]]]
    assert not different
