// SPDX-License-Identifier: Apache-2.0
//
// The states of an answer's text and the markers that lead from one to the next, as data. Internal
// to the stream parser. Values, built once per answer; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "codec/stream/stream_parser.h"

namespace weir::codec {

enum class Stage : uint8_t {
  kReasoning,
  kContent,
  kRaw,  // text completion: no markup
  // An answer that is to be JSON
  kJsonLead,  // words before it
  kJson,
  kJsonTail,  // words after its fence
  // DSML, the tool calls of V3.2 and later
  kCalls,        // between invokes
  kCallName,     // inside name="…"
  kArguments,    // between parameters; the first one opens the object
  kKey,          // inside a parameter's name="…"
  kValueType,    // between the key and the value
  kTextValue,    // becomes a JSON string
  kJsonValue,    // passed on
  // tool tokens of V3 and V3.1
  kTokenCalls,   // between calls
  kTokenType,    // V3: "function"
  kTokenName,
  kTokenFence,   // V3: up to the opening fence's end
  kTokenArguments,
  kDone,  // whatever follows is not part of the answer
};
inline constexpr size_t kStageCount = 19;

// What becomes of text that no marker claims.
enum class Unclaimed : uint8_t {
  kDrop,
  kReasoning,
  kContent,
  kSpace,      // shown as one space a stage
  kName,       // collected until the name is complete
  kArguments,  // passed on as a fragment of JSON
  kArgumentsEscaped,  // ditto, as the inside of a JSON string
};

enum class Step : uint8_t {
  kNothing,
  kStop,          // a stop string: the answer ends here
  kShow,          // the marker itself is content
  kBeginCall,     // the collected name is complete
  kOpenKey,       // `{"` or `, "`
  kCloseKey,      // `": `
  kOpenText,      // `"`
  kCloseText,     // `"`
  kCloseCall,     // `}` or `{}`
};

struct Marker {
  std::string literal;   // not empty; holds no newline if it eats them
  bool eats_newlines = false;  // newlines right before it belong to it
  Stage next = Stage::kContent;
  Step step = Step::kNothing;
  bool trims = false;  // newlines right after it are dropped
  std::vector<uint32_t> fallback;  // longest proper border of each prefix (Knuth-Morris-Pratt)
};

struct StageSpec {
  Unclaimed unclaimed = Unclaimed::kDrop;
  std::vector<Marker> markers;  // earlier ones win ties
  bool eats_newlines = false;   // any marker does
  std::array<bool, 256> starts{};  // bytes that need a look while no marker is under way
};

using StageTable = std::array<StageSpec, kStageCount>;

StageTable BuildStages(const StreamParserOptions& options);
Stage FirstStage(const StreamParserOptions& options);

}  // namespace weir::codec
