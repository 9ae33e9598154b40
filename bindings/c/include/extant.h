/* libextant: ext4 in user space.
 *
 * Every call may be made by any thread at any time, also on the same handle.
 * A call that fails returns a negative number of errno.h, and extant_last_error() its text.
 * Paths and names are bytes that end with a 0; paths begin at the volume's root.
 * A handle that was closed is refused with -EBADF, whatever was opened since.
 *
 * Made by cbindgen from bindings/c/src; do not edit. */

#ifndef EXTANT_H
#define EXTANT_H

#include <stdint.h>
#include <stddef.h>

// extant_file_open: for reading.
#define EXTANT_READ 1

// extant_file_open: for writing.
#define EXTANT_WRITE 2

// extant_file_open: extant_file_write writes at the end.
#define EXTANT_APPEND 4

// extant_file_open: the file is made where it is missing.
#define EXTANT_CREATE 8

// extant_file_open: the file is made and was not there.
#define EXTANT_EXCLUSIVE 16

// extant_file_open: the file is emptied.
#define EXTANT_TRUNCATE 32

// extant_open: for changes too, with exclusive use of the image.
#define EXTANT_OPEN_WRITE 1

// Calls on paths: a symbolic link itself, and not the file that it leads to.
#define EXTANT_NOFOLLOW 1

// extant_rename: the new name must be free.
#define EXTANT_RENAME_NOREPLACE 1

// extant_rename: the two files exchange their names.
#define EXTANT_RENAME_EXCHANGE 2

// extant_setxattr: the attribute is not there yet.
#define EXTANT_XATTR_CREATE 1

// extant_setxattr: the attribute is there.
#define EXTANT_XATTR_REPLACE 2

// extant_chown: leaves the owner, or the group, as it is.
#define EXTANT_KEEP_ID UINT32_MAX

// extant_check: nothing is written.
#define EXTANT_REPAIR_NO 0

// extant_check: what loses nothing is repaired, as by e2fsck -p.
#define EXTANT_REPAIR_PREEN 1

// extant_check: all is repaired, as by e2fsck -y.
#define EXTANT_REPAIR_YES 2

// The state of a volume after a check.
enum extant_verdict {
  // No error was found.
  EXTANT_VERDICT_CLEAN = 0,
  // Errors were corrected, and none is left.
  EXTANT_VERDICT_REPAIRED = 1,
  // The journal has not been replayed.
  EXTANT_VERDICT_NEEDS_JOURNAL = 2,
  // Errors are left.
  EXTANT_VERDICT_DAMAGED = 3,
  // There is no volume that can be checked.
  EXTANT_VERDICT_UNREADABLE = 4,
};

// A volume that is open.
struct extant_fs {
  // The handle; 0 is never one.
  uint64_t handle;
};

// A directory that is read.
struct extant_dir {
  // The handle; 0 is never one.
  uint64_t handle;
};

// An entry of a directory.
struct extant_dirent {
  // Number of the inode.
  uint32_t inode;
  // The type, as the DT_ constants of dirent.h.
  uint8_t file_type;
  // Bytes of the name.
  uint8_t name_length;
  // The name, with a 0 at its end.
  uint8_t name[256];
};

// A file that is open.
struct extant_file {
  // The handle; 0 is never one.
  uint64_t handle;
};

// A time: seconds since 1970, negative before it, and nanoseconds after the second.
struct extant_time {
  // Seconds since 1970 in UTC.
  int64_t seconds;
  // Nanoseconds after the second.
  uint32_t nanoseconds;
};

// The attributes of a file.
struct extant_stat {
  // Bytes of its contents.
  uint64_t size;
  // Bytes of the volume that it takes.
  uint64_t space;
  // Last time that the contents were read.
  struct extant_time accessed;
  // Last change of the contents.
  struct extant_time modified;
  // Last change of the inode.
  struct extant_time changed;
  // When it was made; zeroes where the inode has no room for it.
  struct extant_time created;
  // Number of the inode.
  uint32_t inode;
  // Type and permissions, as st_mode.
  uint32_t mode;
  // Number of hard links.
  uint32_t links;
  // Owner.
  uint32_t uid;
  // Owning group.
  uint32_t gid;
  // Flags of the inode, as FS_IOC_GETFLAGS has them.
  uint32_t flags;
  // Major number of a device file.
  uint32_t device_major;
  // Minor number of a device file.
  uint32_t device_minor;
};

// Space and inodes of a volume.
struct extant_statfs {
  // Bytes of a block.
  uint64_t block_size;
  // Number of blocks that files can use.
  uint64_t blocks;
  // Number of free blocks.
  uint64_t free_blocks;
  // Number of free blocks that are not reserved.
  uint64_t available_blocks;
  // Number of inodes.
  uint64_t inodes;
  // Number of free inodes.
  uint64_t free_inodes;
  // Identity of the volume.
  uint8_t uuid[16];
};

// Something that a check found. Its strings are valid until the function returns.
struct extant_finding {
  // Name of the rule, which is stable.
  const char *code;
  // One sentence.
  const char *text;
  // The inode that it is about; 0 for none.
  uint32_t inode;
  // The pass that found it.
  uint32_t pass;
  // 1 if it was repaired, else 0.
  int repaired;
};

// A function that gets the findings of a check, in their order, in the thread of the call.
typedef void (*extant_finding_fn)(const struct extant_finding*, void*);

// The outcome of a check.
struct extant_report {
  // The state of the volume.
  enum extant_verdict verdict;
  // The exit code of e2fsck.
  int exit_code;
  // Number of findings.
  uint64_t findings;
  // Number of findings that were repaired.
  uint64_t repaired;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The library's version.
const char *extant_version(void);

// Opens a directory. *dir is set if it returns 0.
int extant_dir_open(struct extant_fs fs, const char *path, struct extant_dir *dir);

// The next entry, without . and ..: 1 if there was one, 0 at the end. After an error the entries
// that follow can still be read.
int extant_dir_read(struct extant_dir dir, struct extant_dirent *entry);

// Closes a directory.
int extant_dir_close(struct extant_dir dir);

// The text of the last call that failed in this thread; empty before the first. It is valid until
// the next call that fails in this thread, or the thread's end.
const char *extant_last_error(void);

// Opens a regular file. flags: EXTANT_READ and others; mode: the permissions of a new file, from
// which the umask 022 is taken. *file is set if it returns 0.
int extant_file_open(struct extant_fs fs,
                     const char *path,
                     uint32_t flags,
                     uint32_t mode,
                     struct extant_file *file);

// Closes a file. Calls on it that run come to their end.
int extant_file_close(struct extant_file file);

// Reads bytes at the position and moves it: how many there were, 0 at the end.
int64_t extant_file_read(struct extant_file file, uint8_t *buffer, size_t size);

// Reads bytes at an offset; the position stays.
int64_t extant_file_pread(struct extant_file file, uint8_t *buffer, size_t size, uint64_t offset);

// Writes bytes at the position and moves it: how many were written.
int64_t extant_file_write(struct extant_file file, const uint8_t *bytes, size_t size);

// Writes bytes at an offset; the position stays.
int64_t extant_file_pwrite(struct extant_file file,
                           const uint8_t *bytes,
                           size_t size,
                           uint64_t offset);

// Moves the position: the new one. whence: SEEK_SET, SEEK_CUR or SEEK_END of stdio.h.
int64_t extant_file_seek(struct extant_file file, int64_t offset, int whence);

// Makes the file shorter or longer; new bytes are zeroes, and a hole.
int extant_file_truncate(struct extant_file file, uint64_t size);

// Waits until contents and metadata are on the device; if data_only is not 0, until the contents
// are, with the metadata that are needed to read them.
int extant_file_sync(struct extant_file file, int data_only);

// Attributes of the file.
int extant_file_stat(struct extant_file file, struct extant_stat *result);

// Opens a volume: image is a path, or a device URL (disk.img#p2). flags: EXTANT_OPEN_WRITE.
// *fs is set if it returns 0.
int extant_open(const char *image, uint32_t flags, struct extant_fs *fs);

// Writes all changes and closes the volume; -EBUSY while files or directories of it are open. It
// waits for calls on the volume that run. After another error the handle is closed too.
int extant_close(struct extant_fs fs);

// Puts all changes on the device.
int extant_sync(struct extant_fs fs);

// Space and inodes of the volume.
int extant_statfs(struct extant_fs fs, struct extant_statfs *result);

// Attributes of a file. flags: EXTANT_NOFOLLOW.
int extant_stat_path(struct extant_fs fs,
                     const char *path,
                     uint32_t flags,
                     struct extant_stat *result);

// Makes a directory; the umask 022 is taken off the mode.
int extant_mkdir(struct extant_fs fs, const char *path, uint32_t mode);

// Removes an empty directory.
int extant_rmdir(struct extant_fs fs, const char *path);

// Removes a name of a file.
int extant_unlink(struct extant_fs fs, const char *path);

// Removes a directory and all below it.
int extant_remove_tree(struct extant_fs fs, const char *path);

// Renames a file. flags: EXTANT_RENAME_NOREPLACE or EXTANT_RENAME_EXCHANGE.
int extant_rename(struct extant_fs fs, const char *from, const char *to, uint32_t flags);

// Gives a file another name. A symbolic link is not followed.
int extant_link(struct extant_fs fs, const char *file, const char *name);

// Makes a symbolic link.
int extant_symlink(struct extant_fs fs, const char *target, const char *name);

// The target of a symbolic link, without a 0 at its end: its length. As much of it as fits is in
// the buffer; size 0 asks for the length alone.
int64_t extant_readlink(struct extant_fs fs, const char *path, uint8_t *buffer, size_t size);

// Makes a device file, a named pipe or a socket: the type is in the mode, as with mknod.
int extant_mknod(struct extant_fs fs,
                 const char *path,
                 uint32_t mode,
                 uint32_t device_major,
                 uint32_t device_minor);

// Sets permissions, with setuid, setgid and sticky.
int extant_chmod(struct extant_fs fs, const char *path, uint32_t mode);

// Sets owner and group, except for EXTANT_KEEP_ID. flags: EXTANT_NOFOLLOW.
int extant_chown(struct extant_fs fs, const char *path, uint32_t uid, uint32_t gid, uint32_t flags);

// Sets the times of reading and of change. A null pointer leaves one as it is. flags:
// EXTANT_NOFOLLOW.
int extant_set_times(struct extant_fs fs,
                     const char *path,
                     const struct extant_time *accessed,
                     const struct extant_time *modified,
                     uint32_t flags);

// Makes a file shorter or longer.
int extant_truncate(struct extant_fs fs, const char *path, uint64_t size);

// The value of an extended attribute: its length. As much of it as fits is in the buffer; size 0
// asks for the length alone.
int64_t extant_getxattr(struct extant_fs fs,
                        const char *path,
                        const char *name,
                        uint8_t *buffer,
                        size_t size);

// The names of the extended attributes, each with a 0 at its end: the length of all. As with
// extant_getxattr.
int64_t extant_listxattr(struct extant_fs fs, const char *path, uint8_t *buffer, size_t size);

// Sets an extended attribute. flags: EXTANT_XATTR_CREATE or EXTANT_XATTR_REPLACE.
int extant_setxattr(struct extant_fs fs,
                    const char *path,
                    const char *name,
                    const uint8_t *value,
                    size_t size,
                    uint32_t flags);

// Removes an extended attribute.
int extant_removexattr(struct extant_fs fs, const char *path, const char *name);

// Makes a file system: in a new file of size bytes, or if size is 0 on what is there. options are
// the words of mke2fs's command line, and a null pointer after the last; a null list is empty. A
// new file gets its name when it is whole.
int extant_mkfs(const char *image, uint64_t size, const char *const *options);

// Checks a volume as e2fsck -f does. repairs: EXTANT_REPAIR_NO, _PREEN or _YES. What is wrong with
// the volume is in the report and not an error of the call: it fails if the image cannot be
// opened. on_finding may be null.
int extant_check(const char *image,
                 uint32_t repairs,
                 extant_finding_fn on_finding,
                 void *argument,
                 struct extant_report *report);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* EXTANT_H */
