"""Penn Treebank tokenization in Python, as the COCO caption evaluation uses it."""

from .ptb_rules import scan

_PUNCTUATION = frozenset(
    ["''", "'", "``", "`", "-LRB-", "-RRB-", "-LCB-", "-RCB-", ".", "?", "!", ",", ":", "-", "--", "...", ";"]
)
_LINE_ENDS = str.maketrans(dict.fromkeys("\n\r\v\f\u2028\u2029", " "))


class PTBTokenizer:
    """Tokenizes captions like the COCO evaluation does with Stanford CoreNLP 3.4.1, lower-cased, punctuation removed.

    Args:
        joined (`bool`): tokenize the captions of a call as one text, as the evaluation does.
    """

    def __init__(self, joined=False):
        self.joined = joined

    def tokenize(self, captions):
        """Tokenizes a list of captions.

        Returns:
            `list[str]`: for each caption its words with a blank between.
        """
        return [self._tokenize_one(caption) for caption in captions]

    def _tokenize_one(self, caption):
        tokens = " ".join(token.lower() for token in scan(caption.translate(_LINE_ENDS)))
        return " ".join(token for token in tokens.rstrip().split(" ") if token not in _PUNCTUATION)
