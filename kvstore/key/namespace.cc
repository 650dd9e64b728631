// SPDX-License-Identifier: Apache-2.0
#include "kvstore/key/namespace.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/stdx/check.h"

namespace weir::kv {

BlockKey DomainRoot(std::string_view secret, const Domain& domain, const KeySpace& space) {
  std::string text = "kv1";
  for (const std::string* field : {&domain.account, &domain.user, &domain.salt, &space.model,
                                   &space.layout, &space.tokenizer, &space.adapter}) {
    for (int shift = 0; shift < 64; shift += 8) {
      text.push_back(static_cast<char>(uint64_t{field->size()} >> shift));
    }
    text += *field;
  }
  BlockKey root;
  unsigned int size = 0;
  WEIR_CHECK(HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                  reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                  root.bytes.data(), &size) != nullptr);
  WEIR_CHECK(size == root.bytes.size());
  return root;
}

}  // namespace weir::kv
