// SPDX-License-Identifier: Apache-2.0
//
// What the templates of V3.2, V4 and V4.1 share: tools as lines of JSON, and the blocks of calls in
// the models' own markup. Stateless functions, any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "codec/conversation/conversation.h"
#include "codec/template/control_tokens.h"
#include "codec/template/template.h"

namespace weir::codec {

// Names of the tags, after the DSML mark.
struct DsmlTags {
  std::string_view calls;
  std::string_view invoke;
  std::string_view parameter;
};

// One JSON object a line, as prompts quote them; no newline at the end.
void AddToolLines(const std::vector<ToolDef>& tools, Segments* out);

// The blank line and the tag that open a block of calls, and a whole block.
void OpenDsmlCalls(const ControlTokens& tokens, const DsmlTags& tags, Segments* out);
void AddDsmlCalls(const ControlTokens& tokens, const DsmlTags& tags,
                  const std::vector<ToolCall>& calls, Segments* out);

// Within each run of user and tool messages the results take the order of the calls before it.
void OrderResults(std::vector<Turn>* turns);

// The leading system messages as one, which also stands where tools or a format have to be told;
// empty ones vanish, later ones stay. Where there is something to join, `joined` becomes it.
void JoinLeadingSystem(const Conversation& conversation, std::vector<Turn>* turns,
                       Message* joined);

bool IsTurnOfUser(const Turn& turn);  // a user's words or a tool's result

// Where the last message of a user is; -1 if there is none.
ptrdiff_t LastUser(const std::vector<Turn>& turns);

// Images are not for text templates.
}  // namespace weir::codec
