/* libnccl.so.2, played; see gpu.h. Communicators are formed when every rank has joined and the test
 * lets them, and collectives end when every rank has begun them: of sums, f32, f64 and i64. A
 * communicator that is aborted ends its collectives as NCCL does, with whatever is in the tensors. */

#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* nccl.h of NCCL 2.28, as far as it is played. */
enum result { SUCCESS = 0, INVALID_USAGE = 5, REMOTE_ERROR = 6, IN_PROGRESS = 7 };
enum type { I8 = 0, U8 = 1, I64 = 4, F32 = 7, F64 = 8, BF16 = 9 };
enum { VERSION = 22809, SUM = 0, RANKS_MAX = 8 };

/* It begins with a number. */
typedef struct {
  char bytes[128];
} unique_id;

struct config {
  size_t size;
  unsigned magic, version;
  int blocking;
};

enum kind { ALL_REDUCE, ALL_GATHER, BROADCAST };

/* A rank's part in a collective. */
struct part {
  const void *from;
  void *to;
  struct work *work;
};

struct collective {
  enum kind kind;
  size_t count;
  /* `lost` when a rank that had begun it has aborted its communicator: it never ends for the others. */
  int type, root, begun, lost;
  struct part parts[RANKS_MAX];
  struct collective *next;
};

/* Ranks that have met under one id. */
struct group {
  int id, size, joined;
  struct collective *first;
  struct group *next;
};

struct comm {
  struct group *group;
  /* How often it was asked whether it is formed, how many collectives it has begun, and how many peers had
   * died before. */
  int rank, device, polls, begun, aborted, deaths;
};

static struct group *groups;
static int ids;
/* What tests have told. */
static int polls_before_forming, never_forms, deaths;

void fake_nccl_forms_after(int polls) {
  lock();
  polls_before_forming = polls;
  never_forms = 0;
  unlock();
}

void fake_nccl_never_forms(void) {
  lock();
  never_forms = 1;
  unlock();
}

/* Communicators that there are lose a peer. */
void fake_nccl_peer_dies(void) {
  lock();
  ++deaths;
  changed();
  unlock();
}

/* With the lock. */
static int is_formed(const struct comm *comm) {
  return !never_forms && comm->group->joined == comm->group->size &&
         comm->polls >= polls_before_forming;
}

static size_t bytes_of(int type) {
  switch (type) {
    case I8:
    case U8:
      return 1;
    case BF16:
      return 2;
    case F32:
      return 4;
    case I64:
    case F64:
      return 8;
  }
  not_played("a collective of this type");
}

/* Into `sum`, of zeros. */
static void add(void *sum, const void *values, size_t count, int type) {
  for (size_t at = 0; at < count; ++at) {
    switch (type) {
      case F32:
        ((float *)sum)[at] += ((const float *)values)[at];
        break;
      case F64:
        ((double *)sum)[at] += ((const double *)values)[at];
        break;
      case I64:
        ((int64_t *)sum)[at] += ((const int64_t *)values)[at];
        break;
      default:
        not_played("a sum of this type");
    }
  }
}

/* All ranks have begun it. */
static void complete(struct group *group, struct collective *all) {
  size_t bytes = all->count * bytes_of(all->type);
  char *made = calloc((size_t)group->size, bytes);
  for (int rank = 0; rank < group->size; ++rank) {
    const void *from = all->parts[rank].from;
    if (all->kind == ALL_REDUCE) {
      add(made, from, all->count, all->type);
    } else if (all->kind == ALL_GATHER) {
      memcpy(made + (size_t)rank * bytes, from, bytes);
    } else if (rank == all->root) {
      memcpy(made, from, bytes);
    }
  }
  size_t length = all->kind == ALL_GATHER ? (size_t)group->size * bytes : bytes;
  for (int rank = 0; rank < group->size; ++rank) {
    struct part *part = &all->parts[rank];
    if (!part->work->done) {
      memcpy(part->to, made, length);
      part->work->done = 1;
    }
  }
  free(made);
  changed();
}

/* The collective that comes after `before` others, which may not be there yet. */
static struct collective **collective_of(struct group *group, int before) {
  struct collective **at = &group->first;
  while (before-- > 0) {
    at = &(*at)->next;
  }
  return at;
}

static enum result begin(
    const char *function, struct comm *comm, void *handle, struct collective like,
    const void *from, void *to) {
  lock();
  struct stream *stream = stream_of(handle);
  unlock();
  use_device(function, stream->device);
  note(function, stream->device, stream->number, -1);
  lock();
  if (!is_formed(comm) || comm->aborted || stream->device != comm->device) {
    unlock();
    return INVALID_USAGE;
  }
  struct collective **at = collective_of(comm->group, comm->begun++);
  if (*at == NULL) {
    *at = calloc(1, sizeof like);
    **at = like;
  }
  struct work *work = calloc(1, sizeof *work);
  work->before[0] = stream->last;
  stream->last = work;
  (*at)->parts[comm->rank] = (struct part){from, to, work};
  if (++(*at)->begun == comm->group->size && !(*at)->lost) {
    complete(comm->group, *at);
  }
  unlock();
  return SUCCESS;
}

enum result ncclAllReduce(
    const void *from, void *to, size_t count, int type, int operation, struct comm *comm,
    void *stream) {
  if (operation != SUM) {
    not_played("an all-reduce that is no sum");
  }
  struct collective like = {.kind = ALL_REDUCE, .count = count, .type = type};
  return begin(__func__, comm, stream, like, from, to);
}

enum result ncclAllGather(
    const void *from, void *to, size_t count, int type, struct comm *comm, void *stream) {
  struct collective like = {.kind = ALL_GATHER, .count = count, .type = type};
  return begin(__func__, comm, stream, like, from, to);
}

enum result ncclBroadcast(
    const void *from, void *to, size_t count, int type, int root, struct comm *comm,
    void *stream) {
  struct collective like = {.kind = BROADCAST, .count = count, .type = type, .root = root};
  return begin(__func__, comm, stream, like, from, to);
}

enum result ncclBcast(
    void *values, size_t count, int type, int root, struct comm *comm, void *stream) {
  return ncclBroadcast(values, values, count, type, root, comm, stream);
}

/* Collectives are begun by their own calls, also in a group. */
enum result ncclGroupStart(void) { return SUCCESS; }
enum result ncclGroupEnd(void) { return SUCCESS; }

/* Communicators. */

enum result ncclGetUniqueId(unique_id *id) {
  NOTE();
  memset(id, 0, sizeof *id);
  lock();
  ++ids;
  memcpy(id, &ids, sizeof ids);
  unlock();
  return SUCCESS;
}

/* With the lock. */
static struct group *group_of(int id, int size) {
  for (struct group *group = groups; group != NULL; group = group->next) {
    if (group->id == id) {
      return group;
    }
  }
  struct group *made = calloc(1, sizeof *made);
  *made = (struct group){.id = id, .size = size, .next = groups};
  groups = made;
  return made;
}

enum result ncclCommInitRankConfig(
    struct comm **out, int size, unique_id id, int rank, const struct config *config) {
  NOTE_DEVICE(current_device);
  USE(current_device);
  if (size > RANKS_MAX) {
    not_played("a communicator of so many ranks");
  }
  int number;
  memcpy(&number, id.bytes, sizeof number);
  struct comm *comm = calloc(1, sizeof *comm);
  lock();
  *comm = (struct comm){
      .group = group_of(number, size), .rank = rank, .device = current_device, .deaths = deaths};
  ++comm->group->joined;
  changed();
  int blocks = config->blocking != 0;
  while (blocks && (never_forms || comm->group->joined < size)) {
    wait_for_change();
  }
  comm->polls = blocks ? polls_before_forming : 0;
  unlock();
  *out = comm;
  return blocks ? SUCCESS : IN_PROGRESS;
}

enum result ncclCommGetAsyncError(struct comm *comm, enum result *told) {
  NOTE_DEVICE(comm->device);
  lock();
  if (comm->polls < polls_before_forming) {
    ++comm->polls;
    *told = IN_PROGRESS;
  } else if (!is_formed(comm)) {
    *told = IN_PROGRESS;
  } else {
    *told = deaths > comm->deaths ? REMOTE_ERROR : SUCCESS;
  }
  unlock();
  return SUCCESS;
}

enum result ncclCommAbort(struct comm *comm) {
  NOTE_DEVICE(comm->device);
  lock();
  comm->aborted = 1;
  int begun = 0;
  for (struct collective *at = comm->group->first; begun < comm->begun; at = at->next, ++begun) {
    struct work *work = at->parts[comm->rank].work;
    at->lost |= !work->done;
    work->done = 1;
  }
  changed();
  unlock();
  return SUCCESS;
}

enum result ncclCommFinalize(struct comm *comm) {
  NOTE_DEVICE(comm->device);
  return SUCCESS;
}

enum result ncclCommDestroy(struct comm *comm) {
  NOTE_DEVICE(comm->device);
  return SUCCESS;
}

enum result ncclCommCount(const struct comm *comm, int *count) {
  *count = comm->group->size;
  return SUCCESS;
}

enum result ncclCommUserRank(const struct comm *comm, int *rank) {
  *rank = comm->rank;
  return SUCCESS;
}

enum result ncclGetVersion(int *version) {
  *version = VERSION;
  return SUCCESS;
}

const char *ncclGetErrorString(enum result result) {
  switch (result) {
    case SUCCESS:
      return "no error";
    case INVALID_USAGE:
      return "invalid usage";
    case REMOTE_ERROR:
      return "remote process exited or there was a network error";
    case IN_PROGRESS:
      return "NCCL operation in progress";
  }
  return "unknown result code";
}

const char *ncclGetLastError(const struct comm *comm) { return "nothing is known beside that"; }
