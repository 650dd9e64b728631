#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tokenizer.json of the small models: byte-level BPE with DeepSeek's pre-tokenizer, 256
byte tokens, merges learnt from the text below, and every control token that the templates and the
stream parser know. With --v41 it has 1024 tokens, V4.1's control tokens among them. The result
depends on nothing but this file.

usage: make_tokenizer.py OUT.json [--v41]
"""
import json
import re
import sys
from collections import Counter

VOCAB_SIZE, VOCAB_SIZE_V41 = 512, 1024
FRONT = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"]
BACK = ["<｜System｜>", "<｜fim▁hole｜>", "<｜fim▁begin｜>", "<｜fim▁end｜>", "<｜User｜>",
        "<｜Assistant｜>", "<|EOT|>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>",
        "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁outputs▁begin｜>",
        "<｜tool▁outputs▁end｜>", "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>",
        "<｜tool▁sep｜>", "<think>", "</think>", "｜DSML｜", "<｜latest_reminder｜>", "<｜image｜>"]
BACK_V41 = ["<｜begin▁sys｜>", "<｜end▁sys｜>", "<｜action｜>", "<｜query｜>", "<｜authority｜>",
            "<｜domain｜>", "<｜title｜>", "<｜extracted_url｜>", "<｜read_url｜>",
            "<｜place▁holder▁no▁0｜>"]

TEXT = """
The river runs through the valley and the weir holds it back until the mill needs the water.
When the gate opens the water falls over the stones, and the wheel begins to turn again.
You are a helpful assistant. Please answer the question in a few words, and say so when you do not
know the answer. I think that this is what the user wants, so let me think about it step by step.
Here is the weather for today: it is sunny in Paris, with a light wind from the west and 20 degrees.
Tomorrow there will be some rain in the morning, but the evening should be dry and warm.
To write good code, first make it right, then make it clear, then make it fast. A test that tells
a story is worth more than a comment that repeats the line below it.
What is the capital of France? The capital of France is Paris. How many letters are in this word?
Hello! How can I help you today? Thank you for the question. Of course, here are the numbers.
She had been working on the problem for more than three hours before she found the other reason.
They have all been there, and each of them could see that nothing would have changed without you.
If we can do this, then we should also be able to do that; otherwise it might not work at all.
name string true false parameter invoke calls location city value type object properties result
"name": "get_weather", "arguments": {"location": "Paris", "unit": "celsius"}, "type": "object"
int main() { return 0; } for (int i = 0; i < size; ++i) { sum += values[i]; } // the end
one two three four five six seven eight nine ten hundred thousand first second third last next
"""

TEXT_V41 = TEXT + """
The user asks for a table of the months and the days in each of them; a short list will do as well.
Reasoning: first read the request, then look at the tools, then decide whether a call is needed.
<invoke name="search"> <parameter name="query" string="true">river levels near the old mill</parameter>
The function returns an error when the input is empty, otherwise it returns the length of the list.
def add(left, right): return left + right  # a simple example, and a second one follows below
class Point: def __init__(self, x, y): self.x = x; self.y = y  import json, math, random, sys
{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
Water boils at one hundred degrees; ice melts at zero. Light travels faster than sound ever could.
My friend lives in a small house by the sea, where the wind is strong and the evenings are quiet.
Yesterday we walked through the forest, crossed a bridge, and reached the village before sunset.
Please translate the following sentence, keep the meaning, and explain the most difficult words.
Every morning the baker opens his shop early, lights the oven, and waits for the first customers.
Some people think that money makes life easier, while others believe that time matters much more.
The history of the city begins with a market on the river; later came walls, towers and churches.
Students should practise often, ask questions without fear, and learn from the mistakes they make.
"""

WORDS = re.compile(r" ?[A-Za-z]+| ?[^\sA-Za-z0-9]+|[0-9]{1,3}|\s+")


def byte_alphabet():
    printable = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table, spare = {}, 256
    for byte in range(256):
        if byte in printable:
            table[byte] = chr(byte)
        else:
            table[byte] = chr(spare)
            spare += 1
    return table


def learn(words, count):
    words = {tuple(word): n for word, n in words.items()}
    merges = []
    known = set()
    while len(merges) < count:
        pairs = Counter()
        for word, n in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += n
        best = min((p for p in pairs if p[0] + p[1] not in known),
                   key=lambda p: (-pairs[p], p), default=None)
        if best is None:
            break
        merges.append(best)
        known.add(best[0] + best[1])
        merged = {}
        for word, n in words.items():
            out, i = [], 0
            while i < len(word):
                if word[i:i + 2] == best:
                    out.append(best[0] + best[1])
                    i += 2
                else:
                    out.append(word[i])
                    i += 1
            merged[tuple(out)] = merged.get(tuple(out), 0) + n
        words = merged
    return merges


def main(out, v41=False):
    alphabet = byte_alphabet()
    size, back, text = VOCAB_SIZE, BACK, TEXT
    if v41:
        size, back, text = VOCAB_SIZE_V41, BACK + BACK_V41, TEXT_V41
    spell = lambda text: "".join(alphabet[b] for b in text.encode())
    words = Counter(spell(word) for word in WORDS.findall(text.replace("\n", " ")))
    merges = learn(words, size - len(FRONT) - 256 - len(back))
    tokens = [alphabet[b] for b in range(256)] + [a + b for a, b in merges]
    vocab = {token: i + len(FRONT) for i, token in enumerate(tokens)}
    ids = list(range(len(FRONT))) + list(range(size - len(back), size))
    assert len(vocab) + len(ids) == size
    split = lambda regex: {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated",
                           "invert": False}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [
            {"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": i < len(FRONT)}
            for i, token in zip(ids, FRONT + back)],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            split(r"\p{N}{1,3}"),
            split("[一-龥぀-ゟ゠-ヿ]+"),
            split("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
                  "[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|"
                  "\\s*[\r\n]+|\\s+(?!\\S)|\\s+"),
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
             "use_regex": False}]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                    "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "vocab": vocab,
                  "merges": [a + " " + b for a, b in merges]}}
    with open(out, "w", encoding="utf-8") as file:
        json.dump(tokenizer, file, ensure_ascii=False, indent=0)
        file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:] == ["--v41"])
