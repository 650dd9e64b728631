// SPDX-License-Identifier: Apache-2.0
#include "base/config/load.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <sstream>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <yaml-cpp/yaml.h>

#include "base/stdx/planted.h"

extern char** environ;

namespace weir {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr size_t kFileBytesMax = 16u << 20;
constexpr int kDepthMax = 32;

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  }
  return out;
}

// Single edits (one character more, less or other; neighbours swapped) from a to b.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1,
                          d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

// " (did you mean X?)" when a candidate is close enough to be what was meant.
std::string Suggestion(std::string_view wrong, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = std::max<size_t>(1, wrong.size() / 3) + 1;
  if (wrong.size() > 100) return "";
  for (const std::string& candidate : candidates) {
    const size_t distance = EditDistance(Lower(wrong), Lower(candidate));
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best.empty() ? "" : " (did you mean " + best + "?)";
}

std::vector<std::string> FieldNames(const Descriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->name());
  return names;
}

// Names of an enum's values as people write them: without the enum's own prefix, lower case.
std::string ShortName(const EnumDescriptor& type, const EnumValueDescriptor& value) {
  std::string prefix;
  for (const char c : type.name()) {
    if (c >= 'A' && c <= 'Z' && !prefix.empty()) prefix.push_back('_');
    prefix.push_back(c);
  }
  prefix = Lower(prefix) + "_";
  const std::string name = Lower(value.name());
  return name.compare(0, prefix.size(), prefix) == 0 ? name.substr(prefix.size()) : name;
}

// ---- One scalar ----

template <class T>
std::optional<T> ParseInteger(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> ParseDouble(const std::string& text) {
  if (text.empty()) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end != text.c_str() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<bool> ParseBool(std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

const EnumValueDescriptor* ParseEnum(const EnumDescriptor& type, std::string_view text) {
  for (int i = 0; i < type.value_count(); ++i) {
    const EnumValueDescriptor* value = type.value(i);
    if (Lower(text) == Lower(value->name()) || Lower(text) == ShortName(type, *value)) return value;
  }
  return nullptr;
}

// What a field takes, for messages.
std::string Expected(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_INT64:
      return "an integer";
    case FieldDescriptor::CPPTYPE_UINT32:
    case FieldDescriptor::CPPTYPE_UINT64:
      return "a non-negative integer";
    case FieldDescriptor::CPPTYPE_DOUBLE:
    case FieldDescriptor::CPPTYPE_FLOAT:
      return "a number";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    case FieldDescriptor::CPPTYPE_STRING:
      return "a string";
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return "a map";
    case FieldDescriptor::CPPTYPE_ENUM: {
      std::string names;
      const EnumDescriptor& type = *field.enum_type();
      for (int i = 0; i < type.value_count(); ++i) {
        const std::string name = ShortName(type, *type.value(i));
        if (name != "unspecified") names += (names.empty() ? "one of " : ", ") + name;
      }
      return names;
    }
  }
  return "something else";
}

// Sets or, for a repeated field, appends. False when `text` is not of the field's type.
bool StoreScalar(const FieldDescriptor& field, const std::string& text, Message* message) {
  const Reflection& to = *message->GetReflection();
  const auto store = [&](const auto& value, auto set, auto add) {
    if (!value) return false;
    if (field.is_repeated()) {
      (to.*add)(message, &field, *value);
    } else {
      (to.*set)(message, &field, *value);
    }
    return true;
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return store(ParseInteger<int32_t>(text), &Reflection::SetInt32, &Reflection::AddInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return store(ParseInteger<int64_t>(text), &Reflection::SetInt64, &Reflection::AddInt64);
    case FieldDescriptor::CPPTYPE_UINT32:
      return store(ParseInteger<uint32_t>(text), &Reflection::SetUInt32, &Reflection::AddUInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return store(ParseInteger<uint64_t>(text), &Reflection::SetUInt64, &Reflection::AddUInt64);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return store(ParseDouble(text), &Reflection::SetDouble, &Reflection::AddDouble);
    case FieldDescriptor::CPPTYPE_FLOAT: {
      std::optional<float> value;
      if (const auto parsed = ParseDouble(text)) value = static_cast<float>(*parsed);
      return store(value, &Reflection::SetFloat, &Reflection::AddFloat);
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      return store(ParseBool(text), &Reflection::SetBool, &Reflection::AddBool);
    case FieldDescriptor::CPPTYPE_STRING:
      if (field.is_repeated()) {
        to.AddString(message, &field, text);
      } else {
        to.SetString(message, &field, text);
      }
      return true;
    case FieldDescriptor::CPPTYPE_ENUM: {
      const EnumValueDescriptor* value = ParseEnum(*field.enum_type(), text);
      if (!value) return false;
      if (field.is_repeated()) {
        to.AddEnum(message, &field, value);
      } else {
        to.SetEnum(message, &field, value);
      }
      return true;
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return false;
  }
  return false;
}

// ---- A YAML tree into a message ----

class TreeReader {
 public:
  enum class Lines { kShown, kNone };  // an overlay has no lines worth naming
  TreeReader(std::string_view source, Lines lines, ConfigProblems* problems)
      : source_(source), lines_(lines), problems_(problems) {}

  void ReadMessage(const YAML::Node& node, const std::string& path, Message* message, int depth);

 private:
  void ReadField(const YAML::Node& node, const std::string& path, const FieldDescriptor& field,
                 Message* message, int depth);
  void ReadMap(const YAML::Node& node, const std::string& path, const FieldDescriptor& field,
               Message* message, int depth);
  void ReadOne(const YAML::Node& node, const std::string& path, const FieldDescriptor& field,
               Message* message, int depth);
  void Problem(const YAML::Node& node, const std::string& path, const std::string& what) {
    const YAML::Mark mark = node.Mark();
    const bool shown = lines_ == Lines::kShown && !mark.is_null();
    const std::string line = shown ? ":" + std::to_string(mark.line + 1) : "";
    problems_->AddLine(source_ + line + ": " + path + ": " + what);
  }

  const std::string source_;
  const Lines lines_;
  ConfigProblems* const problems_;
};

std::string Join(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + "." + key;
}

void TreeReader::ReadMessage(const YAML::Node& node, const std::string& path, Message* message,
                             int depth) {
  if (node.IsNull()) return;  // "section:" with nothing below keeps the defaults
  if (!node.IsMap()) return Problem(node, path.empty() ? "(top)" : path, "expected a map");
  if (depth > kDepthMax) return Problem(node, path, "is nested too deeply");
  const Descriptor& type = *message->GetDescriptor();
  std::set<std::string> seen;
  for (const auto& entry : node) {
    const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "(not a name)";
    const std::string here = Join(path, key);
    const FieldDescriptor* field = type.FindFieldByName(key);
    if (!field) {
      Problem(entry.first, here, "unknown key" + Suggestion(key, FieldNames(type)));
    } else if (!seen.insert(key).second) {
      Problem(entry.first, here, "is given twice");
    } else {
      ReadField(entry.second, here, *field, message, depth);
    }
  }
}

void TreeReader::ReadField(const YAML::Node& node, const std::string& path,
                           const FieldDescriptor& field, Message* message, int depth) {
  if (node.IsNull()) {
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE || field.is_repeated()) return;
    return Problem(node, path, "has no value; expected " + Expected(field));
  }
  if (field.is_map()) return ReadMap(node, path, field, message, depth);
  if (!field.is_repeated()) return ReadOne(node, path, field, message, depth);
  if (!node.IsSequence()) return Problem(node, path, "expected a list, each item " + Expected(field));
  // A list replaces what an earlier source gave.
  message->GetReflection()->ClearField(message, &field);
  for (size_t i = 0; i < node.size(); ++i) {
    ReadOne(node[i], path + "[" + std::to_string(i) + "]", field, message, depth);
  }
}

void TreeReader::ReadMap(const YAML::Node& node, const std::string& path,
                         const FieldDescriptor& field, Message* message, int depth) {
  if (!node.IsMap()) return Problem(node, path, "expected a map");
  const FieldDescriptor& key = *field.message_type()->map_key();
  const FieldDescriptor& value = *field.message_type()->map_value();
  message->GetReflection()->ClearField(message, &field);
  for (const auto& item : node) {
    const std::string name = item.first.IsScalar() ? item.first.Scalar() : "";
    Message* entry = message->GetReflection()->AddMessage(message, &field);
    if (!StoreScalar(key, name, entry)) {
      Problem(item.first, Join(path, name), "is not a key of this map");
      continue;
    }
    ReadOne(item.second, Join(path, name), value, entry, depth);
  }
}

void TreeReader::ReadOne(const YAML::Node& node, const std::string& path,
                         const FieldDescriptor& field, Message* message, int depth) {
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    const Reflection& to = *message->GetReflection();
    Message* child = field.is_repeated() ? to.AddMessage(message, &field)
                                         : to.MutableMessage(message, &field);
    return ReadMessage(node, path, child, depth + 1);
  }
  // A quoted "5" is a string, not a number: YAML marks it with the tag "!".
  const bool quoted = node.IsScalar() && node.Tag() == "!";
  const bool is_string = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING ||
                         field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM;
  if (node.IsScalar() && (is_string || !quoted) && StoreScalar(field, node.Scalar(), message)) return;
  std::string found = node.IsScalar() ? "\"" + node.Scalar().substr(0, 60) + "\""
                      : node.IsMap()  ? "a map"
                                      : "a list";
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM && node.IsScalar()) {
    std::vector<std::string> names;
    for (int i = 0; i < field.enum_type()->value_count(); ++i) {
      names.push_back(ShortName(*field.enum_type(), *field.enum_type()->value(i)));
    }
    found += Suggestion(node.Scalar(), names);
  }
  Problem(node, path, "expected " + Expected(field) + ", found " + found);
}

// ---- Overlays ----

// Applies one "a.b.c" = value as if the file had said so.
void ApplyOverlay(const std::string& source, const std::vector<std::string>& keys,
                  const std::string& value, Message* config, ConfigProblems* problems) {
  YAML::Node root;
  try {
    // The value is YAML, so that lists and maps can be given; but a plain string stays as it is,
    // and only a string field may hold what YAML cannot parse.
    YAML::Node node;
    try {
      node = YAML::Load(value);
    } catch (const YAML::Exception&) {
      node = YAML::Node(value);
    }
    if (node.IsNull() || !node.IsDefined()) node = YAML::Node(value);
    for (size_t i = keys.size(); i-- > 0;) {
      YAML::Node parent(YAML::NodeType::Map);
      parent[keys[i]] = node;
      node = parent;
    }
    root = node;
  } catch (const YAML::Exception& e) {
    return problems->AddLine(source + ": " + e.what());
  }
  // A string field takes the text verbatim, even where YAML sees a number, a list or a comment.
  const Descriptor* type = config->GetDescriptor();
  Message* message = config;
  for (size_t i = 0; i < keys.size() && type; ++i) {
    const FieldDescriptor* field = type->FindFieldByName(keys[i]);
    if (!field || field->is_repeated()) break;
    if (i + 1 == keys.size() && field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      message->GetReflection()->SetString(message, field, value);
      return;
    }
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) break;
    message = message->GetReflection()->MutableMessage(message, field);
    type = field->message_type();
  }
  TreeReader(source, TreeReader::Lines::kNone, problems).ReadMessage(root, "", config, 0);
}

std::vector<std::string> Split(std::string_view text, std::string_view separator) {
  std::vector<std::string> parts;
  size_t at = 0;
  for (;;) {
    const size_t next = text.find(separator, at);
    parts.emplace_back(text.substr(at, next == std::string_view::npos ? next : next - at));
    if (next == std::string_view::npos) return parts;
    at = next + separator.size();
  }
}

absl::Status Finish(const ConfigSources& sources, Message* config, ConfigProblems* problems) {
  for (const auto& [name, value] : sources.environment) {
    ApplyOverlay(name, Split(Lower(std::string_view(name).substr(5)), "__"), value, config, problems);
  }
  for (const std::string& set : sources.sets) {
    const size_t equals = set.find('=');
    if (equals == std::string::npos || equals == 0) {
      problems->AddLine("--set " + set + ": expected section.key=value");
      continue;
    }
    ApplyOverlay("--set " + set.substr(0, equals), Split(set.substr(0, equals), "."),
                 set.substr(equals + 1), config, problems);
  }
  // Ranges of a configuration that did not parse would only repeat its problems.
  if (problems->empty() && sources.validate) sources.validate(*config, problems);
  if (problems->empty()) return absl::OkStatus();
  std::string all;
  for (const std::string& line : problems->lines()) all += (all.empty() ? "" : "\n") + line;
  return Error(Reason::kBadField, all, "config");
}

void ReadText(std::string_view text, std::string_view name, Message* config,
              ConfigProblems* problems) {
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(std::string(text));
    if (documents.size() > 1) {
      return problems->AddLine(std::string(name) + ": holds more than one document");
    }
    if (documents.empty()) return;
    TreeReader(name, TreeReader::Lines::kShown, problems).ReadMessage(documents[0], "", config, 0);
  } catch (const YAML::Exception& e) {
    problems->AddLine(std::string(name) + ":" + std::to_string(e.mark.line + 1) + ": " + e.msg);
  }
}

// ---- Dump ----

std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out.push_back('\\');
    if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\x%02x", c);
      out += escape;
    } else {
      out.push_back(c);
    }
  }
  return out + "\"";
}

// Shortest text that reads back as the same number.
std::string NumberText(double value) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof(text), value);
  return std::string(text, end);
}

// `index` < 0 for a singular field.
std::string ScalarText(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& from = *message.GetReflection();
  const bool one = index < 0;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return std::to_string(one ? from.GetInt32(message, &field)
                                : from.GetRepeatedInt32(message, &field, index));
    case FieldDescriptor::CPPTYPE_INT64:
      return std::to_string(one ? from.GetInt64(message, &field)
                                : from.GetRepeatedInt64(message, &field, index));
    case FieldDescriptor::CPPTYPE_UINT32:
      return std::to_string(one ? from.GetUInt32(message, &field)
                                : from.GetRepeatedUInt32(message, &field, index));
    case FieldDescriptor::CPPTYPE_UINT64:
      return std::to_string(one ? from.GetUInt64(message, &field)
                                : from.GetRepeatedUInt64(message, &field, index));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return NumberText(one ? from.GetDouble(message, &field)
                            : from.GetRepeatedDouble(message, &field, index));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return NumberText(one ? from.GetFloat(message, &field)
                            : from.GetRepeatedFloat(message, &field, index));
    case FieldDescriptor::CPPTYPE_BOOL:
      return (one ? from.GetBool(message, &field) : from.GetRepeatedBool(message, &field, index))
                 ? "true"
                 : "false";
    case FieldDescriptor::CPPTYPE_STRING:
      return Quoted(one ? from.GetString(message, &field)
                        : from.GetRepeatedString(message, &field, index));
    case FieldDescriptor::CPPTYPE_ENUM:
      return ShortName(*field.enum_type(), one ? *from.GetEnum(message, &field)
                                               : *from.GetRepeatedEnum(message, &field, index));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      break;
  }
  return "";
}

void Dump(const Message& message, const std::string& indent, std::string* out);

void DumpRepeated(const Message& message, const FieldDescriptor& field, const std::string& indent,
                  std::string* out) {
  const Reflection& from = *message.GetReflection();
  const int size = from.FieldSize(message, &field);
  if (size == 0) {
    out->append(field.is_map() ? " {}\n" : " []\n");
    return;
  }
  out->push_back('\n');
  for (int i = 0; i < size; ++i) {
    if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      out->append(indent + "  - " + ScalarText(message, field, i) + "\n");
      continue;
    }
    const Message& item = from.GetRepeatedMessage(message, &field, i);
    if (!field.is_map()) {
      std::string block;
      Dump(item, indent + "    ", &block);
      if (block.empty()) block = indent + "    {}\n";
      block.replace(indent.size() + 2, 1, "-");
      out->append(block);
      continue;
    }
    const FieldDescriptor& value = *field.message_type()->map_value();
    out->append(indent + "  " + ScalarText(item, *field.message_type()->map_key(), -1) + ":");
    if (value.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      out->push_back('\n');
      Dump(item.GetReflection()->GetMessage(item, &value), indent + "    ", out);
    } else {
      out->append(" " + ScalarText(item, value, -1) + "\n");
    }
  }
}

void Dump(const Message& message, const std::string& indent, std::string* out) {
  const Descriptor& type = *message.GetDescriptor();
  const Reflection& from = *message.GetReflection();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.is_repeated()) {
      out->append(indent + field.name() + ":");
      DumpRepeated(message, field, indent, out);
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      // An absent section is a statement ("this role does not run here"), so it is not shown.
      if (!from.HasField(message, &field)) continue;
      out->append(indent + field.name() + ":\n");
      Dump(from.GetMessage(message, &field), indent + "  ", out);
    } else {
      if (field.has_presence() && !from.HasField(message, &field)) continue;
      out->append(indent + field.name() + ": " + ScalarText(message, field, -1) + "\n");
    }
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> EnvironmentOverlays() {
  std::vector<std::pair<std::string, std::string>> overlays;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (text.substr(0, 5) != "WEIR_" || equals == std::string_view::npos) continue;
    const std::string_view name = text.substr(0, equals);
    if (name.find("__") == std::string_view::npos) continue;
    overlays.emplace_back(name, text.substr(equals + 1));
  }
  std::sort(overlays.begin(), overlays.end());
  return overlays;
}

std::string EnvironmentValue(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

absl::Status LoadConfig(const ConfigSources& sources, Message* config) {
  if (sources.file.empty()) return LoadConfigText("", "(no file)", sources, config);
  std::ifstream file(sources.file, std::ios::binary);
  std::string text(kFileBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) {
    return Error(Reason::kBadField, "cannot read " + sources.file + ": " + std::strerror(errno),
                 "config");
  }
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kFileBytesMax) {
    return Error(Reason::kBadField, sources.file + " is larger than 16 MiB", "config");
  }
  return LoadConfigText(text, sources.file, sources, config);
}

absl::Status LoadConfigText(std::string_view text, std::string_view name,
                            const ConfigSources& sources, Message* config) {
  ConfigProblems problems;
  ReadText(text, name, config, &problems);
  return Finish(sources, config, &problems);
}

std::string DumpConfig(const Message& config) {
  std::string out;
  Dump(config, "", &out);
  return out;
}

absl::Status ArmPlanted(std::string_view value) {
  if (value.empty() || value == "0") return absl::OkStatus();
#ifdef WEIR_PLANTED
  const auto number = ParseInteger<int>(value);
  if (number && *number > 0 && *number <= static_cast<int>(Planted::kLeakMemory)) {
    g_planted = *number;
    std::fprintf(stderr,
                 "weir: WARNING: planted bug %d is armed; this process misbehaves on purpose and "
                 "must serve nobody but tests\n",
                 *number);
    return absl::OkStatus();
  }
  return Error(Reason::kBadField, "no planted bug has the number " + std::string(value), "planted");
#else
  return Error(Reason::kBadField, "this build has no planted bugs", "planted");
#endif
}

}  // namespace weir
