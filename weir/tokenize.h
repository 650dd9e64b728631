// SPDX-License-Identifier: Apache-2.0
//
// What `weir tokenize --diff` says, apart from files, so that it can be tested. Pure.
#pragma once

#include <span>
#include <string>

#include "base/stdx/ids.h"
#include "codec/token/tokenizer.h"

namespace weir {

// Where two prompts part, in words and with the text around it; a line that they are the same where
// they are.
std::string DescribeParting(const codec::Tokenizer& tokenizer, std::span<const TokenId> a,
                            std::span<const TokenId> b);

}  // namespace weir
