//! Random histories by a seed.

use super::acl::{AclEntry, AclTag};
use super::flags::{self, KEPT};
use super::model::LOST_AND_FOUND;
use super::{
    Answer, CAPABILITY, Call, Credentials, Expected, Fallocate, FileId, History, Model, Moment,
    NodeKind, RenameHow, Rules, Step, XattrHow,
};
use crate::Kind;
use crate::tree::Random;

/// Maximum depth of nested directories.
const DEPTH: usize = 6;
/// Number of files above which removals are as frequent as creations.
const CROWDED: usize = 60;

/// Families of calls.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(missing_docs, reason = "named after their calls")]
pub enum Family {
    Creates,
    Nodes,
    Directories,
    Symlinks,
    TempFiles,
    Links,
    Removals,
    Renames,
    Holds,
    Queries,
    Writes,
    Reads,
    Truncates,
    Fallocates,
    Seeks,
    Syncs,
    Attributes,
    Xattrs,
    Acls,
    StatFs,
    Waits,
    Reopens,
    /// Many names in a directory, and their removal.
    Crowds,
    Flags,
    Projects,
    Extents,
    /// Directories read in pieces.
    Readings,
    Freezes,
}

/// The parameters of generated histories.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Approximate number of steps.
    pub steps: usize,
    /// Families with their weights.
    pub weights: Vec<(Family, u64)>,
    /// Maximum length of a write in bytes.
    pub longest_write: u64,
    /// Maximum offset in bytes of some calls.
    pub farthest: u64,
    /// Whether users other than root create files, with a umask.
    pub creators: bool,
    /// Maximum number of names in a crowd.
    pub crowd: u64,
}

impl Profile {
    /// Calls on names only.
    pub fn names() -> Self {
        use Family::*;
        let weights = vec![
            (Creates, 20),
            (Nodes, 3),
            (Directories, 12),
            (Symlinks, 5),
            (TempFiles, 2),
            (Links, 8),
            (Removals, 18),
            (Renames, 16),
            (Holds, 5),
            (Queries, 12),
            (Syncs, 3),
            (StatFs, 1),
            (Waits, 3),
            (Crowds, 1),
            (Readings, 8),
            (Freezes, 1),
        ];
        Self {
            steps: 200,
            weights,
            longest_write: 40_000,
            farthest: 200 << 20,
            creators: false,
            crowd: 100,
        }
    }

    /// Calls on names and attributes.
    pub fn attributes() -> Self {
        use Family::*;
        Self::names().with(&[
            (Attributes, 25),
            (Xattrs, 40),
            (Acls, 15),
            (Flags, 12),
            (Projects, 6),
        ])
    }

    /// Calls on file contents, and enough calls on names to have files.
    pub fn data() -> Self {
        use Family::*;
        let base = Self::names().only(&[Creates, Removals, TempFiles, Holds, Syncs, Waits]);
        let calls = [(Writes, 45), (Reads, 12), (Truncates, 12), (Fallocates, 20), (Seeks, 8)];
        base.with(&calls).with(&[(Extents, 5)])
    }

    /// Every call.
    pub fn all() -> Self {
        use Family::*;
        let data = [(Writes, 30), (Reads, 8), (Truncates, 8), (Fallocates, 12), (Seeks, 5)];
        Self::attributes().with(&data).with(&[(Extents, 4)])
    }

    /// With files created by users other than root.
    #[must_use]
    pub fn by_anybody(self) -> Self {
        Self { creators: true, ..self }
    }

    /// With more families.
    #[must_use]
    pub fn with(mut self, weights: &[(Family, u64)]) -> Self {
        self.weights.extend(weights);
        self
    }

    /// Without some families.
    #[must_use]
    pub fn without(mut self, families: &[Family]) -> Self {
        self.weights.retain(|(family, _)| !families.contains(family));
        self
    }

    /// Restricted to some families.
    #[must_use]
    pub fn only(mut self, families: &[Family]) -> Self {
        self.weights.retain(|(family, _)| families.contains(family));
        self
    }

    /// With another number of steps.
    #[must_use]
    pub fn steps(self, steps: usize) -> Self {
        Self { steps, ..self }
    }
}

/// Generates a history from a seed. Most calls succeed if there is room.
pub fn generate(seed: u64, profile: &Profile, rules: &Rules) -> History {
    let mut generator = Generator {
        random: Random::new(seed),
        profile,
        model: Model::new(Rules { counts_inodes: false, ..rules.clone() }),
        steps: Vec::new(),
    };
    while generator.steps.len() < profile.steps {
        generator.family();
    }
    History { steps: generator.steps }
}

struct Generator<'p> {
    random: Random,
    profile: &'p Profile,
    /// The tree if every call has the expected result.
    model: Model,
    steps: Vec<Step>,
}

impl Generator<'_> {
    fn push(&mut self, call: Call) {
        let step = Step { number: self.steps.len() as u32 + 1, call };
        if self.model.expect(&step) == Expected::Success {
            let answer = match &step.call {
                Call::Write { offset, len, .. } => {
                    Answer::Written(self.model.writable(*offset, *len))
                }
                Call::StatFs => Answer::InodesUsed(0),
                Call::Freeze => Answer::Differences(Vec::new()),
                Call::ReadOn { dir, count } => self.model.names_to_come(*dir, *count),
                _ => Answer::Done,
            };
            let only_queries = matches!(
                step.call,
                Call::Lookup { .. }
                    | Call::ReadDir { .. }
                    | Call::ReadLink { .. }
                    | Call::Stat { .. }
                    | Call::Read { .. }
                    | Call::Flags { .. }
                    | Call::Extents { .. }
                    | Call::SeekData { .. }
                    | Call::SeekHole { .. }
            );
            if !only_queries {
                self.model.apply(&step, &answer).expect("the generator's answers are right");
            }
        }
        self.steps.push(step);
    }

    fn family(&mut self) {
        let total: u64 = self.profile.weights.iter().map(|(_, weight)| weight).sum();
        let mut pick = self.random.below(total);
        let family = self.profile.weights.iter().find(|(_, weight)| {
            let is_it = pick < *weight;
            pick = pick.saturating_sub(*weight);
            is_it
        });
        match family.expect("the pick is below the sum").0 {
            Family::Creates => {
                let (dir, name) = (self.dir(), self.new_name());
                let (mode, credentials) = (self.mode(), self.credentials());
                self.push(Call::Create { dir, name, mode, credentials });
            }
            Family::Nodes => {
                let (dir, name) = (self.dir(), self.new_name());
                let (mode, credentials) = (self.mode(), self.credentials());
                let (major, minor) =
                    (self.random.below(4000) as u32, self.random.below(70_000) as u32);
                let node = match self.random.below(4) {
                    0 => NodeKind::Fifo,
                    1 => NodeKind::Socket,
                    2 => NodeKind::CharDevice(major, minor),
                    _ => NodeKind::BlockDevice(major % 256, minor % 256),
                };
                self.push(Call::MakeNode { dir, name, mode, node, credentials });
            }
            Family::Directories => {
                let (dir, name, credentials) = (self.dir(), self.new_name(), self.credentials());
                let mode = [0o755, 0o700, 0o1777, 0o777][self.random.below(4) as usize];
                self.push(Call::MakeDir { dir, name, mode, credentials });
            }
            Family::Symlinks => self.symlink(),
            Family::TempFiles => {
                let (dir, mode, credentials) = (self.dir(), self.mode(), self.credentials());
                self.push(Call::TempFile { dir, mode, credentials });
            }
            Family::Links => {
                let (file, dir, name) = (self.any_file(), self.dir(), self.new_name());
                self.push(Call::Link { file, dir, name });
            }
            Family::Removals => self.removal(),
            Family::Renames => self.rename(),
            Family::Holds => {
                let file = self.any_file();
                let held = self.model.file(file).is_some_and(|file| file.held > 0);
                let call = match held && self.random.below(3) > 0 {
                    true => Call::Release { file },
                    false => Call::Hold { file },
                };
                self.push(call);
            }
            Family::Queries => self.query(),
            Family::Writes => self.write(),
            Family::Reads => {
                let (file, offset) = (self.regular(), self.offset());
                let len = 1 + self.random.below(2 * self.profile.longest_write);
                self.push(Call::Read { file, offset, len });
            }
            Family::Truncates => {
                let (file, size) = (self.regular(), self.offset());
                self.push(Call::Truncate { file, size });
            }
            Family::Fallocates => self.fallocate(),
            Family::Seeks => {
                let (file, offset) = (self.regular(), self.offset());
                let call = match self.random.below(2) {
                    0 => Call::SeekData { file, offset },
                    _ => Call::SeekHole { file, offset },
                };
                self.push(call);
            }
            Family::Syncs => {
                let file = self.any_file();
                let call = match self.random.below(5) {
                    0 => Call::Sync,
                    1 => Call::Fdatasync { file },
                    _ => Call::Fsync { file },
                };
                self.push(call);
            }
            Family::Attributes => self.attributes(),
            Family::Xattrs => self.xattr(),
            Family::Acls => self.acl(),
            Family::StatFs => self.push(Call::StatFs),
            Family::Waits => {
                let time = self.random.below(4000);
                self.push(Call::Wait { time });
            }
            Family::Reopens => self.push(Call::Reopen),
            Family::Crowds => self.crowd(),
            Family::Flags => self.flags(),
            Family::Projects if self.model.rules.projects => {
                let (file, project) = (self.any_file(), self.random.below(4) as u32 * 1000);
                self.push(Call::SetProject { file, project });
            }
            Family::Projects => {}
            Family::Extents => {
                let file = self.regular();
                self.push(Call::Extents { file });
            }
            Family::Readings => self.reading(),
            Family::Freezes => self.push(Call::Freeze),
        }
    }

    fn pick<T>(&mut self, mut from: Vec<T>) -> Option<T> {
        match from.len() {
            0 => None,
            count => Some(from.swap_remove(self.random.below(count as u64) as usize)),
        }
    }

    /// A reachable file of some kind.
    fn of_kind(&mut self, is_it: impl Fn(Kind) -> bool) -> Option<FileId> {
        let files = self.model.files();
        let files = files.filter(|(id, file)| !file.is_unlinked(*id) || file.held > 0);
        let files = files.filter(|(_, file)| is_it(file.kind)).map(|(id, _)| id).collect();
        self.pick(files)
    }

    /// A directory; occasionally another file.
    fn dir(&mut self) -> FileId {
        if self.random.below(50) == 0 {
            return self.any_file();
        }
        if self.random.below(4) == 0 {
            return FileId::ROOT;
        }
        self.of_kind(|kind| kind == Kind::Directory).unwrap_or(FileId::ROOT)
    }

    fn any_file(&mut self) -> FileId {
        self.of_kind(|_| true).unwrap_or(FileId::ROOT)
    }

    /// A regular file; occasionally a directory.
    fn regular(&mut self) -> FileId {
        if self.random.below(60) == 0 {
            return self.dir();
        }
        self.of_kind(|kind| kind == Kind::File).unwrap_or(FileId::ROOT)
    }

    /// An entry of some directory; occasionally a name that does not exist.
    fn entry(&mut self) -> (FileId, Vec<u8>) {
        for _ in 0..4 {
            let dir = self.dir();
            let names = self.model.file(dir).map(|dir| {
                let entries = dir.entries.iter().filter(|(_, id)| **id != LOST_AND_FOUND);
                entries.map(|(name, _)| name.clone()).collect()
            });
            if let Some(name) = self.pick(names.unwrap_or_default()) {
                return (dir, name);
            }
        }
        (self.dir(), self.new_name())
    }

    fn new_name(&mut self) -> Vec<u8> {
        match self.random.below(40) {
            0 => vec![b'L'; 255],
            1 => vec![b'M'; 256],
            2..6 => {
                let length = 200 + self.random.below(56) as usize;
                let mut name = format!("long-{:04}-", self.random.below(1000)).into_bytes();
                name.resize(length, b'x');
                name
            }
            6 => vec![0xff, 0xfe, b'a' + self.random.below(3) as u8],
            7..20 => vec![b'a' + self.random.below(8) as u8],
            _ => format!("file-{:05}", self.random.below(100_000)).into_bytes(),
        }
    }

    fn mode(&mut self) -> u32 {
        [0o644, 0o600, 0o755, 0o640, 0o666, 0o777, 0o400][self.random.below(7) as usize]
    }

    fn credentials(&mut self) -> Credentials {
        if !self.profile.creators || self.random.below(2) == 0 {
            return Credentials {
                umask: if self.random.below(2) == 0 { 0 } else { 0o22 },
                ..Credentials::default()
            };
        }
        let ids = [0, 1, 1000, 65_534, 70_000, 4_000_000_000];
        let uid = ids[self.random.below(6) as usize];
        Credentials { uid, gid: ids[self.random.below(6) as usize], umask: 0o27 }
    }

    fn symlink(&mut self) {
        let (dir, name, credentials) = (self.dir(), self.new_name(), self.credentials());
        let block = self.model.rules.block_size;
        let length = match self.random.below(6) {
            0 => 59,
            1 => 60,
            2 => 61 + self.random.below(100),
            3 => block - 1 - self.random.below(3),
            4 => block,
            _ => 1 + self.random.below(20),
        };
        let target = (0..length).map(|at| b'a' + (at % 26) as u8).collect();
        self.push(Call::Symlink { dir, name, target, credentials });
    }

    fn removal(&mut self) {
        let rounds = if self.model.files().count() > CROWDED { 2 } else { 1 };
        for _ in 0..rounds {
            let (dir, name) = self.entry();
            let file = self.model.file(dir).and_then(|dir| dir.entries.get(&name).copied());
            let is_dir =
                file.and_then(|file| self.model.file(file)).is_some_and(|file| file.is_dir());
            // Occasionally the wrong call.
            let call = match is_dir != (self.random.below(20) == 0) {
                true => Call::RemoveDir { dir, name },
                false => Call::Unlink { dir, name },
            };
            self.push(call);
        }
    }

    fn rename(&mut self) {
        let (dir, name) = self.entry();
        let (to_dir, to_name) = match self.random.below(3) {
            0 => self.entry(),
            1 => (dir, self.new_name()),
            _ => (self.dir(), self.new_name()),
        };
        let how = match self.random.below(6) {
            0 => RenameHow::NoReplace,
            1 => RenameHow::Exchange,
            _ => RenameHow::Replace,
        };
        let source = self.model.file(dir).and_then(|dir| dir.entries.get(&name).copied());
        let is_dir =
            source.and_then(|file| self.model.file(file)).is_some_and(|file| file.is_dir());
        if is_dir && self.depth(to_dir) >= DEPTH {
            return;
        }
        self.push(Call::Rename { dir, name, to_dir, to_name, how });
    }

    fn depth(&self, dir: FileId) -> usize {
        self.model.path(dir).map_or(0, |path| path.iter().filter(|byte| **byte == b'/').count())
    }

    fn query(&mut self) {
        let call = match self.random.below(8) {
            0 => Call::Lookup { dir: self.dir(), name: self.new_name() },
            1..4 => {
                let (dir, name) = self.entry();
                Call::Lookup { dir, name }
            }
            4 => Call::ReadDir { dir: self.dir() },
            5 => Call::ReadLink {
                file: self.of_kind(|kind| kind == Kind::Symlink).unwrap_or(FileId::ROOT),
            },
            _ => Call::Stat { file: self.any_file() },
        };
        self.push(call);
    }

    /// Mostly small, occasionally very large; often at the edges of blocks.
    fn offset(&mut self) -> u64 {
        let block = self.model.rules.block_size;
        let farthest = self.profile.farthest;
        let offset = match self.random.below(12) {
            0 => 0,
            1 => self.random.below(200),
            2..6 => self.random.below(16) * block,
            6..10 => self.random.below(64 << 10),
            10 => self.random.below(1 << 20),
            _ => self.random.below(farthest),
        };
        match self.random.below(6) {
            0 => offset / block * block,
            1 => (offset / block * block).saturating_sub(1),
            _ => offset,
        }
        .min(farthest)
    }

    fn write(&mut self) {
        let (file, seed) = (self.regular(), self.random.below(1 << 32));
        let longest = self.profile.longest_write;
        let block = self.model.rules.block_size;
        let len = match self.random.below(8) {
            0 => self.random.below(2),
            1 => self.random.below(100),
            2..4 => block * (1 + self.random.below(4)),
            4..6 => self.random.below(3 * block),
            _ => self.random.below(longest),
        }
        .min(longest);
        let size = self.model.file(file).map_or(0, |file| file.size);
        let offset = match self.random.below(3) {
            0 => size,
            _ => self.offset(),
        };
        self.push(Call::Write { file, offset, len, seed });
    }

    fn fallocate(&mut self) {
        let how = match self.random.below(10) {
            0 | 1 => Fallocate::Allocate,
            2 => Fallocate::KeepSize,
            3 | 4 => Fallocate::Punch,
            5 => Fallocate::Zero,
            6 => Fallocate::ZeroKeepSize,
            7 => Fallocate::Insert,
            _ => Fallocate::Collapse,
        };
        let (file, granule) = (self.regular(), self.model.rules.granule);
        let (mut offset, mut len) = (self.offset().min(4 << 20), 1 + self.random.below(64 << 10));
        let moves = matches!(how, Fallocate::Insert | Fallocate::Collapse);
        if moves && self.random.below(15) > 0 {
            let size = self.model.file(file).map_or(0, |file| file.size);
            offset = self.random.below(size / granule + 1) * granule;
            len = (1 + self.random.below(6)) * granule;
        }
        self.push(Call::Fallocate { file, how, offset, len });
    }

    fn attributes(&mut self) {
        let file = self.any_file();
        let call = match self.random.below(4) {
            0 | 1 => {
                let is_dir = self.model.file(file).is_some_and(|file| file.is_dir());
                let mode = match is_dir && self.random.below(3) == 0 {
                    true => 0o2775,
                    false => self.mode(),
                };
                Call::SetMode { file, mode }
            }
            2 => {
                let ids = [0, 1, 1000, 65_535, 65_536, 4_000_000_000];
                let (uid, gid) =
                    (ids[self.random.below(6) as usize], ids[self.random.below(6) as usize]);
                Call::SetOwner { file, uid, gid }
            }
            _ => {
                // The ends of the range are rounded by the kernel.
                let all =
                    [0, -1, 1 - (1 << 31), (1 << 31) - 2, 1_700_000_000, 1 << 31, 0x3_7fff_fffe];
                let known = if self.model.rules.wide_times { 7 } else { 5 };
                let mut moment = || Moment {
                    seconds: all[self.random.below(known) as usize],
                    nanoseconds: self.random.below(1_000_000_000) as u32,
                };
                Call::SetTimes { file, atime: moment(), mtime: moment() }
            }
        };
        self.push(call);
    }

    fn xattr(&mut self) {
        let file = self.any_file();
        let kind = self.model.file(file).map(|file| file.kind);
        let takes_user = matches!(kind, Some(Kind::File | Kind::Directory));
        let prefix = match self.random.below(4) {
            0 => "security.",
            1 => "trusted.",
            _ if takes_user => "user.",
            _ => "trusted.",
        };
        let mut name = format!("{prefix}n{}", self.random.below(6)).into_bytes();
        // A call that fails with ENOSPC may have removed capabilities.
        let has_room = !self.model.rules.may_fill;
        if has_room && kind == Some(Kind::File) && self.random.below(8) == 0 {
            name = CAPABILITY.to_vec();
        } else if self.random.below(12) == 0 {
            name.resize(120 + self.random.below(130) as usize, b'y');
        }
        if self.random.below(4) == 0 {
            self.push(Call::RemoveXattr { file, name });
            return;
        }
        let block = self.model.rules.block_size;
        let len = match self.random.below(8) {
            0 => 0,
            1..4 => self.random.below(40),
            4..6 => self.random.below(300),
            6 => self.random.below(block),
            _ if self.model.rules.large_xattrs => self.random.below(30_000),
            _ => self.random.below(block / 2),
        };
        let how = match self.random.below(6) {
            0 => XattrHow::Create,
            1 => XattrHow::Replace,
            _ => XattrHow::Any,
        };
        // Few values, so that attribute blocks can be shared.
        let seed = self.random.below(3);
        let len = if self.random.below(3) == 0 { len / 100 * 100 } else { len };
        self.push(Call::SetXattr { file, name, seed, len, how });
    }

    fn acl(&mut self) {
        let file = self.of_kind(|kind| matches!(kind, Kind::File | Kind::Directory));
        let file = file.unwrap_or(FileId::ROOT);
        let is_dir = self.model.file(file).is_some_and(|file| file.is_dir());
        let default = is_dir && self.random.below(2) == 0;
        let mut entry = |tag| AclEntry { tag, permissions: self.random.below(8) as u16 };
        let mut acl = vec![entry(AclTag::Owner), entry(AclTag::Group), entry(AclTag::Other)];
        let (users, groups) = (self.random.below(4), self.random.below(3));
        let mut entry = |tag| AclEntry { tag, permissions: self.random.below(8) as u16 };
        acl.extend((0..users).map(|user| entry(AclTag::User(1000 + user as u32 * 70_000))));
        acl.extend((0..groups).map(|group| entry(AclTag::NamedGroup(50 + group as u32))));
        if acl.len() > 3 {
            acl.push(entry(AclTag::Mask));
        }
        acl.sort();
        if self.random.below(5) == 0 {
            acl.clear();
        }
        self.push(Call::SetAcl { file, default, acl });
    }

    fn flags(&mut self) {
        let kept = self.model.files().filter(|(id, file)| {
            file.flags & KEPT != 0 && (!file.is_unlinked(*id) || file.held > 0)
        });
        let kept = kept.map(|(id, _)| id).collect();
        let chosen = self.pick(kept).filter(|_| self.random.below(3) > 0);
        if let Some(file) = chosen {
            // Immutable files make most calls fail.
            self.push(Call::SetFlags { file, flags: 0 });
            return;
        }
        let file = self.of_kind(|kind| matches!(kind, Kind::File | Kind::Directory));
        let file = file.unwrap_or(FileId::ROOT);
        if self.random.below(4) == 0 {
            self.push(Call::Flags { file });
            return;
        }
        let is_dir = self.model.file(file).is_some_and(|file| file.is_dir());
        let mut all = flags::SYNC | flags::NODUMP | flags::NOATIME;
        if file != FileId::ROOT && self.random.below(3) == 0 {
            all |= KEPT;
        }
        if is_dir || self.random.below(12) == 0 {
            all |= flags::OF_DIRECTORIES;
        }
        if !self.model.rules.projects {
            all &= !flags::PROJECT_INHERIT;
        }
        if self.model.rules.journalled_files {
            all |= flags::JOURNAL_DATA;
        }
        let flags = self.random.below(1 << 32) as u32 & all;
        self.push(Call::SetFlags { file, flags });
    }

    /// Mostly for a directory that is being read.
    fn reading(&mut self) {
        let begun = self.model.files().filter(|(_, file)| file.reading.is_some());
        let begun = begun.map(|(id, _)| id).collect();
        let dir = match self.pick(begun).filter(|_| self.random.below(4) > 0) {
            Some(dir) => dir,
            None => self.dir(),
        };
        let most = if self.random.below(3) == 0 { 60 } else { 6 };
        let count = 1 + self.random.below(most);
        self.push(Call::ReadOn { dir, count });
    }

    fn crowd(&mut self) {
        let dir = self.dir();
        let entries = self.model.file(dir).map_or(0, |dir| dir.entries.len());
        if entries as u64 > self.profile.crowd {
            let names: Vec<_> = self
                .model
                .file(dir)
                .into_iter()
                .flat_map(|dir| dir.entries.keys().cloned())
                .collect();
            for name in names.into_iter().filter(|name| name.starts_with(b"crowd-")) {
                if self.random.below(5) > 0 {
                    self.push(Call::Unlink { dir, name });
                }
            }
            return;
        }
        let count = 10 + self.random.below(self.profile.crowd);
        let length = [0, 0, 60, 200][self.random.below(4) as usize];
        let start = self.random.below(1 << 20);
        for number in start..start + count {
            let mut name = format!("crowd-{number:07}").into_bytes();
            name.resize(name.len().max(length), b'c');
            self.push(Call::Create { dir, name, mode: 0o644, credentials: Credentials::default() });
        }
    }
}
