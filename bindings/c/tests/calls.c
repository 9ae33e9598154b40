/* Each call once, with its results and its refusals. Prints the failed expectation and ends with 1.
 * calls IMAGE */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "extant.h"

#define EXPECT(given, wanted) expect(__LINE__, #given, (long long)(given), (long long)(wanted))

static void expect(int line, const char *text, long long given, long long wanted) {
    if (given != wanted) {
        printf("line %d: %s is %lld, not %lld (%s)\n", line, text, given, wanted,
               extant_last_error());
        exit(1);
    }
}

static void on_finding(const struct extant_finding *finding, void *argument) {
    EXPECT(finding->code != NULL && finding->text != NULL && finding->text[0] != 0, 1);
    ++*(int *)argument;
}

static void damage(const char *image, long at) {
    FILE *file = fopen(image, "r+b");
    EXPECT(file != NULL, 1);
    EXPECT(fseek(file, at, SEEK_SET), 0);
    EXPECT(fwrite("abcd", 1, 4, file), 4);
    EXPECT(fclose(file), 0);
}

static void files(struct extant_fs fs) {
    struct extant_file file, second;
    struct extant_stat st;
    char buffer[64];
    unsigned all = EXTANT_READ | EXTANT_WRITE | EXTANT_CREATE;
    EXPECT(extant_file_open(fs, "/dir/file", EXTANT_READ, 0, &file), -ENOENT);
    EXPECT(strcmp(extant_last_error(), "/dir/file: not found"), 0);
    EXPECT(extant_mkdir(fs, "/dir", 0777), 0);
    EXPECT(extant_mkdir(fs, "/dir", 0777), -EEXIST);
    EXPECT(extant_file_open(fs, "/dir/file", all | 1024, 0644, &file), -EINVAL);
    EXPECT(extant_file_open(fs, "/dir/file", all, 0666, &file), 0);
    EXPECT(extant_file_open(fs, "/dir/file", EXTANT_WRITE | EXTANT_EXCLUSIVE, 0, &second), -EEXIST);
    EXPECT(extant_file_write(file, (const uint8_t *)"hello, world", 12), 12);
    EXPECT(extant_file_seek(file, 7, SEEK_SET), 7);
    memset(buffer, 'x', sizeof buffer);
    EXPECT(extant_file_read(file, (uint8_t *)buffer, 5), 5);
    EXPECT(memcmp(buffer, "worldx", 6), 0);
    EXPECT(extant_file_read(file, (uint8_t *)buffer, 5), 0);
    EXPECT(extant_file_pwrite(file, (const uint8_t *)"H", 1, 0), 1);
    EXPECT(extant_file_pread(file, (uint8_t *)buffer, 5, 0), 5);
    EXPECT(memcmp(buffer, "Hello", 5), 0);
    EXPECT(extant_file_seek(file, -2, SEEK_END), 10);
    EXPECT(extant_file_seek(file, -11, SEEK_CUR), -EINVAL);
    EXPECT(extant_file_seek(file, 0, 9), -EINVAL);
    EXPECT(extant_file_truncate(file, 5000), 0);
    EXPECT(extant_file_sync(file, 0), 0);
    EXPECT(extant_file_sync(file, 1), 0);
    EXPECT(extant_file_stat(file, &st), 0);
    EXPECT(st.size, 5000);
    EXPECT(st.mode, S_IFREG | 0644);
    EXPECT(extant_file_open(fs, "/dir/file", EXTANT_WRITE | EXTANT_APPEND, 0, &second), 0);
    EXPECT(extant_file_write(second, (const uint8_t *)"end", 3), 3);
    EXPECT(extant_file_read(second, (uint8_t *)buffer, 1), -EINVAL);
    EXPECT(extant_close(fs), -EBUSY);
    EXPECT(extant_file_close(second), 0);
    EXPECT(extant_file_close(second), -EBADF);
    EXPECT(extant_file_write(second, (const uint8_t *)"end", 3), -EBADF);
    EXPECT(extant_file_pread(file, (uint8_t *)buffer, 9, 5000), 3);
    EXPECT(extant_file_close(file), 0);
}

static void paths(struct extant_fs fs) {
    struct extant_stat st;
    struct extant_statfs space;
    struct extant_time time = {-5, 250000000}, invalid = {0, 1000000000};
    char buffer[256];
    EXPECT(extant_link(fs, "/dir/file", "/dir/second"), 0);
    EXPECT(extant_symlink(fs, "dir/file", "/link"), 0);
    memset(buffer, 'x', sizeof buffer);
    EXPECT(extant_readlink(fs, "/link", NULL, 0), 8);
    EXPECT(extant_readlink(fs, "/link", (uint8_t *)buffer, 3), 8);
    EXPECT(memcmp(buffer, "dirx", 4), 0);
    EXPECT(extant_stat_path(fs, "/link", 0, &st), 0);
    EXPECT(st.links, 2);
    EXPECT(extant_stat_path(fs, "/link", EXTANT_NOFOLLOW, &st), 0);
    EXPECT(st.mode & S_IFMT, S_IFLNK);
    EXPECT(extant_chmod(fs, "/dir/file", 04711), 0);
    EXPECT(extant_chown(fs, "/dir/file", 1000, EXTANT_KEEP_ID, 0), 0);
    EXPECT(extant_set_times(fs, "/dir/file", NULL, &time, 0), 0);
    EXPECT(extant_set_times(fs, "/dir/file", &invalid, NULL, 0), -EINVAL);
    EXPECT(extant_stat_path(fs, "/dir/file", 0, &st), 0);
    EXPECT(st.uid, 1000);
    EXPECT(st.gid, 0);
    EXPECT(st.modified.seconds, -5);
    EXPECT(st.modified.nanoseconds, 250000000);
    EXPECT(extant_mknod(fs, "/null", S_IFCHR | 0666, 1, 3), 0);
    EXPECT(extant_mknod(fs, "/none", S_IFREG | 0666, 1, 3), -EINVAL);
    EXPECT(extant_stat_path(fs, "/null", 0, &st), 0);
    EXPECT(st.device_major * 256 + st.device_minor, 259);
    EXPECT(extant_truncate(fs, "/dir/file", 5), 0);
    EXPECT(extant_setxattr(fs, "/dir/file", "user.a", (const uint8_t *)"value", 5, 0), 0);
    EXPECT(extant_setxattr(fs, "/dir/file", "user.a", (const uint8_t *)"v", 1, EXTANT_XATTR_CREATE),
           -EEXIST);
    EXPECT(extant_getxattr(fs, "/dir/file", "user.a", (uint8_t *)buffer, sizeof buffer), 5);
    EXPECT(memcmp(buffer, "value", 5), 0);
    EXPECT(extant_getxattr(fs, "/dir/file", "user.b", NULL, 0), -ENODATA);
    EXPECT(extant_listxattr(fs, "/dir/file", (uint8_t *)buffer, sizeof buffer), 7);
    EXPECT(memcmp(buffer, "user.a", 7), 0);
    EXPECT(extant_removexattr(fs, "/dir/file", "user.a"), 0);
    EXPECT(extant_rename(fs, "/dir/second", "/link", EXTANT_RENAME_NOREPLACE), -EEXIST);
    EXPECT(extant_rename(fs, "/dir/second", "/link", 0), 0);
    EXPECT(extant_rmdir(fs, "/dir"), -ENOTEMPTY);
    EXPECT(extant_unlink(fs, "/dir"), -EISDIR);
    EXPECT(extant_unlink(fs, "/link"), 0);
    EXPECT(extant_mkdir(fs, "/tree", 0700), 0);
    EXPECT(extant_mkdir(fs, "/tree/below", 0700), 0);
    EXPECT(extant_remove_tree(fs, "/tree"), 0);
    EXPECT(extant_statfs(fs, &space), 0);
    EXPECT(space.block_size >= 1024 && space.free_blocks > 0 && space.free_inodes > 0, 1);
}

static void directories(struct extant_fs fs) {
    struct extant_dir dir;
    struct extant_dirent entry;
    int names = 0, outcome;
    EXPECT(extant_dir_open(fs, "/null", &dir), -ENOTDIR);
    EXPECT(extant_dir_open(fs, "/", &dir), 0);
    while ((outcome = extant_dir_read(dir, &entry)) == 1) {
        EXPECT(strlen((char *)entry.name), entry.name_length);
        if (strcmp((char *)entry.name, "null") == 0) EXPECT(entry.file_type, DT_CHR);
        if (strcmp((char *)entry.name, "dir") == 0) EXPECT(entry.file_type, DT_DIR);
        ++names;
    }
    EXPECT(outcome, 0);
    EXPECT(names, 3);
    EXPECT(extant_dir_close(dir), 0);
    EXPECT(extant_dir_read(dir, &entry), -EBADF);
}

int main(int count, char **words) {
    const char *image = words[1];
    const char *options[] = {"-t", "ext4", "-b", "1024", "-O", "^metadata_csum", NULL};
    const char *wrong[] = {"-b", "1000", NULL};
    struct extant_fs fs, second;
    struct extant_report report;
    struct extant_stat st;
    int findings = 0;
    EXPECT(count, 2);
    EXPECT(strlen(extant_version()) >= 5, 1);
    EXPECT(strcmp(extant_last_error(), ""), 0);
    EXPECT(extant_open(image, 0, &fs), -ENOENT);
    EXPECT(extant_mkfs(image, 8 << 20, wrong), -EINVAL);
    EXPECT(extant_mkfs(image, 8 << 20, options), 0);
    EXPECT(extant_open(NULL, 0, &fs), -EFAULT);
    EXPECT(extant_open(image, 2, &fs), -EINVAL);
    EXPECT(extant_open(image, 0, NULL), -EFAULT);
    EXPECT(extant_open(image, EXTANT_OPEN_WRITE, &fs), 0);
    EXPECT(extant_open(image, EXTANT_OPEN_WRITE, &second), -EBUSY);
    EXPECT(extant_stat_path(fs, NULL, 0, &st), -EFAULT);
    EXPECT(extant_stat_path(fs, "/", 0, NULL), -EFAULT);
    files(fs);
    paths(fs);
    directories(fs);
    EXPECT(extant_sync(fs), 0);
    EXPECT(extant_close(fs), 0);
    EXPECT(extant_close(fs), -EBADF);
    EXPECT(extant_stat_path(fs, "/", 0, &st), -EBADF);
    EXPECT(extant_open(image, 0, &second), 0);
    EXPECT(second.handle != fs.handle, 1);
    EXPECT(extant_mkdir(second, "/new", 0777), -EROFS);
    EXPECT(extant_stat_path(second, "/dir/file", 0, &st), 0);
    EXPECT(st.size, 5);
    EXPECT(extant_close(second), 0);
    EXPECT(extant_check(image, EXTANT_REPAIR_NO, on_finding, &findings, &report), 0);
    EXPECT(report.verdict, EXTANT_VERDICT_CLEAN);
    EXPECT(report.exit_code + findings, 0);
    damage(image, 1024 + 12); /* the superblock's number of free blocks */
    EXPECT(extant_check(image, EXTANT_REPAIR_YES, on_finding, &findings, &report), 0);
    EXPECT(report.verdict, EXTANT_VERDICT_REPAIRED);
    EXPECT(report.findings, findings);
    EXPECT(report.repaired > 0, 1);
    EXPECT(extant_check(image, 7, NULL, NULL, &report), -EINVAL);
    return 0;
}
