// SPDX-License-Identifier: Apache-2.0
//
// Configuration: a YAML or JSON file becomes a protobuf message, strictly. An unknown key, a wrong
// type or a value out of range refuses the whole, and every problem is listed at once with its file
// and line and, where one is near, the key that was probably meant. Overlays win in the order
// file < WEIR_SECTION__KEY environment < --set section.key=value. This is the only place that reads
// the environment. For start-up and reload on the main thread; it reads one file and blocks on that.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/stdx/status.h"

namespace google::protobuf {
class Message;
}

namespace weir {

// Collects what is wrong; each line is one sentence that names the key.
class ConfigProblems {
 public:
  void Add(std::string_view key, std::string_view what) {
    lines_.push_back(std::string(key) + ": " + std::string(what));
  }
  void AddLine(std::string line) { lines_.push_back(std::move(line)); }
  bool empty() const { return lines_.empty(); }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
};

struct ConfigSources {
  std::string file;  // empty for none
  // Pairs (name, value); fill with EnvironmentOverlays() in a program, by hand in tests.
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<std::string> sets;  // "section.key=value"
  // Checks ranges and contradictions of the merged result. May be empty.
  std::function<void(const google::protobuf::Message& config, ConfigProblems* problems)> validate;
};

// The WEIR_A__B=... variables of this process, sorted by name; names without "__" (WEIR_PLANTED,
// WEIR_ISA) are not overlays and left out.
std::vector<std::pair<std::string, std::string>> EnvironmentOverlays();

// The value of a variable outside the overlay scheme, or empty. For names that config/ documents.
std::string EnvironmentValue(const char* name);

// Merges the sources over the defaults already in *config. kBadField with all problems, one a line;
// *config is then unspecified. Repeated scalars take a YAML list, repeated messages a list of maps,
// string-keyed maps a map. Enums take their value's name, with or without the enum's own prefix, in
// any case.
absl::Status LoadConfig(const ConfigSources& sources, google::protobuf::Message* config);

// As LoadConfig with `text` in place of the file; `name` is what problems call it.
absl::Status LoadConfigText(std::string_view text, std::string_view name,
                            const ConfigSources& sources, google::protobuf::Message* config);

// The effective configuration as YAML, every scalar field shown whether set or not.
std::string DumpConfig(const google::protobuf::Message& config);

// Arms the planted bug that `value` (a number or empty) names, for WEIR_PLANTED and --planted;
// before threads start. Says so on standard error. kBadField for an unknown number, or when this
// build has none.
absl::Status ArmPlanted(std::string_view value);

}  // namespace weir
