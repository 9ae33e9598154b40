//! The requests of debugfs, all of them: their names, what they do, and our function.

use Handler::{Does, Helps, Lists, Refused};

use super::shell::{Done, Shell};
use super::words::Word;
use super::{
    attributes, bits, checks, dump, free_space, index, init_filesys, inodes, journal, list, maps,
    modify, names, navigate, raw, records, stat, stats, super_fields,
};

/// The function of a request.
#[derive(Clone, Copy)]
pub(super) enum Handler {
    /// This function, with the words of the line.
    Does(fn(&mut Shell<'_>, &[Word]) -> Done),
    /// The list of requests.
    Lists,
    /// The lines of a request in it.
    Helps,
    /// Nothing: it is refused by name.
    Refused,
}

/// A request.
pub(super) struct Request {
    /// Its names.
    pub(super) names: &'static [&'static str],
    about: &'static str,
    pub(super) run: Handler,
}

/// The column in which a list shows what requests do.
const COLUMN: usize = 25;

pub(super) const REQUESTS: [Request; 78] = [
    Request {
        names: &["show_debugfs_params", "params"],
        about: "Show debugfs parameters",
        run: Does(stats::params),
    },
    Request {
        names: &["open_filesys", "open"],
        about: "Open a filesystem",
        run: Does(navigate::open),
    },
    Request {
        names: &["close_filesys", "close"],
        about: "Close the filesystem",
        run: Does(navigate::close),
    },
    Request {
        names: &["freefrag", "e2freefrag"],
        about: "Report free space fragmentation",
        run: Does(free_space::freefrag),
    },
    Request {
        names: &["feature", "features"],
        about: "Set/print superblock features",
        run: Does(stats::features),
    },
    Request {
        names: &["dirty_filesys", "dirty"],
        about: "Mark the filesystem as dirty",
        run: Does(super_fields::dirty),
    },
    Request {
        names: &["init_filesys"],
        about: "Initialize a filesystem (DESTROYS DATA)",
        run: Does(init_filesys::init_filesys),
    },
    Request {
        names: &["show_super_stats", "stats"],
        about: "Show superblock statistics",
        run: Does(stats::stats),
    },
    Request { names: &["ncheck"], about: "Do inode->name translation", run: Does(checks::ncheck) },
    Request { names: &["icheck"], about: "Do block->inode translation", run: Does(checks::icheck) },
    Request {
        names: &["change_root_directory", "chroot"],
        about: "Change root directory",
        run: Does(navigate::chroot),
    },
    Request {
        names: &["change_working_directory", "cd"],
        about: "Change working directory",
        run: Does(navigate::cd),
    },
    Request { names: &["list_directory", "ls"], about: "List directory", run: Does(list::ls) },
    Request {
        names: &["show_inode_info", "stat"],
        about: "Show inode information ",
        run: Does(stat::stat),
    },
    Request {
        names: &["dump_extents", "extents", "ex"],
        about: "Dump extents information ",
        run: Does(maps::dump_extents),
    },
    Request { names: &["blocks"], about: "Dump blocks used by an inode ", run: Does(maps::blocks) },
    Request {
        names: &["filefrag"],
        about: "Report fragmentation information for an inode",
        run: Does(maps::filefrag),
    },
    Request { names: &["link", "ln"], about: "Create directory link", run: Does(names::ln) },
    Request { names: &["unlink"], about: "Delete a directory link", run: Does(names::unlink) },
    Request { names: &["mkdir"], about: "Create a directory", run: Does(names::mkdir) },
    Request { names: &["rmdir"], about: "Remove a directory", run: Does(names::rmdir) },
    Request {
        names: &["rm"],
        about: "Remove a file (unlink and kill_file, if appropriate)",
        run: Does(names::rm),
    },
    Request {
        names: &["kill_file"],
        about: "Deallocate an inode and its blocks",
        run: Does(inodes::kill_file),
    },
    Request {
        names: &["copy_inode"],
        about: "Copy the inode structure",
        run: Does(inodes::copy_inode),
    },
    Request { names: &["clri"], about: "Clear an inode's contents", run: Does(inodes::clri) },
    Request { names: &["freei"], about: "Clear an inode's in-use flag", run: Does(inodes::freei) },
    Request { names: &["seti"], about: "Set an inode's in-use flag", run: Does(inodes::seti) },
    Request { names: &["testi"], about: "Test an inode's in-use flag", run: Does(bits::testi) },
    Request { names: &["freeb"], about: "Clear a block's in-use flag", run: Does(inodes::freeb) },
    Request { names: &["setb"], about: "Set a block's in-use flag", run: Does(inodes::setb) },
    Request { names: &["testb"], about: "Test a block's in-use flag", run: Does(bits::testb) },
    Request {
        names: &["modify_inode", "mi"],
        about: "Modify an inode by structure",
        run: Does(modify::modify_inode),
    },
    Request {
        names: &["find_free_block", "ffb"],
        about: "Find free block(s)",
        run: Does(bits::ffb),
    },
    Request {
        names: &["find_free_inode", "ffi"],
        about: "Find free inode(s)",
        run: Does(bits::ffi),
    },
    Request {
        names: &["print_working_directory", "pwd"],
        about: "Print current working directory",
        run: Does(navigate::pwd),
    },
    Request {
        names: &["expand_dir", "expand"],
        about: "Expand directory",
        run: Does(modify::expand_dir),
    },
    Request { names: &["mknod"], about: "Create a special file", run: Does(names::mknod) },
    Request {
        names: &["list_deleted_inodes", "lsdel"],
        about: "List deleted inodes",
        run: Does(checks::lsdel),
    },
    Request { names: &["undelete", "undel"], about: "Undelete file", run: Does(modify::undelete) },
    Request {
        names: &["write"],
        about: "Copy a file from your native filesystem",
        run: Does(names::write),
    },
    Request {
        names: &["dump_inode", "dump"],
        about: "Dump an inode out to a file",
        run: Does(dump::dump),
    },
    Request { names: &["cat"], about: "Dump an inode out to stdout", run: Does(dump::cat) },
    Request {
        names: &["lcd"],
        about: "Change the current directory on your native filesystem",
        run: Does(navigate::lcd),
    },
    Request {
        names: &["rdump"],
        about: "Recursively dump a directory to the native filesystem",
        run: Does(dump::rdump),
    },
    Request {
        names: &["set_super_value", "ssv"],
        about: "Set superblock value",
        run: Does(super_fields::set_super_value),
    },
    Request {
        names: &["set_inode_field", "sif"],
        about: "Set inode field",
        run: Does(inodes::set_inode_field),
    },
    Request {
        names: &["set_block_group", "set_bg"],
        about: "Set block group descriptor field",
        run: Does(super_fields::set_block_group),
    },
    Request {
        names: &["logdump"],
        about: "Dump the contents of the journal",
        run: Does(journal::logdump),
    },
    Request {
        names: &["htree_dump", "htree"],
        about: "Dump a hash-indexed directory",
        run: Does(index::htree_dump),
    },
    Request {
        names: &["dx_hash", "hash"],
        about: "Calculate the directory hash of a filename",
        run: Does(index::dx_hash),
    },
    Request {
        names: &["dirsearch"],
        about: "Search a directory for a particular filename",
        run: Does(index::dirsearch),
    },
    Request {
        names: &["bmap"],
        about: "Calculate the logical->physical block mapping for an inode",
        run: Does(maps::bmap),
    },
    Request {
        names: &["fallocate"],
        about: "Allocate uninitialized blocks to an inode",
        run: Does(names::fallocate),
    },
    Request {
        names: &["punch", "truncate"],
        about: "Punch (or truncate) blocks from an inode by deallocating them",
        run: Does(names::punch),
    },
    Request { names: &["symlink"], about: "Create a symbolic link", run: Does(names::symlink) },
    Request {
        names: &["imap"],
        about: "Calculate the location of an inode",
        run: Does(bits::imap),
    },
    Request {
        names: &["dump_unused"],
        about: "Dump unused blocks",
        run: Does(free_space::dump_unused),
    },
    Request {
        names: &["set_current_time"],
        about: "Set current time to use when setting filesystem fields",
        run: Does(super_fields::set_current_time),
    },
    Request {
        names: &["supported_features"],
        about: "Print features supported by this version of e2fsprogs",
        run: Does(stats::supported_features),
    },
    Request { names: &["dump_mmp"], about: "Dump MMP information", run: Does(records::dump_mmp) },
    Request {
        names: &["set_mmp_value", "smmp"],
        about: "Set MMP value",
        run: Does(modify::set_mmp_value),
    },
    Request {
        names: &["extent_open", "eo"],
        about: "Open inode for extent manipulation",
        run: Refused,
    },
    Request {
        names: &["zap_block", "zap"],
        about: "Zap block: fill with 0, pattern, flip bits etc.",
        run: Does(inodes::zap_block),
    },
    Request {
        names: &["block_dump", "bdump", "bd"],
        about: "Dump contents of a block",
        run: Does(raw::block_dump),
    },
    Request {
        names: &["ea_list"],
        about: "List extended attributes of an inode",
        run: Does(attributes::ea_list),
    },
    Request {
        names: &["ea_get"],
        about: "Get an extended attribute of an inode",
        run: Does(attributes::ea_get),
    },
    Request {
        names: &["ea_set"],
        about: "Set an extended attribute of an inode",
        run: Does(attributes::ea_set),
    },
    Request {
        names: &["ea_rm"],
        about: "Remove an extended attribute of an inode",
        run: Does(attributes::ea_rm),
    },
    Request { names: &["list_quota", "lq"], about: "List quota", run: Does(records::list_quota) },
    Request { names: &["get_quota", "gq"], about: "Get quota", run: Does(records::get_quota) },
    Request {
        names: &["inode_dump", "idump", "id"],
        about: "Dump the inode structure in hex",
        run: Does(raw::inode_dump),
    },
    Request { names: &["journal_open", "jo"], about: "Open the journal", run: Refused },
    Request { names: &["journal_close", "jc"], about: "Close the journal", run: Refused },
    Request {
        names: &["journal_write", "jw"],
        about: "Write a transaction to the journal",
        run: Refused,
    },
    Request { names: &["journal_run", "jr"], about: "Recover the journal", run: Refused },
    Request { names: &["help"], about: "Display info on command or topic.", run: Helps },
    Request { names: &["list_requests", "lr", "?"], about: "List available commands.", run: Lists },
    Request { names: &["quit", "q"], about: "Leave the subsystem.", run: Does(navigate::quit) },
];

/// The request of a name.
pub(super) fn find(name: &[u8]) -> Option<&'static Request> {
    REQUESTS.iter().find(|request| request.names.iter().any(|it| it.as_bytes() == name))
}

impl Request {
    /// Its lines in a list of requests.
    pub(super) fn lines(&self) -> String {
        let names = self.names.join(", ");
        match names.len() < COLUMN {
            true => format!("{names:<COLUMN$}{}\n", self.about),
            false => format!("{names}\n{:COLUMN$}{}\n", "", self.about),
        }
    }
}
