// SPDX-License-Identifier: Apache-2.0
// Saving the trained model as the .onnx file that it was compiled from.
#include "core/AtomicFile.h"
#include "core/Error.h"
#include "core/SafeTensors.h"
#include "core/TemplateFiller.h"
#include "core/Trainer.h"
#include "core/Types.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace mpt::rt;

namespace {

/// The state of a trainer. Reading a tensor that ranks divide is collective, and brings all of it.
class TrainerSource : public TensorSource {
public:
  explicit TrainerSource(mpt_trainer &trainer) : trainer(trainer) {}

  mpt_status describe(const std::string &name, int64_t &dtype, int64_t &count) override {
    auto found = trainer.index.find(name);
    if (found == trainer.index.end())
      return fail(MPT_NOT_FOUND, "model '%s' has no state '%s', which its template names: compile the model again",
                  trainer.model->desc->name, name.c_str());
    dtype = trainer.tensor(found->second).dtype;
    count = elementsOf(trainer.shards.whole(found->second));
    return MPT_OK;
  }

  mpt_status read(const std::string &name, int64_t begin, int64_t count, void *out) override {
    const int64_t i = trainer.index.find(name)->second, size = sizeOf(trainer.tensor(i).dtype);
    if (!trainer.shards.divides(i)) {
      Transfer part{out, trainer.at(i) + begin * size, count * size};
      return trainer.device->download(&part, 1);
    }
    if (begin == 0) {
      whole.resize(static_cast<size_t>(trainer.shards.whole(i).bytes));
      if (mpt_status status = mpt_trainer_read(&trainer, i, whole.data(), static_cast<int64_t>(whole.size())))
        return status;
    }
    memcpy(out, whole.data() + begin * size, static_cast<size_t>(count * size));
    return MPT_OK;
  }

private:
  mpt_trainer &trainer;
  std::vector<uint8_t> whole;
};

/// A saved state.
class FileSource : public TensorSource {
public:
  mpt_status open(const char *file) {
    path = file;
    return state.open(file);
  }

  mpt_status describe(const std::string &name, int64_t &dtype, int64_t &count) override {
    const SafeTensorsReader::Entry *entry = state.find(name);
    if (!entry)
      return fail(MPT_INCOMPATIBLE, "'%s': expected a tensor '%s', as the model's state has", path.c_str(),
                  name.c_str());
    dtype = entry->dtype;
    count = entry->bytes / sizeOf(dtype);
    return MPT_OK;
  }

  mpt_status read(const std::string &name, int64_t begin, int64_t count, void *out) override {
    const SafeTensorsReader::Entry *entry = state.find(name);
    const int64_t size = sizeOf(entry->dtype);
    return state.read({entry->dtype, {count}, entry->begin + begin * size, count * size}, out);
  }

private:
  SafeTensorsReader state;
  std::string path;
};

/// The file that is at a path, as far as its data files are concerned.
class OldModel {
public:
  explicit OldModel(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
      bytes = static_cast<size_t>(info.st_size);
      data = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    if (fd >= 0)
      close(fd);
  }
  OldModel(const OldModel &) = delete;
  ~OldModel() {
    if (data != MAP_FAILED)
      munmap(data, bytes);
  }

  /// Whether it has the entry of external data that names `location`.
  bool reads(const std::string &location) const {
    std::string entry = "\x0a\x08location\x12";
    size_t length = location.size();
    for (; length >= 0x80; length >>= 7)
      entry += static_cast<char>(length | 0x80);
    entry += static_cast<char>(length);
    entry += location;
    return data != MAP_FAILED && memmem(data, bytes, entry.data(), entry.size());
  }

private:
  void *data = MAP_FAILED;
  size_t bytes = 0;
};

bool exists(const std::string &path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0;
}

/// Makes the folders between `root` and the file `location` in it.
mpt_status makeFolders(const std::string &root, const std::string &location) {
  for (size_t slash = location.find('/'); slash != std::string::npos; slash = location.find('/', slash + 1)) {
    std::string folder = root + location.substr(0, slash);
    if (mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST)
      return fail(MPT_IO_ERROR, "cannot make folder '%s': %s", folder.c_str(), strerror(errno));
  }
  return MPT_OK;
}

/// Writes the files of a template. The old model reads its own data files until the new one takes its place, so these
/// are never written over: where a file of the name is there, the new data get another one.
class ModelWriter {
public:
  ModelWriter(const Template &form, const char *path) : form(form), path(path), old(path) {
    const std::string text = path;
    const size_t slash = text.rfind('/');
    folder = slash == std::string::npos ? "" : text.substr(0, slash + 1);
    name = slash == std::string::npos ? text : text.substr(slash + 1);
  }

  mpt_status write(TensorSource &source, bool averaged) {
    locations.assign(form.files(), "");
    for (size_t i = 1; i < form.files(); ++i)
      locations[i] = freeLocation(form.location(i), i);
    for (size_t i = 0; i < form.files(); ++i) {
      if (mpt_status status = makeFolders(folder, locations[i]))
        return status;
      files.push_back(std::make_unique<AtomicFile>());
      if (mpt_status status = files.back()->open(i ? (folder + locations[i]).c_str() : path))
        return status;
    }
    for (size_t i = 0; i < form.files(); ++i) {
      auto sink = [&](const void *data, int64_t bytes) { return files[i]->write(data, bytes); };
      if (mpt_status status = form.write(i, locations, source, averaged, sink))
        return status;
      if (mpt_status status = files[i]->sync())
        return status;
    }
    return commit();
  }

private:
  /// The data first: with the model's own name, the last one, the new model is there.
  mpt_status commit() {
    for (size_t i = form.files(); i-- > 0;)
      if (mpt_status status = files[i]->commit()) {
        for (size_t k = i + 1; k < form.files(); ++k)
          unlink((folder + locations[k]).c_str());
        return status;
      }
    for (size_t i = 1; i < form.files(); ++i) {
      drop(form.location(i));
      for (int k = 0; k <= mostNames; ++k)
        drop(ownLocation(form.location(i), i, k));
    }
    return MPT_OK;
  }

  static constexpr int mostNames = 4;

  /// Another name for the data file `location`, which is number `file`, after the model's.
  std::string ownLocation(const std::string &location, size_t file, int attempt) const {
    const size_t slash = location.rfind('/');
    std::string own = (slash == std::string::npos ? "" : location.substr(0, slash + 1)) + name + ".data";
    if (file > 1)
      own += std::to_string(file);
    return attempt ? own + "-" + std::to_string(attempt) : own;
  }

  std::string freeLocation(const std::string &location, size_t file) const {
    if (!exists(folder + location))
      return location;
    // A name after ours that the old model does not read is a leftover of a killed process.
    for (int k = 0; k < mostNames; ++k)
      if (std::string own = ownLocation(location, file, k); own != location && !old.reads(own))
        return own;
    return ownLocation(location, file, mostNames);
  }

  /// Removes a data file that only the model that is gone has read.
  void drop(const std::string &location) const {
    for (const std::string &taken : locations)
      if (taken == location)
        return;
    if (old.reads(location))
      unlink((folder + location).c_str());
  }

  const Template &form;
  const char *path;
  OldModel old;
  std::string folder, name;
  std::vector<std::string> locations;
  std::vector<std::unique_ptr<AtomicFile>> files;
};

mpt_status openTemplate(const Model &model, Template &form) {
  const std::string path = model.templateFile();
  mpt_status status = model.form >= 0 ? form.open(model.form, path.c_str()) : form.open(path.c_str());
  if (status == MPT_NOT_FOUND)
    return fail(MPT_NOT_FOUND,
                "model '%s' has no template '%s' beside its library, which saving as .onnx copies: compile the model "
                "from its .onnx file, and keep the folder's files together",
                model.desc->name, path.c_str());
  return status;
}

mpt_status save(const Template &form, TensorSource &source, const char *path, bool averaged) {
  if (averaged && form.averages() == 0)
    return fail(MPT_INVALID_ARGUMENT,
                "'%s': expected averages of parameters, got a model without: compile it with "
                "--ema",
                path);
  return ModelWriter(form, path).write(source, averaged);
}

/// Ranks but the first take part in reading the tensors that ranks divide.
mpt_status readAlong(const Template &form, TensorSource &source, bool averaged) {
  const std::vector<std::string> locations(form.files());
  for (size_t i = 0; i < form.files(); ++i)
    if (mpt_status status = form.write(i, locations, source, averaged, [](const void *, int64_t) { return MPT_OK; }))
      return status;
  return MPT_OK;
}

} // namespace

extern "C" mpt_status mpt_trainer_save_onnx(mpt_trainer *trainer, const char *path, int32_t averaged) {
  if (!trainer || !path)
    return fail(MPT_INVALID_ARGUMENT, "expected a trainer and a path, got NULL");
  return guarded([&] {
    const bool first = !trainer->replicas || trainer->replicas->isFirst();
    Template form;
    mpt_status status = openTemplate(*trainer->model, form);
    TrainerSource source(*trainer);
    if (!status)
      status = trainer->device->synchronize();
    if (!status && first)
      status = save(form, source, path, averaged != 0);
    else if (!status && trainer->shards.any())
      status = readAlong(form, source, averaged != 0);
    return trainer->replicas ? trainer->replicas->followFirst(status) : status;
  });
}

extern "C" mpt_status mpt_template_save_onnx(const char *form, const char *state, const char *path, int32_t averaged) {
  if (!form || !state || !path)
    return fail(MPT_INVALID_ARGUMENT, "expected paths of a template, a state and a model, got NULL");
  return guarded([&] {
    Template file;
    FileSource source;
    mpt_status status = file.open(form);
    if (!status)
      status = source.open(state);
    return status ? status : save(file, source, path, averaged != 0);
  });
}
