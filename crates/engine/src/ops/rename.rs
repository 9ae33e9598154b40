//! Renames.
//!
//! Renames of directories between two directories take the volume's rename lock: while it is held,
//! no directory's ancestors change, so that the directories can be locked from the top down and no
//! directory is moved below itself. Other files need no such care: their two directories are locked
//! without waiting for one while the other is held.

use super::namespace::{
    check_gives_names, check_is_no_locked_dir, check_loses_name, check_own_name, check_project,
    check_takes_names, one_more_subdir, one_subdir_less, touch,
};
use super::{Credentials, credits};
use crate::edit::{Edit, write_loaded};
use crate::engine::Engine;
use crate::engine::inodes::{CachedInode, InodeWrite, LockClass};
use crate::engine::operation::Operation;
use crate::write::dir::{self, Vacancy};
use extant_journal::FastNameChange;
use extant_ondisk::dirent::FileType as EntryType;
use extant_ondisk::{Flaw, InodeNo, Location};
use extant_reader::Error;
use extant_reader::read::dir::BrokenIndex;
use extant_reader::read::dir::{locate, lookup};
use extant_reader::read::dir_block::{EntryLocation, EntryTarget};
use extant_reader::read::inode::LoadedInode;
use extant_runtime::sync::Arc;
use std::collections::HashSet;

bitflags::bitflags! {
    /// How a rename deals with a new name that is taken.
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
    pub struct RenameFlags: u32 {
        /// It fails.
        const NOREPLACE = 0x1;
        /// The two files exchange their names.
        const EXCHANGE = 0x2;
        /// A character device of the number 0:0 takes the old name: for overlayfs it marks a
        /// removed name.
        const WHITEOUT = 0x4;
    }
}

/// How often two directories are locked one after the other before the rename lock is waited for.
const TRIES: u32 = 16;

/// A name in a directory.
#[derive(Clone, Copy)]
struct Name<'a> {
    dir: InodeNo,
    name: &'a [u8],
}

/// The directories of both names, locked; one where they are the same.
struct Dirs<'a> {
    from: InodeWrite<'a>,
    to: Option<InodeWrite<'a>>,
}

impl Dirs<'_> {
    fn to(&mut self) -> &mut LoadedInode {
        match &mut self.to {
            Some(to) => to,
            None => &mut self.from,
        }
    }
}

/// A file that is renamed, or whose name is taken.
struct Renamed {
    found: EntryTarget,
    file: Arc<CachedInode>,
    is_dir: bool,
}

impl Renamed {
    fn key(&self) -> (LockClass, InodeNo) {
        (if self.is_dir { LockClass::Child } else { LockClass::File }, self.found.inode)
    }
}

impl Renamed {
    /// Whether the file has the type that its record states.
    fn check(&self, inode: &LoadedInode) -> Result<(), Error> {
        if inode.is_dir() != self.is_dir {
            let flaw = Flaw::Rule("file type in directory entry is wrong");
            return Err(flaw.at(Location::Inode(self.found.inode)).into());
        }
        Ok(())
    }
}

/// Where the old name is, and where the new one goes: good as long as the directories are locked
/// and do not change.
#[derive(Clone, Copy)]
struct Places {
    old: EntryLocation,
    new: Vacancy,
}

/// How a rename ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Renames {
    Done,
    /// Nothing was done: a directory is to be moved, which takes more locks.
    Directory,
}

/// Which of two directories is above the other, and what lies below it on the path.
enum DirectoryRelation {
    /// The old name's, with the directory in it that leads to the new name's.
    FromAbove(InodeNo),
    /// The new name's, with the directory in it that leads to the old name's.
    ToAbove(InodeNo),
    None,
}

impl Engine {
    /// Renames a file: `name` of `dir` becomes `to_name` of `to_dir`. The file that had the new
    /// name is replaced, unless the flags say otherwise. Two names of one file stay as they are.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Exists`] as the flags say, [`Error::NotADirectory`] and
    /// [`Error::IsADirectory`] if a directory would replace another file or the reverse,
    /// [`Error::NotEmpty`], [`Error::Invalid`] for a directory that would go below itself,
    /// [`Error::TooManyLinks`], [`Error::CrossesBoundary`], and as [`Self::create`].
    pub fn rename(
        &self,
        dir: InodeNo,
        name: &[u8],
        to_dir: InodeNo,
        to_name: &[u8],
        flags: RenameFlags,
    ) -> Result<(), Error> {
        self.rename_by((dir, name), (to_dir, to_name), flags, &Credentials::ROOT)
    }

    /// As [`Self::rename`]; `by` owns a whiteout at the old name.
    ///
    /// # Errors
    /// As [`Self::rename`].
    pub fn rename_by(
        &self,
        (dir, name): (InodeNo, &[u8]),
        (to_dir, to_name): (InodeNo, &[u8]),
        flags: RenameFlags,
        by: &Credentials,
    ) -> Result<(), Error> {
        let excludes = RenameFlags::NOREPLACE | RenameFlags::WHITEOUT;
        if flags.contains(RenameFlags::EXCHANGE) && flags.intersects(excludes) {
            return Err(Error::Invalid("EXCHANGE cannot be combined with NOREPLACE or WHITEOUT"));
        }
        let (from, to) = (Name { dir, name }, Name { dir: to_dir, name: to_name });
        self.with_space(|| self.rename_once(from, to, (flags, by)))
    }

    fn rename_once(
        &self,
        from: Name<'_>,
        to: Name<'_>,
        flags: (RenameFlags, &Credentials),
    ) -> Result<(), Error> {
        let (from_dir, to_dir) = (self.inodes.get(from.dir), self.inodes.get(to.dir));
        if from.dir == to.dir {
            let dirs = Dirs { from: from_dir.write(self, LockClass::Dir)?, to: None };
            return self.rename_in(dirs, from, to, Some(&DirectoryRelation::None), flags).map(drop);
        }
        if let Some(dirs) = self.try_lock_dirs(&from_dir, &to_dir)?
            && self.rename_in(dirs, from, to, None, flags)? == Renames::Done
        {
            return Ok(());
        }
        let _renames = self.renames.lock();
        let relation = self.relation(from.dir, to.dir)?;
        let dirs = self.lock_dirs(&from_dir, &to_dir, from, to, &relation)?;
        self.rename_in(dirs, from, to, Some(&relation), flags).map(drop)
    }

    /// Renames in locked directories. As long as it is not known how these are related, nothing is
    /// done that moves a directory.
    fn rename_in(
        &self,
        mut dirs: Dirs<'_>,
        from: Name<'_>,
        to: Name<'_>,
        relation: Option<&DirectoryRelation>,
        (flags, by): (RenameFlags, &Credentials),
    ) -> Result<Renames, Error> {
        dirs.from.as_dir()?;
        dirs.to().as_dir()?;
        check_own_name(from.name)?;
        check_own_name(to.name)?;
        let (source, target, places) = self.find_both(&mut dirs, from, to)?;
        match &target {
            None if flags.contains(RenameFlags::EXCHANGE) => return Err(Error::NotFound),
            Some(_) if flags.contains(RenameFlags::NOREPLACE) => return Err(Error::Exists),
            Some(target) if target.found.inode == source.found.inode => return Ok(Renames::Done),
            _ => {}
        }
        check_gives_names(&dirs.from)?;
        check_takes_names(dirs.to())?;
        match relation {
            Some(relation) => check_apart(&source, target.as_ref(), relation, flags)?,
            None if source.is_dir || target.as_ref().is_some_and(|target| target.is_dir) => {
                return Ok(Renames::Directory);
            }
            None => {}
        }
        for renamed in std::iter::once(&source).chain(&target) {
            check_is_no_locked_dir(renamed.found.inode, &[from.dir, to.dir])?;
        }
        let whiteout = flags.contains(RenameFlags::WHITEOUT).then_some(by);
        let Some(target) = target else {
            let (as_what, _) = source.key();
            let inode = source.file.write(self, as_what)?;
            source.check(&inode)?;
            self.move_to(dirs, from, to, (places, whiteout), (&source, inode), None)?;
            return Ok(Renames::Done);
        };
        let (source_key, target_key) = (source.key(), target.key());
        let is_source_first =
            (source_key.0 as u32, source_key.1) < (target_key.0 as u32, target_key.1);
        let (inode, other) = if is_source_first {
            let inode = source.file.write(self, source_key.0)?;
            (inode, target.file.write(self, target_key.0)?)
        } else {
            let other = target.file.write(self, target_key.0)?;
            (source.file.write(self, source_key.0)?, other)
        };
        source.check(&inode)?;
        target.check(&other)?;
        if flags.contains(RenameFlags::EXCHANGE) {
            self.exchange(dirs, from, to, (&source, inode), (&target, other))?;
        } else {
            let replaced = Some((&target, other));
            self.move_to(dirs, from, to, (places, whiteout), (&source, inode), replaced)?;
        }
        Ok(Renames::Done)
    }

    /// Locks two directories wherever they lie, without waiting for one while the other is held;
    /// `None` where others were in the way again and again.
    fn try_lock_dirs<'a>(
        &self,
        from_dir: &'a CachedInode,
        to_dir: &'a CachedInode,
    ) -> Result<Option<Dirs<'a>>, Error> {
        for turn in 0..TRIES {
            if turn % 2 == 0 {
                let from = from_dir.write(self, LockClass::Dir)?;
                if let Some(to) = to_dir.try_write(self, LockClass::SecondDir)? {
                    return Ok(Some(Dirs { from, to: Some(to) }));
                }
            } else {
                let to = to_dir.write(self, LockClass::Dir)?;
                if let Some(from) = from_dir.try_write(self, LockClass::SecondDir)? {
                    return Ok(Some(Dirs { from, to: Some(to) }));
                }
            }
        }
        Ok(None)
    }

    /// Which of the directories is above the other. The rename lock is held, so that it stays so.
    fn relation(&self, from: InodeNo, to: InodeNo) -> Result<DirectoryRelation, Error> {
        if from == to {
            return Ok(DirectoryRelation::None);
        }
        if let Some(below) = self.way_down(from, to)? {
            return Ok(DirectoryRelation::FromAbove(below));
        }
        Ok(self.way_down(to, from)?.map_or(DirectoryRelation::None, DirectoryRelation::ToAbove))
    }

    /// The directory in `above` that leads to `below`, or is it; `None` when `below` lies
    /// elsewhere.
    fn way_down(&self, above: InodeNo, below: InodeNo) -> Result<Option<InodeNo>, Error> {
        let mut seen = HashSet::new();
        let mut at = below;
        while at != InodeNo::ROOT {
            let parent = self.with_inode(at, |dir| {
                dir.as_dir()?;
                if dir.links == 0 {
                    return Err(Error::NotFound);
                }
                lookup(self, dir, b"..", BrokenIndex::Report)
            });
            let parent = match parent {
                Err(Error::FreeInode(_)) => return Err(Error::NotFound),
                other => other?.inode,
            };
            if parent == above {
                return Ok(Some(at));
            }
            if !seen.insert(parent) {
                let flaw = Flaw::Rule("directory loop");
                return Err(flaw.at(Location::Inode(parent)).into());
            }
            at = parent;
        }
        Ok(None)
    }

    /// Locks the directories: the one above first, or else the one with the smaller number.
    fn lock_dirs<'a>(
        &self,
        from_dir: &'a CachedInode,
        to_dir: &'a CachedInode,
        from: Name<'_>,
        to: Name<'_>,
        relation: &DirectoryRelation,
    ) -> Result<Dirs<'a>, Error> {
        if from.dir == to.dir {
            return Ok(Dirs { from: from_dir.write(self, LockClass::Dir)?, to: None });
        }
        let is_from_first = match relation {
            DirectoryRelation::FromAbove(_) => true,
            DirectoryRelation::ToAbove(_) => false,
            DirectoryRelation::None => from.dir < to.dir,
        };
        if is_from_first {
            let from = from_dir.write(self, LockClass::Dir)?;
            Ok(Dirs { from, to: Some(to_dir.write(self, LockClass::SecondDir)?) })
        } else {
            let to = to_dir.write(self, LockClass::Dir)?;
            Ok(Dirs { from: from_dir.write(self, LockClass::SecondDir)?, to: Some(to) })
        }
    }

    /// The file with the old name, and the one with the new name.
    fn find_both(
        &self,
        dirs: &mut Dirs<'_>,
        from: Name<'_>,
        to: Name<'_>,
    ) -> Result<(Renamed, Option<Renamed>, Places), Error> {
        let old = locate(self, &dirs.from, from.name, BrokenIndex::Report)?;
        let source = self.renamed(old.found)?;
        let is_same_but_case = dirs.to.is_none()
            && from.name != to.name
            && self.sizes.info.casefold.is_some_and(|casefold| {
                dirs.from.is_casefolded() && casefold.is_same(from.name, to.name)
            });
        if is_same_but_case {
            return Ok((source, None, Places { old, new: Vacancy::default() }));
        }
        match dir::vacancy(self, dirs.to(), to.name) {
            Ok(new) => Ok((source, None, Places { old, new })),
            Err(Error::Exists) => {
                let found = lookup(self, dirs.to(), to.name, BrokenIndex::Report)?;
                let target = self.renamed(found)?;
                Ok((source, Some(target), Places { old, new: Vacancy::default() }))
            }
            Err(error) => Err(error),
        }
    }

    /// A file found in a locked directory: it is not removed while the lock is held, and its type
    /// never changes.
    fn renamed(&self, found: EntryTarget) -> Result<Renamed, Error> {
        let file = self.inodes.get(found.inode);
        // A broken volume may name a directory inside itself; it is locked already then.
        let is_dir = if found.file_type == EntryType::Unknown {
            extant_reader::read::inode::load(self, found.inode)?.is_dir()
        } else {
            found.file_type == EntryType::Directory
        };
        Ok(Renamed { found, file, is_dir })
    }

    /// Moves a file to a new name, in place of what has it.
    fn move_to(
        &self,
        mut dirs: Dirs<'_>,
        from: Name<'_>,
        to: Name<'_>,
        (places, whiteout): (Places, Option<&Credentials>),
        (source, mut inode): (&Renamed, InodeWrite<'_>),
        replaced: Option<(&Renamed, InodeWrite<'_>)>,
    ) -> Result<(), Error> {
        check_loses_name(&inode)?;
        check_project(dirs.to(), &inode)?;
        let moves_dir = source.is_dir && dirs.to.is_some();
        if let Some((target, other)) = &replaced {
            check_gives_names(dirs.to())?;
            check_loses_name(other)?;
            match (source.is_dir, target.is_dir) {
                (false, true) => return Err(Error::IsADirectory),
                (true, false) => return Err(Error::NotADirectory),
                (true, true) if !dir::is_empty(self, other)? => return Err(Error::NotEmpty),
                _ => {}
            }
        } else if moves_dir {
            self.check_takes_subdir(dirs.to())?;
        }
        if replaced.is_some() && self.options.auto_da_alloc {
            // A reader that sees the new file under the name sees its data.
            self.write_back(&source.file, &mut inode);
        }
        let credits = credits::insert_name(dirs.to())
            + 2 * credits::REMOVE_NAME
            + 2 * credits::INODE
            + 1
            + replaced.as_ref().map_or(0, |(_, other)| self.delete_credits(other))
            + whiteout.map_or(0, |_| credits::INODE_NUMBER + credits::quotas(self));
        let mut edit = self.edit(credits)?;
        let whiteout = match whiteout {
            Some(by) => {
                edit = edit.privileged(by.is_privileged);
                Some(self.make_whiteout(&mut edit, &dirs.from, by)?)
            }
            None => None,
        };
        if !source.is_dir && whiteout.is_none() {
            let source = source.found.inode;
            if let Some((target, _)) = &replaced {
                let inode = target.found.inode;
                edit.name_changed(FastNameChange::Unlink, to.dir, inode, to.name);
            }
            edit.name_changed(FastNameChange::Link, to.dir, source, to.name);
            edit.name_changed(FastNameChange::Unlink, from.dir, source, from.name);
        }
        let names = (places, whiteout, replaced.is_some());
        self.change_names(&mut edit, &mut dirs, from, to, names)?;
        if replaced.as_ref().is_some_and(|(target, _)| target.is_dir) {
            dirs.to().inode.links = one_subdir_less(dirs.to().links);
        }
        if moves_dir {
            let parent = EntryTarget { inode: to.dir, file_type: EntryType::Directory };
            dir::replace(&mut edit, &mut inode, b"..", parent)?;
            dirs.from.inode.links = one_subdir_less(dirs.from.links);
            dirs.to().inode.links = one_more_subdir(dirs.to().links);
        }
        inode.inode.ctime = edit.now();
        write_loaded(&mut edit, &inode)?;
        store_dirs(&mut edit, &mut dirs)?;
        if let Some((target, mut other)) = replaced {
            other.inode.links = if target.is_dir { 0 } else { other.links - 1 };
            other.inode.ctime = edit.now();
            if other.links == 0 {
                return self.drop_file(edit, &target.file, other, (inode, dirs));
            }
            write_loaded(&mut edit, &other)?;
            edit.finish();
        } else {
            edit.finish();
        }
        Ok(())
    }

    /// Puts the file under its new name and takes the old one away.
    fn change_names(
        &self,
        edit: &mut Operation<'_>,
        dirs: &mut Dirs<'_>,
        from: Name<'_>,
        to: Name<'_>,
        (places, whiteout, replaces): (Places, Option<EntryTarget>, bool),
    ) -> Result<(), Error> {
        let source = places.old.found;
        if replaces {
            dir::replace(edit, dirs.to(), to.name, source)?;
            return match whiteout {
                Some(whiteout) => dir::replace(edit, &mut dirs.from, from.name, whiteout).map(drop),
                None => dir::remove(edit, &mut dirs.from, from.name).map(drop),
            };
        }
        if self.sizes.info.casefold.is_some() && dirs.to.is_none() && dirs.from.is_casefolded() {
            // The two may be one name for the directory.
            dir::remove(edit, &mut dirs.from, from.name)?;
            return dir::insert(edit, &mut dirs.from, to.name, source);
        }
        dir::insert_new(edit, dirs.to(), to.name, source, places.new)?;
        // Where room had to be made for the new name, the old one may have moved.
        match whiteout {
            Some(whiteout) => dir::replace(edit, &mut dirs.from, from.name, whiteout).map(drop),
            None if dirs.to.is_some() || places.new.is_some() => {
                dir::remove_located(edit, &mut dirs.from, places.old).map(drop)
            }
            None => dir::remove(edit, &mut dirs.from, from.name).map(drop),
        }
    }

    /// Two files take each other's name.
    fn exchange(
        &self,
        mut dirs: Dirs<'_>,
        from: Name<'_>,
        to: Name<'_>,
        (source, mut inode): (&Renamed, InodeWrite<'_>),
        (target, mut other): (&Renamed, InodeWrite<'_>),
    ) -> Result<(), Error> {
        check_gives_names(dirs.to())?;
        check_loses_name(&inode)?;
        check_loses_name(&other)?;
        check_project(dirs.to(), &inode)?;
        check_project(&dirs.from, &other)?;
        let crosses = dirs.to.is_some();
        if crosses && source.is_dir != target.is_dir {
            let grows = if source.is_dir { dirs.to() } else { &mut dirs.from };
            self.check_takes_subdir(grows)?;
        }
        let mut edit = self.edit(2 * credits::REMOVE_NAME + 4 * credits::INODE + 2)?;
        dir::replace(&mut edit, dirs.to(), to.name, source.found)?;
        dir::replace(&mut edit, &mut dirs.from, from.name, target.found)?;
        if crosses {
            for (renamed, moved, new_parent) in
                [(source, &mut inode, to.dir), (target, &mut other, from.dir)]
            {
                if renamed.is_dir {
                    let parent = EntryTarget { inode: new_parent, file_type: EntryType::Directory };
                    dir::replace(&mut edit, moved, b"..", parent)?;
                }
            }
            if source.is_dir && !target.is_dir {
                dirs.from.inode.links = one_subdir_less(dirs.from.links);
                dirs.to().inode.links = one_more_subdir(dirs.to().links);
            }
            if target.is_dir && !source.is_dir {
                dirs.to().inode.links = one_subdir_less(dirs.to().links);
                dirs.from.inode.links = one_more_subdir(dirs.from.links);
            }
        }
        let now = edit.now();
        inode.inode.ctime = now;
        other.inode.ctime = now;
        write_loaded(&mut edit, &inode)?;
        write_loaded(&mut edit, &other)?;
        store_dirs(&mut edit, &mut dirs)?;
        edit.finish();
        Ok(())
    }
}

/// Refuses what would put a directory below itself, or in place of one above it.
fn check_apart(
    source: &Renamed,
    target: Option<&Renamed>,
    relation: &DirectoryRelation,
    flags: RenameFlags,
) -> Result<(), Error> {
    match relation {
        DirectoryRelation::FromAbove(below) if source.found.inode == *below => {
            Err(Error::Invalid("cannot move a directory into itself"))
        }
        DirectoryRelation::ToAbove(below)
            if target.is_some_and(|target| target.found.inode == *below) =>
        {
            Err(if flags.contains(RenameFlags::EXCHANGE) {
                Error::Invalid("cannot move a directory into itself")
            } else {
                Error::NotEmpty
            })
        }
        _ => Ok(()),
    }
}

/// Both directories changed now.
fn store_dirs(edit: &mut Operation<'_>, dirs: &mut Dirs<'_>) -> Result<(), Error> {
    touch(edit, &mut dirs.from);
    match &mut dirs.to {
        Some(to) => {
            touch(edit, to);
            write_loaded(edit, to)?;
        }
        // Two of its names have changed.
        None => dirs.from.inode.count_change(),
    }
    write_loaded(edit, &dirs.from)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Credentials, Volume, VolumeOptions};
    use extant_device::MemoryDevice;
    use extant_reader::VolumeRead;
    use extant_runtime::env::Env;
    use extant_testkit::{TempImage, skip};

    /// Debug builds panic where a lock is taken twice.
    #[test]
    fn files_change_their_directory_while_others_rename_directories() {
        let image = match TempImage::by_mke2fs(4 << 20, &["-t", "ext4"]) {
            Ok(image) => image,
            Err(why) => skip!("{why}"),
        };
        let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(image.path()).unwrap()));
        let options = VolumeOptions::default();
        let volume = Volume::open(device, &Env::stepped(1), &options).unwrap();
        let root = InodeNo::ROOT;
        let dir = volume.mkdir(root, b"dir", 0o755, &Credentials::ROOT).unwrap().number;
        volume.create(root, b"file", 0o644, &Credentials::ROOT).unwrap();
        volume.create(dir, b"other", 0o644, &Credentials::ROOT).unwrap();
        {
            let _renames = volume.renames.lock();
            volume.rename(root, b"file", dir, b"file", RenameFlags::empty()).unwrap();
            volume.rename(dir, b"other", root, b"other", RenameFlags::empty()).unwrap();
            volume.rename(root, b"other", dir, b"file", RenameFlags::EXCHANGE).unwrap();
        }
        volume.lookup(dir, b"file").unwrap();
        volume.close().unwrap();
    }
}
