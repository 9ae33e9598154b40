/* Threads read and write one volume; each knows what its files must hold, and what a reader of the
 * volume finds after all is compared with it. In the second half they share handles that others
 * close. threads IMAGE THREADS SECONDS */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "extant.h"

enum { FILES = 4, LONGEST = 200000, SHARED = 8 };

#define EXPECT(given, wanted) expect(__LINE__, #given, (long long)(given), (long long)(wanted))

static void expect(int line, const char *text, long long given, long long wanted) {
    if (given != wanted) {
        printf("line %d: %s is %lld, not %lld (%s)\n", line, text, given, wanted,
               extant_last_error());
        exit(1);
    }
}

/* A file as its thread has left it. */
struct model {
    uint8_t *bytes;
    size_t size;
    int generation; /* part of its name; 0: there is no file */
};

struct worker {
    pthread_t thread;
    struct extant_fs fs;
    unsigned number;
    uint64_t seed;
    time_t end;
    struct model files[FILES];
};

static _Atomic uint64_t shared[SHARED];
static atomic_ulong refused, done;

static uint64_t next(struct worker *worker) {
    worker->seed ^= worker->seed << 13;
    worker->seed ^= worker->seed >> 7;
    worker->seed ^= worker->seed << 17;
    return worker->seed;
}

static void name_of(char *name, unsigned worker, unsigned file, int generation) {
    snprintf(name, 64, "/%u/file-%u.%d", worker, file, generation);
}

static void change(struct worker *worker, unsigned at) {
    struct model *model = &worker->files[at];
    struct extant_file file;
    char name[64], other[64];
    static _Thread_local uint8_t piece[20000];
    name_of(name, worker->number, at, model->generation);
    if (model->generation == 0) {
        model->generation = 1;
        model->size = 0;
        name_of(name, worker->number, at, 1);
    }
    unsigned flags = EXTANT_READ | EXTANT_WRITE | EXTANT_CREATE;
    EXPECT(extant_file_open(worker->fs, name, flags, 0644, &file), 0);
    size_t size = next(worker) % sizeof piece + 1, offset;
    switch (next(worker) % 6) {
    case 0:
    case 1:
    case 2: /* bytes at any place, holes in front of them */
        offset = next(worker) % (LONGEST - size);
        memset(piece, (int)(next(worker) & 0xff), size);
        piece[0] = (uint8_t)worker->number;
        EXPECT(extant_file_pwrite(file, piece, size, offset), size);
        if (offset > model->size) memset(model->bytes + model->size, 0, offset - model->size);
        memcpy(model->bytes + offset, piece, size);
        if (offset + size > model->size) model->size = offset + size;
        break;
    case 3:
        offset = next(worker) % LONGEST;
        EXPECT(extant_file_truncate(file, offset), 0);
        if (offset > model->size) memset(model->bytes + model->size, 0, offset - model->size);
        model->size = offset;
        break;
    case 4:
        name_of(other, worker->number, at, model->generation + 1);
        EXPECT(extant_rename(worker->fs, name, other, 0), 0);
        ++model->generation;
        break;
    default: /* the open file stays until it is closed */
        EXPECT(extant_unlink(worker->fs, name), 0);
        model->generation = -model->generation;
        break;
    }
    for (offset = 0; offset < model->size; offset += sizeof piece) {
        size_t wanted = model->size - offset < sizeof piece ? model->size - offset : sizeof piece;
        EXPECT(extant_file_pread(file, piece, sizeof piece, offset), wanted);
        EXPECT(memcmp(piece, model->bytes + offset, wanted), 0);
    }
    if (next(worker) % 16 == 0) EXPECT(extant_file_sync(file, 1), 0);
    EXPECT(extant_file_close(file), 0);
    if (model->generation < 0) model->generation = 0;
}

/* Handles that all threads read, close and replace: each call works or is refused. */
static void share(struct worker *worker) {
    _Atomic uint64_t *slot = &shared[next(worker) % SHARED];
    struct extant_file file = {atomic_load(slot)};
    uint8_t byte = 0;
    if (next(worker) % 4 == 0) {
        struct extant_file fresh;
        EXPECT(extant_file_open(worker->fs, "/shared", EXTANT_READ | EXTANT_WRITE, 0, &fresh), 0);
        file.handle = atomic_exchange(slot, fresh.handle);
        if (file.handle != 0) EXPECT(extant_file_close(file), 0);
    } else {
        int64_t count = next(worker) % 2 == 0 ? extant_file_pread(file, &byte, 1, 5)
                                              : extant_file_pwrite(file, (uint8_t *)"s", 1, 5);
        if (count == -EBADF) {
            atomic_fetch_add(&refused, 1);
        } else {
            EXPECT(count, 1);
            EXPECT(byte == 0 || byte == 's', 1);
        }
    }
}

static void *work(void *argument) {
    struct worker *worker = argument;
    char dir[64];
    snprintf(dir, sizeof dir, "/%u", worker->number);
    EXPECT(extant_mkdir(worker->fs, dir, 0755), 0);
    do {
        change(worker, (unsigned)(next(worker) % FILES));
        for (int i = 0; i < 20; ++i) share(worker);
        atomic_fetch_add(&done, 1);
    } while (time(NULL) < worker->end);
    return NULL;
}

static void compare(struct extant_fs fs, struct worker *worker) {
    static uint8_t bytes[LONGEST + 1];
    char name[64];
    struct extant_dir dir;
    struct extant_dirent entry;
    int names = 0, wanted = 0;
    snprintf(name, sizeof name, "/%u", worker->number);
    EXPECT(extant_dir_open(fs, name, &dir), 0);
    while (extant_dir_read(dir, &entry) == 1) ++names;
    EXPECT(extant_dir_close(dir), 0);
    for (unsigned at = 0; at < FILES; ++at) {
        struct model *model = &worker->files[at];
        struct extant_file file;
        if (model->generation == 0) continue;
        ++wanted;
        name_of(name, worker->number, at, model->generation);
        EXPECT(extant_file_open(fs, name, EXTANT_READ, 0, &file), 0);
        size_t filled = 0;
        int64_t count;
        while ((count = extant_file_read(file, bytes + filled, sizeof bytes - filled)) > 0)
            filled += (size_t)count;
        EXPECT(count, 0);
        EXPECT(filled, model->size);
        EXPECT(memcmp(bytes, model->bytes, filled), 0);
        EXPECT(extant_file_close(file), 0);
    }
    EXPECT(names, wanted);
}

int main(int count, char **words) {
    EXPECT(count, 4);
    unsigned threads = (unsigned)atoi(words[2]);
    struct worker *workers = calloc(threads, sizeof *workers);
    struct extant_fs fs;
    struct extant_file file;
    EXPECT(extant_mkfs(words[1], (uint64_t)threads * FILES * LONGEST + (32 << 20), NULL), 0);
    EXPECT(extant_open(words[1], EXTANT_OPEN_WRITE, &fs), 0);
    EXPECT(extant_file_open(fs, "/shared", EXTANT_WRITE | EXTANT_CREATE, 0644, &file), 0);
    EXPECT(extant_file_pwrite(file, (const uint8_t *)"ssssssssss", 10, 0), 10);
    EXPECT(extant_file_close(file), 0);
    time_t end = time(NULL) + atoi(words[3]);
    for (unsigned i = 0; i < threads; ++i) {
        struct worker *worker = &workers[i];
        worker->fs = fs;
        worker->number = i;
        worker->seed = 88172645463325252ull + i * 7919;
        worker->end = end;
        for (int at = 0; at < FILES; ++at) worker->files[at].bytes = calloc(1, LONGEST + 1);
        EXPECT(pthread_create(&worker->thread, NULL, work, worker), 0);
    }
    for (unsigned i = 0; i < threads; ++i) EXPECT(pthread_join(workers[i].thread, NULL), 0);
    EXPECT(extant_close(fs), -EBUSY);
    for (int i = 0; i < SHARED; ++i) {
        struct extant_file left = {shared[i]};
        if (left.handle != 0) EXPECT(extant_file_close(left), 0);
    }
    EXPECT(extant_close(fs), 0);
    EXPECT(extant_open(words[1], 0, &fs), 0);
    for (unsigned i = 0; i < threads; ++i) compare(fs, &workers[i]);
    EXPECT(extant_close(fs), 0);
    for (unsigned i = 0; i < threads; ++i)
        for (int at = 0; at < FILES; ++at) free(workers[i].files[at].bytes);
    free(workers);
    printf("%lu changes, %lu handles refused\n", atomic_load(&done), atomic_load(&refused));
    return 0;
}
