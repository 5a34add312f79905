"""Writes sentence_piece.jsonl: small SentencePiece models, and what the official package makes of texts with them.

    pip install sentencepiece
    python3 sentence_piece.py > sentence_piece.jsonl

A line {"model": HEX} is a serialized model; {"append": HEX} is the last one with these bytes after it, which in protobuf
overrides fields; {"text": …, "ids": …, "decoded": …} is text, its ids, and the text of these. A line without text decodes only.
"""
import io
import json
import random
import struct
from pathlib import Path

import sentencepiece

random.seed(1)
ROOT = Path(__file__).resolve().parents[2]
CHINESE = "你好，世界！ 今天天气很好。 我们一起去公园散步吧？ 晚上睡不着应该怎么办。 人工智能助手很高兴见到你。\n"
CODE = "def main():\n    for i in range(10):\n        print('hello world', i)\t# greeting\n\n"

TEXTS = [
    "", " ", "   ", "a", " a", "a ", "  a  b  ", "hello world", "Hello,  world!", "\n", "\n\n", " \n ", "\t", "你好", " 你好 ", "你好，世界",
    "def f(x):\n    return x * 2\n", "the weights of a model", "🚀", "a🚀b😀", "🚀🚀🚀 é", "naïve cafe\u0301 ½Ⅷ²", "▁", "▁▁a", "a▁b", "a▁", "▁ ▁",
    "<s>", "</s>a", "<unk>", "<0x0A>", "<0xE4>", "[gMASK]sop", "<n>", "a<n>b", "<n><nn><n", "<nnn>", " <n> ", "a  <n>  b", "<mask>", "abab",
    "abcabc", "aab bcab", "\0", "\ufffd", "\u3000x\u00a0y", "\r\n", "1234567890", "日本語 ひらがな", "aaaaaaaaaaaaaaaa", "ababbabaabbaabba",
]
ALPHABETS = ["ab", "abc <n>", "the mod el\n", "你好世界， a", "▁ a▁b", "🚀éx 1\t<0x>", "aAbB.,!?' \n"]


def texts():
    return TEXTS + ["".join(random.choice(a) for _ in range(random.randint(1, 24))) for a in ALPHABETS for _ in range(4)]


def train(**options):
    model = io.BytesIO()
    prose = [line for name in ("README.md", "docs/ARCHITECTURE.md") for line in (ROOT / name).read_text().splitlines() if line]
    lines = prose + [CHINESE, CODE] * 40
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type="bpe", normalization_rule_name="identity", num_threads=1,
        minloglevel=2, **options)
    return model.getvalue()


def field(number, data):
    assert len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data


def by_hand(pieces):
    """Pieces with scores of one's own, equal ones too."""
    out = b""
    for text, score, kind in pieces:
        out += field(1, field(1, text.encode()) + b"\x15" + struct.pack("<f", score) + bytes([0x18, kind]))
    # BPE; nothing is removed
    return out + field(2, b"\x18\x02") + field(3, b"\x18\x01\x20\x00")


def write(**line):
    print(json.dumps(line, ensure_ascii=False, separators=(",", ":")))


def golden(model):
    sp = sentencepiece.SentencePieceProcessor(model_proto=model)
    for text in texts():
        ids = sp.encode(text)
        line = {"text": text, "ids": ids}
        # the package prints an unknown piece as U+2047
        if sp.unk_id() not in ids and (decoded := sp.decode(ids)) != text:
            line["decoded"] = decoded
        write(**line)
    plain = [i for i in range(sp.vocab_size()) if not sp.is_byte(i) and not sp.is_unknown(i)]
    for _ in range(10):
        ids = [random.choice(plain) for _ in range(random.randint(1, 5))]
        write(ids=ids, decoded=sp.decode(ids))


def variants(model, appended):
    write(model=model.hex())
    golden(model)
    for more in appended:
        write(append=more.hex())
        golden(model + more)


def main():
    # as ChatGLM3 has it, then without a dummy prefix, then with spaces removed, then both
    like_chatglm3 = train(vocab_size=460, byte_fallback=True, remove_extra_whitespaces=False, character_coverage=0.985,
                          allow_whitespace_only_pieces=True, split_digits=True)
    variants(like_chatglm3, [field(3, b"\x18\x00"), field(3, b"\x20\x01"), field(3, b"\x18\x00\x20\x01")])
    # unknown characters, and pieces that are found in text before any merge
    variants(train(vocab_size=240, character_coverage=0.98, user_defined_symbols=["<n>", "<nn>", "abc", "▁▁"], control_symbols=["<mask>"]),
             [field(3, b"\x20\x00")])
    ab = ["ba", "abb", "aa", "bab", "ab", "aaba", "bb", "▁a", "aab", "bbb", "a▁"]
    scores = [-1, -0.5, -1, -0.5, -1.5, 0, -1, -0.25, -0.5, 3e38, -1e-40]
    pieces = [("<unk>", 0, 2)] + [(c, 0, 1) for c in "ab▁"] + [(t, s, 1) for t, s in zip(ab, scores)]
    variants(by_hand(pieces), [])


main()
