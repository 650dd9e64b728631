// SPDX-License-Identifier: Apache-2.0
//
// Configuration: a YAML or JSON file into a protobuf message, then overlays; the message is the
// schema. Called at start and on reload by the main thread; it reads the file and the environment,
// and is the only place that does. Every problem found is told at once, each with the file's line or
// the overlay that caused it: unknown keys (with the name that was probably meant), keys given twice,
// wrong types, numbers out of range, and what the caller's own check finds.
//
// Order, later wins: file < WEIR_SECTION__KEY=value < section.key=value from --set. Values are YAML.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/stdx/status.h"

namespace google::protobuf {
class Message;
}

namespace weir {

// An option of the command line that stands for a setting; its value is text, not YAML.
struct ConfigFlag {
  std::string name;  // "--model"
  std::string path;  // "model.path"
  std::string value;
};

struct ConfigSources {
  std::string file;               // empty: none
  std::vector<std::string> sets;  // "section.key=value"
  std::vector<ConfigFlag> flags;  // win over all others
  bool environment = true;
};

// Appends one sentence per problem, each beginning with the setting's path; where that setting was
// read from is put before it. Runs on the settings even where some had problems already; what it
// then says of those is dropped.
using ConfigCheck = std::function<void(std::vector<std::string>* problems)>;

// Fills *out, which starts as its defaults, and then runs `check` (may be empty). kBadField with all
// problems, a line each.
absl::Status LoadConfig(const ConfigSources& sources, const ConfigCheck& check,
                        google::protobuf::Message* out);

// The message as YAML that LoadConfig reads back to the same: every setting of the sections there
// are.
std::string DumpConfig(const google::protobuf::Message& config);

// The paths of the settings in which two messages of one type differ.
std::vector<std::string> ChangedSettings(const google::protobuf::Message& before,
                                         const google::protobuf::Message& after);

// Arms the planted bug named by WEIR_PLANTED, if any, and says so loudly on stderr. Before threads.
void ArmPlantedFromEnvironment();

}  // namespace weir
