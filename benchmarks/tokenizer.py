"""Growth of the time of `PTBTokenizer` with the length of adversarial texts.

A family is a repeated text without sentence ends: one endless word, only commas, a tag that never closes. The ratio of
a family is the time of the longest text relative to the shortest, divided by the ratio of their lengths; 1 is linear.

    python benchmarks/tokenizer.py
    python benchmarks/tokenizer.py --lengths 10000 1000000
"""

import argparse
import time

from hf_ngsan.metrics import PTBTokenizer, ptb_rules

REQUIRED_RATIO = 15
FAMILIES = {
    "words before 'cannot'": ("dog ", "cannot"),
    "words and 'cannot'": ("dog cannot ", ""),
    "words before 'no.'": ("dog ", "no."),
    "one word": ("a", "$"),
    "commas": (",", "$"),
    "apostrophes": ("'", "$"),
    "apostrophes and letters": ("'a", "$"),
    "quotes": ('"', "$"),
    "brackets": ("([{", ""),
    "digits": ("1 ", ""),
    "dots": (".", ""),
    "dots and digits": ("a.1.", ""),
    "hyphens": ("a-", "$"),
    "slashes": ("/", ""),
    "URLs": ("a.com/", ""),
    "e-mail addresses": ("a@", ""),
    "tags": ("<a b='", ""),
    "entities": ("&a", ""),
    "initials": ("K. ", ""),
    "negations": ("n't", "$"),
    "unicode": ("\u732b\u00e9\u00ad\u2019", ""),
    "blanks": (" ", "a"),
}


def made_up_text(family: str, length: int) -> str:
    unit, end = FAMILIES[family]
    return (unit * length)[: length - len(end)] + end


def seconds(text: str) -> float:
    ptb_rules.chunk_tokens.cache_clear()
    start = time.process_time()
    PTBTokenizer(joined=True).tokenize([text])
    return time.process_time() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[10_000, 100_000, 1_000_000], help="characters")
    lengths = sorted(parser.parse_args().lengths)
    seconds("The rules' patterns, 1 by 1, are compiled <b>once</b>: &amp; at first use.")
    print(f"{'seconds of characters':<26}", *(f"{length:>10,}" for length in lengths), "     ratio")
    worst = 0.0
    for family in FAMILIES:
        times = [seconds(made_up_text(family, length)) for length in lengths]
        ratio = times[-1] / times[0] * lengths[0] / lengths[-1]
        worst = max(worst, ratio)
        print(f"{family:<26}", *(f"{value:10.3f}" for value in times), f"{ratio:10.2f}", flush=True)
    print(f"{'largest ratio':<26} {worst:.2f}   required: at most {REQUIRED_RATIO}")


if __name__ == "__main__":
    main()
