// SPDX-License-Identifier: Apache-2.0
//
// The root of a chain of block keys: which KV may ever be the same, and for whom. Pure functions, any
// thread. Two isolation domains, or two models, have roots that have nothing in common, so a hit
// across them is impossible by construction. Every field goes in with its length: no choice of
// strings makes two lists of fields read alike.
#pragma once

#include <string>
#include <string_view>

#include "kvstore/key/block_key.h"

namespace weir::kv {

// What KV depends on besides tokens. Digests of any length; empty where there is none.
struct KeySpace {
  std::string model;      // configuration and weights, which include positions and quantisation
  std::string layout;     // bytes of a block
  std::string tokenizer;  // ids of other tokenizers mean other text
  std::string adapter;
};

// Who shares: callers of one account and, where the account tells its users apart, of one user; apart
// again by whatever salt they ask for.
struct Domain {
  std::string account;
  std::string user;
  std::string salt;
};

// `secret` is known to the store's own processes alone, and may be empty: then who can read an index
// could test a guess of a prompt against it.
BlockKey DomainRoot(std::string_view secret, const Domain& domain, const KeySpace& space);

}  // namespace weir::kv
