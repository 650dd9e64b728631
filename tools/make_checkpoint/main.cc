// SPDX-License-Identifier: Apache-2.0
//
// weir_make_checkpoint --out DIR --tokenizer FILE: writes a small checkpoint from a seed. Exit 0
// when it is written, 2 with one line of reason otherwise.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "tools/make_checkpoint/tiny_v3.h"

int main(int argc, char** argv) {
  weir::tools::TinyV3Options options;
  CLI::App app("Writes a small DeepSeek V3 checkpoint with random weights from a seed.");
  app.add_option("--out", options.out, "directory to write")->required();
  app.add_option("--tokenizer", options.tokenizer, "tokenizer.json to copy; sizes the vocabulary")
      ->required();
  app.add_option("--seed", options.seed, "which random weights")->capture_default_str();
  app.add_option("--hidden", options.hidden, "hidden_size")->capture_default_str();
  app.add_option("--layers", options.layers, "num_hidden_layers")->capture_default_str();
  app.add_option("--experts", options.experts, "n_routed_experts")->capture_default_str();
  app.add_option("--positions", options.positions_max, "max_position_embeddings")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = weir::tools::MakeTinyV3(options);
  if (!status.ok()) {
    std::fprintf(stderr, "weir_make_checkpoint: %s\n", std::string(status.message()).c_str());
    return 2;
  }
  std::printf("wrote %s\n", options.out.c_str());
  return 0;
}
