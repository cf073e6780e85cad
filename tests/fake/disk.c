/* A disk that fails as it is told, for LD_PRELOAD: what a program asks of its C library about files
 * passes through here. TRADEWIND_DISK names a file of rules, which is looked at at every call, so
 * that faults come and go while the program runs. A rule is a line:
 *
 *   FAULT OPERATIONS GLOB [ms=N] [bytes=N] [after=N] [times=N] [from=PATH]
 *
 * OPERATIONS, with commas: open (to read), create (to write), read, write, sync, rename (by its
 * target), unlink, mkdir, list. GLOB is matched with the whole path; * matches / as well. The first
 * `after` calls pass, then `times` calls fail, all if it is not given. FAULT:
 *
 *   eio enospc erofs   the call fails so
 *   delay              it takes `ms` longer
 *   short              a write writes `bytes` and says so
 *   torn               a write writes `bytes`, and the program is killed
 *   cut                a rename leaves a file of which `bytes` are there, as after a machine died
 *   kill               it is done, and the program is killed
 *   lag                a listing is what the program saw when it listed up to `ms` ago, or has the names
 *                      in the folder `from`
 *
 * It calls the kernel itself, so that nothing in here passes through here. Mapped files do not. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { RULES_MAX = 32, LISTINGS_MAX = 32, TEXT_MAX = 8192 };

struct rule {
  char fault[16], operations[96], glob[512], from[512];
  long ms, bytes, after, times, seen;
};

/* What was listed, as a folder of empty files of the same names. */
struct listing {
  char path[PATH_MAX];
  long long at_ms;
  unsigned number;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rule rules[RULES_MAX];
static int rules_count;
static struct timespec rules_time;
static ino_t rules_file;
static struct listing listings[LISTINGS_MAX];
static int listings_count;
static unsigned listings_made;

static long long now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000ll + now.tv_nsec / 1000000;
}

static void die(void) {
  syscall(SYS_kill, getpid(), SIGKILL);
  for (;;) {
    pause();
  }
}

static void parse(char *text) {
  rules_count = 0;
  char *line_end = NULL;
  for (char *line = strtok_r(text, "\n", &line_end); line != NULL && rules_count < RULES_MAX;
       line = strtok_r(NULL, "\n", &line_end)) {
    struct rule *rule = &rules[rules_count];
    *rule = (struct rule){.times = LONG_MAX};
    if (sscanf(line, "%15s %95s %511s", rule->fault, rule->operations, rule->glob) != 3) {
      continue;
    }
    struct {
      const char *name;
      long *value;
    } keys[] = {{" ms=", &rule->ms},
                {" bytes=", &rule->bytes},
                {" after=", &rule->after},
                {" times=", &rule->times}};
    for (size_t key = 0; key < sizeof keys / sizeof *keys; ++key) {
      const char *found = strstr(line, keys[key].name);
      if (found != NULL) {
        *keys[key].value = atol(found + strlen(keys[key].name));
      }
    }
    const char *from = strstr(line, " from=");
    if (from != NULL) {
      sscanf(from, " from=%511s", rule->from);
    }
    ++rules_count;
  }
}

/* With the lock. */
static void look(void) {
  const char *path = getenv("TRADEWIND_DISK");
  struct stat stat;
  if (path == NULL || syscall(SYS_stat, path, &stat) != 0) {
    rules_count = 0;
    return;
  }
  if (stat.st_ino == rules_file && stat.st_mtim.tv_sec == rules_time.tv_sec &&
      stat.st_mtim.tv_nsec == rules_time.tv_nsec) {
    return;
  }
  static char text[TEXT_MAX];
  int fd = (int)syscall(SYS_open, path, O_RDONLY | O_CLOEXEC);
  long length = syscall(SYS_read, fd, text, sizeof text - 1);
  syscall(SYS_close, fd);
  text[length > 0 ? length : 0] = 0;
  parse(text);
  rules_file = stat.st_ino;
  rules_time = stat.st_mtim;
}

static int is_one_of(const char *operation, const char *all) {
  size_t length = strlen(operation);
  for (const char *at = all; (at = strstr(at, operation)) != NULL; at += length) {
    if ((at == all || at[-1] == ',') && (at[length] == 0 || at[length] == ',')) {
      return 1;
    }
  }
  return 0;
}

/* Whether a call fails, and how. A descriptor is named by its path, which is looked for only where a
 * rule could match. */
static int strikes(const char *operation, const char *path, int fd, struct rule *how) {
  char name[PATH_MAX];
  int before = errno, struck = 0;
  pthread_mutex_lock(&lock);
  look();
  for (int at = 0; at < rules_count && !struck; ++at) {
    struct rule *rule = &rules[at];
    if (!is_one_of(operation, rule->operations)) {
      continue;
    }
    if (path == NULL) {
      char link[64];
      snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
      long length = syscall(SYS_readlink, link, name, sizeof name - 1);
      name[length > 0 ? length : 0] = 0;
      path = name;
    }
    if (fnmatch(rule->glob, path, 0) == 0) {
      long seen = rule->seen++;
      struck = seen >= rule->after && seen - rule->after < rule->times;
      *how = *rule;
    }
  }
  pthread_mutex_unlock(&lock);
  errno = before;
  return struck;
}

/* -1 with an error if the call is not to be made; a delay has passed then. */
static int passes(const char *operation, const char *path, int fd, struct rule *how) {
  if (!strikes(operation, path, fd, how)) {
    how->fault[0] = 0;
    return 0;
  }
  int error = strcmp(how->fault, "eio") == 0      ? EIO
              : strcmp(how->fault, "enospc") == 0 ? ENOSPC
              : strcmp(how->fault, "erofs") == 0  ? EROFS
                                                  : 0;
  if (error != 0) {
    errno = error;
    return -1;
  }
  if (strcmp(how->fault, "delay") == 0) {
    struct timespec pause = {how->ms / 1000, how->ms % 1000 * 1000000};
    int before = errno;
    syscall(SYS_nanosleep, &pause, NULL);
    errno = before;
  }
  return 0;
}

static int is(const struct rule *how, const char *fault) { return strcmp(how->fault, fault) == 0; }

static long after(const struct rule *how, long result) {
  if (is(how, "kill")) {
    die();
  }
  return result;
}

static int open_at(int folder, const char *path, int flags, mode_t mode) {
  struct rule how;
  int writes = (flags & (O_WRONLY | O_RDWR | O_CREAT)) != 0;
  if (path[0] == '/' && passes(writes ? "create" : "open", path, -1, &how) != 0) {
    return -1;
  }
  if (path[0] != '/') {
    how.fault[0] = 0;
  }
  return (int)after(&how, syscall(SYS_openat, folder, path, flags, mode));
}

#define OPEN(name)                                     \
  int name(const char *path, int flags, ...) {         \
    va_list rest;                                      \
    va_start(rest, flags);                             \
    mode_t mode = va_arg(rest, mode_t);                \
    va_end(rest);                                      \
    return open_at(AT_FDCWD, path, flags, mode);       \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                       \
  int name(int folder, const char *path, int flags, ...) { \
    va_list rest;                                          \
    va_start(rest, flags);                                 \
    mode_t mode = va_arg(rest, mode_t);                    \
    va_end(rest);                                          \
    return open_at(folder, path, flags, mode);             \
  }
OPENAT(openat)
OPENAT(openat64)

ssize_t read(int fd, void *bytes, size_t count) {
  struct rule how;
  if (passes("read", NULL, fd, &how) != 0) {
    return -1;
  }
  return after(&how, syscall(SYS_read, fd, bytes, count));
}

/* How much of a write is done; -1 if nothing. */
static long cut_to(const struct rule *how, long count) {
  int shortens = is(how, "short") || is(how, "torn");
  return shortens && how->bytes < count ? how->bytes : count;
}

static long wrote(const struct rule *how, long result) {
  if (is(how, "torn")) {
    die();
  }
  return after(how, result);
}

ssize_t write(int fd, const void *bytes, size_t count) {
  struct rule how;
  if (passes("write", NULL, fd, &how) != 0) {
    return -1;
  }
  return wrote(&how, syscall(SYS_write, fd, bytes, cut_to(&how, (long)count)));
}

#define PWRITE(name)                                                             \
  ssize_t name(int fd, const void *bytes, size_t count, off_t at) {              \
    struct rule how;                                                             \
    if (passes("write", NULL, fd, &how) != 0) {                                  \
      return -1;                                                                 \
    }                                                                            \
    return wrote(&how, syscall(SYS_pwrite64, fd, bytes, cut_to(&how, count), at)); \
  }
PWRITE(pwrite)
PWRITE(pwrite64)

ssize_t writev(int fd, const struct iovec *pieces, int count) {
  struct rule how;
  if (passes("write", NULL, fd, &how) != 0) {
    return -1;
  }
  if (is(&how, "short") || is(&how, "torn")) {
    long first = cut_to(&how, (long)pieces[0].iov_len);
    return wrote(&how, syscall(SYS_write, fd, pieces[0].iov_base, first));
  }
  return after(&how, syscall(SYS_writev, fd, pieces, count));
}

#define ON_DESCRIPTOR(name, operation, number) \
  int name(int fd) {                           \
    struct rule how;                           \
    if (passes(operation, NULL, fd, &how) != 0) { \
      return -1;                               \
    }                                          \
    return (int)after(&how, syscall(number, fd)); \
  }
ON_DESCRIPTOR(fsync, "sync", SYS_fsync)
ON_DESCRIPTOR(fdatasync, "sync", SYS_fdatasync)

int rename(const char *from, const char *to) {
  struct rule how;
  if (passes("rename", to, -1, &how) != 0) {
    return -1;
  }
  long renamed = syscall(SYS_rename, from, to);
  if (renamed == 0 && is(&how, "cut")) {
    syscall(SYS_truncate, to, how.bytes);
  }
  return (int)after(&how, renamed);
}

int unlink(const char *path) {
  struct rule how;
  if (passes("unlink", path, -1, &how) != 0) {
    return -1;
  }
  return (int)after(&how, syscall(SYS_unlink, path));
}

int mkdir(const char *path, mode_t mode) {
  struct rule how;
  if (passes("mkdir", path, -1, &how) != 0) {
    return -1;
  }
  return (int)after(&how, syscall(SYS_mkdir, path, mode));
}

static void shadow_of(const struct listing *listing, char *path) {
  snprintf(path, PATH_MAX, "%s.listing-%d-%u", getenv("TRADEWIND_DISK"), (int)getpid(),
           listing->number);
}

/* Lists a folder into a shadow of it. */
static int list(const char *path, const char *shadow) {
  long from = syscall(SYS_open, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (from < 0) {
    return -1;
  }
  syscall(SYS_mkdir, shadow, 0700);
  static char entries[1 << 16];
  for (long length; (length = syscall(SYS_getdents64, from, entries, sizeof entries)) > 0;) {
    for (long at = 0; at < length;) {
      struct dirent64 *entry = (struct dirent64 *)(entries + at);
      char name[PATH_MAX + 260];
      snprintf(name, sizeof name, "%s/%s", shadow, entry->d_name);
      if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
        syscall(SYS_close, syscall(SYS_open, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
      }
      at += entry->d_reclen;
    }
  }
  syscall(SYS_close, from);
  return 0;
}

/* What the listing of a folder is taken from. */
static int lagging(const char *path, long ms, char *shadow) {
  int listed = 0;
  pthread_mutex_lock(&lock);
  struct listing *known = NULL;
  for (int at = 0; at < listings_count; ++at) {
    if (strcmp(listings[at].path, path) == 0) {
      known = &listings[at];
    }
  }
  if (known == NULL && listings_count < LISTINGS_MAX) {
    known = &listings[listings_count++];
    snprintf(known->path, sizeof known->path, "%s", path);
    known->at_ms = -1;
  }
  if (known == NULL) {
    errno = ENOMEM;
    listed = -1;
  } else if (known->at_ms < 0 || now_ms() - known->at_ms > ms) {
    known->number = ++listings_made;
    shadow_of(known, shadow);
    listed = list(path, shadow);
    known->at_ms = listed == 0 ? now_ms() : -1;
  } else {
    shadow_of(known, shadow);
  }
  pthread_mutex_unlock(&lock);
  return listed;
}

DIR *opendir(const char *path) {
  static DIR *(*really)(const char *);
  if (really == NULL) {
    really = (DIR * (*)(const char *)) dlsym(RTLD_NEXT, "opendir");
  }
  struct rule how;
  if (passes("list", path, -1, &how) != 0) {
    return NULL;
  }
  char shadow[PATH_MAX];
  if (is(&how, "lag") && how.from[0] != 0) {
    return really(how.from);
  }
  if (is(&how, "lag")) {
    return lagging(path, how.ms, shadow) == 0 ? really(shadow) : NULL;
  }
  return really(path);
}
