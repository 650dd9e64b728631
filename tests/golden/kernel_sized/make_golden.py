#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes golden.json: what an independent float64 reference computes on the checkpoints that
weir_make_checkpoint makes from the config.json files beside it. PROVENANCE.md says how to run it.

usage: make_golden.py REFERENCE CHECKPOINTS
    REFERENCE    folder of the reference's reference.py, which is not part of this project
    CHECKPOINTS  folder with v2/, v3/, v32/ and v41/, each made with --seed 1; v41/ holds a
                 tokenizer.json too

The reference takes Engram's token map as given; it is made here from tokenizer.json by the
reference's own rule, not by the engine's. Needs numpy (Debian's python3-numpy).
"""
import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # the order of sums is part of the result
    os.environ[name] = "1"
import hashlib
import json
import sys
from pathlib import Path

import numpy as np

SEED = 1
PROMPT_TOKENS = 150  # past one window, and past the rows that V4.1's candidates hold
CHUNK = 25           # a chunk of prefill ends wherever there are logits
STRIDE = 32
# V2's and V3's caches are not quantised.
PROFILES = {"v2": ("smooth",), "v3": ("smooth",), "v32": ("smooth",), "v41": ("smooth", "ideal")}
# Prompts whose best tokens lead clearly; of V4.1, one that F32 arithmetic disturbs little in `ideal`.
PROMPT_SEED = {"v2": 1, "v3": 1, "v32": 2, "v41": 8}


def byte_of_spelling():
    """GPT-2's spelling of bytes as printable characters."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(byte): byte for byte in plain}
    table.update({chr(256 + i): byte for i, byte in enumerate(b for b in range(256) if b not in plain)})
    return table


def token_map(reference, folder, config):
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    byte_of = byte_of_spelling()
    pieces = {id: (bytes(byte_of[c] for c in raw).decode("utf-8", "replace"), raw)
              for raw, id in tokenizer["model"]["vocab"].items()}
    pieces.update({token["id"]: (token["content"], token["content"]) for token in tokenizer["added_tokens"]})
    count = len(pieces)
    assert sorted(pieces) == list(range(count))
    classes, size = reference.engram_token_map([pieces[id] for id in range(count)])
    assert size == config["engram_compressed_vocab_size"], (size, "compressed ids")
    # Ids beyond the tokenizer's count as padding.
    return classes + [classes[config["engram_pad_token_id"]]] * (config["vocab_size"] - count), count


def rounded(row):
    return [float(f"{value:.6g}") for value in row]


def v2_class(reference):
    """The reference's V3 with what V2 does otherwise: a softmax router without bias, groups or
    renormalisation, and queries straight from the hidden state."""

    class V2(reference.V3):
        def lin(self, x, name):
            return x if name.endswith("q_a_proj") else super().lin(x, name.replace("q_b_proj", "q_proj"))

        def norm(self, x, name, eps=None):
            return x if name.endswith("q_a_layernorm") else super().norm(x, name, eps)

        def route(self, x, p):
            s = reference.softmax(x @ self.p(p + "gate.weight").T)
            picks = np.array([reference.top_indices(row, self.cfg["num_experts_per_tok"]) for row in s])
            return picks, np.take_along_axis(s, picks, 1) * self.cfg["routed_scaling_factor"]

    return V2


def run(reference, folder, profile, classes, prompt):
    """Logits at the end of each chunk. Margins are printed: where one is near 0, plain F32
    arithmetic may choose otherwise, and another PROMPT_SEED is wanted."""
    numerics = reference.Numerics(**reference.PROFILES[profile])
    checkpoint = reference.Checkpoint(folder)
    if classes:
        model = reference.V41(checkpoint, numerics, classes)
    else:
        model = (v2_class(reference) if folder.name == "v2" else reference.V3)(checkpoint, numerics)
    logits = model.forward(prompt, reference.State())["logits"]
    ends = range(CHUNK - 1, PROMPT_TOKENS, CHUNK)
    lead = min(float(np.diff(np.sort(logits[p])[-2:])[0]) for p in ends)
    print(folder.name, profile, f"logits deviate by {logits.std():.3g}, the best leads by at least {lead:.3g}",
          file=sys.stderr)
    return {"best": {str(p): int(logits[p].argmax()) for p in ends},
            "logits": {str(p): rounded(logits[p, ::STRIDE]) for p in ends}}


def golden(reference, folder, family):
    config = json.loads((folder / "config.json").read_text())
    classes, tokens = None, config.get("vocab_size")
    if family == "v41":
        classes, tokens = token_map(reference, folder, config["text_config"])
    prompt = np.random.default_rng(PROMPT_SEED[family]).integers(3, tokens, PROMPT_TOKENS)
    weights = (folder / "model.safetensors").read_bytes()
    cases = {profile: run(reference, folder, profile, classes, prompt) for profile in PROFILES[family]}
    return {"sha256": hashlib.sha256(weights).hexdigest(), "seed": SEED, "chunk": CHUNK, "stride": STRIDE,
            "prompt": prompt.tolist(), **cases}


def main(reference_folder, checkpoints):
    sys.path.insert(0, reference_folder)
    import reference

    out = {family: golden(reference, Path(checkpoints) / family, family) for family in PROFILES}
    text = json.dumps(out, separators=(",", ":"))
    for key in ('"v2":', '"v3":', '"v32":', '"v41":', '"smooth":', '"ideal":', '"logits":'):
        text = text.replace(key, "\n" + key)
    Path(__file__).with_name("golden.json").write_text(text + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
