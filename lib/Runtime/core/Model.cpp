// SPDX-License-Identifier: Apache-2.0
// Loading emitted libraries and checking their tables.
#include "core/Model.h"

#include "core/Device.h"
#include "core/Features.h"
#include "core/Indices.h"
#include "core/Types.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <set>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace mpt::rt;

namespace mpt::rt {

Model::~Model() {
  for (int file : {weights, form})
    if (file >= 0)
      close(file);
}

std::string Model::weightsFile() const { return directory + "/" + desc->name + ".safetensors"; }

std::string Model::templateFile() const { return directory + "/" + desc->name + ".template"; }

const mpt_function_desc *Model::function(const char *name) const {
  std::string known;
  if (step && name && strcmp(name, ReplicatedStep::step) == 0)
    return &step->desc();
  for (int64_t i = 0; i < desc->num_functions; ++i) {
    if (name && strcmp(desc->functions[i].name, name) == 0)
      return &desc->functions[i];
    known += (i ? ", " : "") + std::string(desc->functions[i].name);
  }
  fail(MPT_NOT_FOUND, "model '%s' has no function '%s' (it has: %s)", desc->name, name ? name : "", known.c_str());
  return nullptr;
}

std::string describe(int64_t dtype, int64_t rank, const int64_t *shape) {
  std::string text = std::string(nameOf(dtype)) + "[";
  for (int64_t i = 0; i < rank; ++i)
    text += (i ? "," : "") + std::to_string(shape[i]);
  return text + "]";
}

} // namespace mpt::rt

namespace {

/// Refuses tables that would make the runtime read or write outside its blocks.
mpt_status checkTable(const mpt_module_desc &m, const mpt_tensor_desc *table, int64_t count, bool state) {
  std::set<std::string> names;
  for (int64_t i = 0; i < count; ++i) {
    const mpt_tensor_desc &t = table[i];
    int64_t bytes = sizeOf(t.dtype);
    bool ok = bytes > 0 && t.rank >= 0 && t.name && names.insert(t.name).second;
    for (int64_t d = 0; ok && d < t.rank; ++d)
      ok = t.shape[d] >= 0 && !__builtin_mul_overflow(bytes, t.shape[d], &bytes);
    ok = ok && bytes == t.bytes;
    if (state)
      ok = ok && t.offset >= 0 && t.offset % 64 == 0 && t.offset <= m.state_bytes && bytes <= m.state_bytes - t.offset;
    if (!ok)
      return fail(MPT_BAD_FILE, "model '%s': tensor '%s' of its tables makes no sense", m.name,
                  t.name ? t.name : "(no name)");
  }
  return MPT_OK;
}

mpt_status checkModule(const mpt_module_desc &m, const char *source) {
  if (m.abi_version != MPT_ABI_VERSION)
    return fail(MPT_INCOMPATIBLE, "%s: expected ABI version %d, got %lld: compile the model again with this release",
                source, MPT_ABI_VERSION, static_cast<long long>(m.abi_version));
  if (strcmp(m.target ? m.target : "", targetName) != 0)
    return fail(MPT_INCOMPATIBLE, "%s: compiled for %s, and this runtime runs models for %s: use %s", source,
                m.target ? m.target : "an unknown target", targetName,
                strcmp(targetName, "cpu") == 0 ? "libmpt_rt_cuda" : "libmpt_rt");
  if (mpt_status status = checkMachine(m, source))
    return status;
  if (mpt_status status = checkTable(m, m.state, m.num_state, true))
    return status;
  for (int64_t i = 0; i < m.num_functions; ++i) {
    const mpt_function_desc &f = m.functions[i];
    if (mpt_status status = checkTable(m, f.inputs, f.num_inputs, false))
      return status;
    if (mpt_status status = checkTable(m, f.outputs, f.num_outputs, false))
      return status;
    if (mpt_status status = checkIndexTable(m, f))
      return status;
  }
  return MPT_OK;
}

/// Reads the manifest, and finds the sizes of the library's functions, and the parts of a step with replicas.
mpt_status findStep(Model &model) {
  std::string error;
  if (!model.desc->manifest || !parseJson(model.desc->manifest, model.manifest, error))
    model.manifest = Json();
  model.sizes.read(*model.desc, model.manifest);
  if (mpt_status status = readReplicas(*model.desc, model.manifest, model.replicas))
    return status;
  if (model.replicas)
    model.step =
        std::make_unique<GlobalStep>(*model.desc, *model.replicas, std::max<int64_t>(1, model.replicas->count));
  return MPT_OK;
}

/// The one lib*.so of a directory.
mpt_status findLibrary(const std::string &directory, std::string &out) {
  DIR *dir = opendir(directory.c_str());
  if (!dir)
    return fail(MPT_IO_ERROR, "cannot read '%s': %s", directory.c_str(), strerror(errno));
  std::vector<std::string> found;
  while (dirent *entry = readdir(dir)) {
    std::string name = entry->d_name;
    if (name.size() > 6 && name.rfind("lib", 0) == 0 && name.compare(name.size() - 3, 3, ".so") == 0)
      found.push_back(name);
  }
  closedir(dir);
  std::sort(found.begin(), found.end());
  if (found.size() > 1)
    return fail(MPT_NOT_FOUND, "'%s': expected one lib*.so, got %zu: load one by its path, such as %s/%s",
                directory.c_str(), found.size(), directory.c_str(), found.front().c_str());
  if (found.empty())
    return fail(MPT_NOT_FOUND, "'%s': expected one lib*.so, got 0", directory.c_str());
  out = directory + "/" + found.front();
  return MPT_OK;
}

/// Keeps a compiler from exchanging the files of a folder one by one, for as long as this object lives. Best effort:
/// not every file system has locks.
class FolderLock {
  int fd;

public:
  explicit FolderLock(const std::string &folder) : fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (fd >= 0)
      flock(fd, LOCK_SH);
  }
  FolderLock(const FolderLock &) = delete;
  ~FolderLock() {
    if (fd < 0)
      return;
    flock(fd, LOCK_UN); // a child that was forked meanwhile has the descriptor too
    close(fd);
  }
};

mpt_status load(const char *path, mpt_model **out) {
  struct stat info;
  if (stat(path, &info) != 0)
    return fail(errno == ENOENT ? MPT_NOT_FOUND : MPT_IO_ERROR, "cannot open '%s': %s", path, strerror(errno));
  std::string file = path;
  if (S_ISDIR(info.st_mode))
    if (mpt_status status = findLibrary(path, file))
      return status;
  char real[PATH_MAX];
  if (!realpath(file.c_str(), real))
    return fail(MPT_IO_ERROR, "cannot open '%s': %s", file.c_str(), strerror(errno));
  auto model = std::make_shared<Model>();
  model->directory = std::string(real).substr(0, std::string(real).rfind('/'));
  FolderLock lock(model->directory);
  if (mpt_status status = model->library.open(real))
    return status;
  model->desc = static_cast<const mpt_module_desc *>(model->library.symbol("mpt_module"));
  if (!model->desc)
    return fail(MPT_BAD_FILE, "'%s' is no compiled model: it has no symbol mpt_module", real);
  if (mpt_status status = checkModule(*model->desc, real))
    return status;
  if (mpt_status status = findStep(*model))
    return status;
  model->weights = open(model->weightsFile().c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  model->form = open(model->templateFile().c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  *out = new mpt_model{std::move(model)};
  return MPT_OK;
}

mpt_status tensorAt(const mpt_model *model, const char *function, int64_t i, bool inputs, mpt_tensor *out) {
  return guarded([&] {
    if (!model || !out)
      return fail(MPT_INVALID_ARGUMENT, "expected a model and a place for the result, got NULL");
    const mpt_function_desc *f = model->model->function(function);
    if (!f)
      return MPT_NOT_FOUND;
    int64_t count = inputs ? f->num_inputs : f->num_outputs;
    if (i < 0 || i >= count)
      return fail(MPT_NOT_FOUND, "function '%s' has %lld %s", f->name, static_cast<long long>(count),
                  inputs ? "inputs" : "outputs");
    *out = viewOf((inputs ? f->inputs : f->outputs)[i], nullptr);
    return MPT_OK;
  });
}

} // namespace

extern "C" {

mpt_status mpt_model_load(const char *path, mpt_model **out) {
  if (!path || !out)
    return fail(MPT_INVALID_ARGUMENT, "expected a path and a place for the result, got NULL");
  *out = nullptr;
  return guarded([&] { return load(path, out); });
}

mpt_status mpt_model_from_desc(const mpt_module_desc *desc, const char *directory, mpt_model **out) {
  if (!desc || !out)
    return fail(MPT_INVALID_ARGUMENT, "expected a module and a place for the result, got NULL");
  *out = nullptr;
  return guarded([&] {
    if (mpt_status status = checkModule(*desc, "linked model"))
      return status;
    auto model = std::make_shared<Model>();
    model->desc = desc;
    model->directory = directory ? directory : ".";
    if (mpt_status status = findStep(*model))
      return status;
    *out = new mpt_model{std::move(model)};
    return MPT_OK;
  });
}

void mpt_model_destroy(mpt_model *model) { delete model; }

const char *mpt_model_name(const mpt_model *model) { return model ? model->model->desc->name : ""; }
const char *mpt_model_manifest(const mpt_model *model) {
  return model && model->model->desc->manifest ? model->model->desc->manifest : "{}";
}

const char *mpt_model_target(const mpt_model *model) { return model ? model->model->desc->target : ""; }

mpt_status mpt_model_input(const mpt_model *model, const char *function, int64_t i, mpt_tensor *out) {
  return tensorAt(model, function, i, true, out);
}
mpt_status mpt_model_output(const mpt_model *model, const char *function, int64_t i, mpt_tensor *out) {
  return tensorAt(model, function, i, false, out);
}

} // extern "C"
