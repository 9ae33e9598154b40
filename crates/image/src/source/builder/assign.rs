//! Owners, modes, capabilities and labels by the paths of the finished tree.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::super::contexts::{Candidates, FileContexts};
use super::super::error::{EntryName, Flaw, SourceError};
use super::super::file_type;
use super::super::fs_config::{Config, FsConfig, capability_value, trimmed};
use super::super::node::{NodeId, NodeKind, path_of};
use super::super::options::ReadOptions;
use super::super::owner::Owners;
use super::super::tree::Tree;
use super::super::xattr::{ACL_ACCESS, XattrList, XattrSetId, XattrSets, acl_with_mode};

const SELINUX: &[u8] = b"security.selinux";
const CAPABILITY: &[u8] = b"security.capability";
const LOST_FOUND: &[u8] = b"/lost+found";
/// Permission bits of the lost+found that is made where the tree has none.
const LOST_FOUND_MODE: u16 = 0o700;

/// Attributes of an image's files by their paths.
#[derive(Debug)]
pub(in crate::source) struct Assignments {
    contexts: Option<FileContexts>,
    config: Option<FsConfig>,
    /// The path of the image's root, without a slash at its end.
    mount_point: Vec<u8>,
}

/// Findings for a node by its names.
#[derive(Clone, Copy, Default)]
struct Assignment<'a> {
    spec: Option<u32>,
    config: Option<&'a Config>,
}

/// A directory that is to be walked.
struct Open {
    node: NodeId,
    /// In the mounted tree; empty for its root.
    path: Vec<u8>,
    /// After aliases.
    aliased: Vec<u8>,
    candidates: Rc<Candidates>,
}

impl Assignments {
    /// Reads the files of the options; `None` if there are none.
    pub(in crate::source) fn of(options: &ReadOptions) -> Result<Option<Self>, SourceError> {
        if options.file_contexts.is_none() && options.fs_config.is_none() {
            return Ok(None);
        }
        let parts = options.mount_point.split(|&byte| byte == b'/');
        let parts = parts.filter(|part| !part.is_empty());
        let mount_point: Vec<u8> = parts.flat_map(|part| [b"/", part].concat()).collect();
        Ok(Some(Self {
            contexts: options.file_contexts.as_deref().map(FileContexts::read).transpose()?,
            config: options.fs_config.as_deref().map(FsConfig::read).transpose()?,
            mount_point,
        }))
    }

    /// Applies them to a tree whose names are sorted.
    pub(super) fn apply(&self, tree: &mut Tree) -> Result<(), SourceError> {
        let mut found = vec![Assignment::default(); tree.node_count()];
        let mut used = HashSet::new();
        let mut conflicts = HashSet::new();
        let all = Rc::new(self.contexts.as_ref().map(FileContexts::all).unwrap_or_default());
        let root = self.mount_point.clone();
        let aliased = self.aliased(&root).into_owned();
        self.note(NodeId::ROOT, NodeKind::Directory, &root, &aliased, &all, &mut found);
        used.extend(found[0].config.map(|config| config.line));
        let candidates = self.below(&all, &aliased);
        let mut open = vec![Open { node: NodeId::ROOT, path: root, aliased, candidates }];
        while let Some(directory) = open.pop() {
            for dirent in tree.dirents(directory.node) {
                let (node, name) = (dirent.node(), tree.name(dirent));
                let child = |parent: &[u8]| [parent, b"/", name].concat();
                let path = child(&directory.path);
                let aliased = self.aliased(&path).into_owned();
                let is_usual = aliased == child(trimmed_end(&directory.aliased));
                let candidates = if is_usual { &directory.candidates } else { &all };
                let kind = tree.node(node).kind();
                let differs = self.note(node, kind, &path, &aliased, candidates, &mut found);
                used.extend(found[node.index()].config.map(|config| config.line));
                if differs {
                    conflicts.insert(node);
                }
                if kind == NodeKind::Directory {
                    let candidates = self.below(candidates, &aliased);
                    open.push(Open { node, path, aliased, candidates });
                }
            }
        }
        self.lost_found(tree, &all)?;
        self.warn(tree, &used, &conflicts);
        self.set(tree, &found)
    }

    fn aliased<'p>(&self, path: &'p [u8]) -> Cow<'p, [u8]> {
        let path = if path.is_empty() { b"/" } else { path };
        match &self.contexts {
            Some(contexts) => contexts.aliased(path),
            None => path.into(),
        }
    }

    fn below(&self, candidates: &Candidates, directory: &[u8]) -> Rc<Candidates> {
        let beginning = [trimmed_end(directory), b"/"].concat();
        let found = self.contexts.as_ref().map(|it| it.below(candidates, &beginning));
        Rc::new(found.unwrap_or_default())
    }

    /// Finds what the files say of a node by one of its names: of several specifications the one of
    /// the most weight, of several lines the last. Whether another name has another label.
    fn note<'a>(
        &'a self,
        node: NodeId,
        kind: NodeKind,
        path: &[u8],
        aliased: &[u8],
        candidates: &[u32],
        found: &mut [Assignment<'a>],
    ) -> bool {
        let mut differs = false;
        let found = &mut found[node.index()];
        if let Some(contexts) = &self.contexts {
            let spec = contexts.find(candidates, aliased, kind);
            let spec = spec.filter(|spec| contexts.label(*spec).is_some());
            let pair = found.spec.zip(spec);
            differs = pair.is_some_and(|(one, two)| contexts.label(one) != contexts.label(two));
            found.spec = found.spec.max(spec);
        }
        if let Some(config) = self.config.as_ref().and_then(|config| config.get(path)) {
            let is_later = found.config.is_none_or(|other| other.line < config.line);
            found.config = Some(config).filter(|_| is_later).or(found.config);
        }
        differs
    }

    fn label_of<'a>(&'a self, found: Assignment<'a>) -> Option<&'a [u8]> {
        let by_path = || self.contexts.as_ref()?.label(found.spec?);
        by_path().or_else(|| found.config?.label.as_deref())
    }

    /// The label of the lost+found that the image gets where the tree has none.
    fn lost_found(&self, tree: &mut Tree, all: &[u32]) -> Result<(), SourceError> {
        if tree.lookup(NodeId::ROOT, &LOST_FOUND[1..]).is_some() {
            return Ok(());
        }
        let path = [&self.mount_point[..], LOST_FOUND].concat();
        let config = self.config.as_ref().and_then(|it| Some((it, it.get(&path)?)));
        if let Some((file, config)) = config {
            let is_usual = (config.uid, config.gid, config.mode) == (0, 0, LOST_FOUND_MODE)
                && config.capabilities.unwrap_or(0) == 0;
            if !is_usual {
                return Err(super::super::lines::broken(
                    &file.file,
                    config.line,
                    "lost+found of the image is 0 0 0700 without capabilities (for another one, \
                     make that directory in a source)",
                ));
            }
        }
        let aliased = self.aliased(&path);
        let spec =
            self.contexts.as_ref().and_then(|it| it.find(all, &aliased, NodeKind::Directory));
        let found = Assignment { spec, config: config.map(|(_, config)| config) };
        tree.lost_found_label = self.label_of(found).map(<[u8]>::to_vec);
        Ok(())
    }

    fn warn(&self, tree: &mut Tree, used: &HashSet<usize>, conflicts: &HashSet<NodeId>) {
        if let Some(first) = conflicts.iter().min() {
            let first = EntryName(path_of(&tree.dirents, &tree.names, *first));
            tree.warnings.push(format!(
                "{} files have names of several labels, the first is {first}: the last specification was taken",
                conflicts.len()
            ));
        }
        let Some(config) = &self.config else { return };
        let own = trimmed(&self.mount_point);
        let lost_found = trimmed(LOST_FOUND);
        let mut missing = config.in_order().into_iter().filter(|(path, config)| {
            let rest = match own {
                b"" => Some(*path),
                own => path.strip_prefix(own).filter(|rest| rest.first() == Some(&b'/')),
            };
            let is_own = rest.is_some_and(|rest| trimmed(rest) != lost_found);
            is_own && !used.contains(&config.line)
        });
        if let Some((path, first)) = missing.next() {
            let file = EntryName::from(config.file.as_path());
            tree.warnings.push(format!(
                "{file}: {} paths are not in the sources, the first is {} in line {}",
                missing.count() + 1,
                EntryName::from(path),
                first.line
            ));
        }
    }

    /// Gives the nodes what was found. Sets of attributes that no node has any more are dropped:
    /// the UUID is made from those that are there.
    fn set(&self, tree: &mut Tree, found: &[Assignment<'_>]) -> Result<(), SourceError> {
        let mut sets = XattrSets::default();
        sets.take_ignored(&mut tree.xattrs);
        let mut known = HashMap::new();
        for (index, found) in found.iter().enumerate() {
            let node = &mut tree.nodes[index];
            if let Some(config) = found.config {
                (node.uid, node.gid) = (config.uid, config.gid);
                node.mode = node.mode & file_type::MASK | config.mode;
            }
            let label = self.label_of(*found);
            let capabilities = found.config.and_then(|config| config.capabilities);
            let mode = found.config.map(|_| node.mode);
            let key = (node.xattrs, label, capabilities, mode);
            let set = match known.get(&key) {
                Some(set) => *set,
                None => {
                    let set = changed(&tree.xattrs, &mut sets, &key).map_err(|flaw| {
                        let id = NodeId(index as u32);
                        let path = EntryName(path_of(&tree.dirents, &tree.names, id));
                        SourceError::path(path, flaw)
                    })?;
                    known.insert(key, set);
                    set
                }
            };
            tree.nodes[index].xattrs = set;
        }
        tree.xattrs = sets;
        Ok(())
    }
}

/// A set of attributes of `old` with another label, other capabilities, and its access ACL after a
/// chmod.
fn changed(
    old: &XattrSets,
    new: &mut XattrSets,
    &(set, label, capabilities, mode): &(XattrSetId, Option<&[u8]>, Option<u64>, Option<u16>),
) -> Result<XattrSetId, Flaw> {
    let mut list = XattrList::default();
    let mut has_acl = false;
    for xattr in old.get(set) {
        let is_replaced = (xattr.name == SELINUX && label.is_some())
            || (xattr.name == CAPABILITY && capabilities.is_some());
        if is_replaced {
            continue;
        }
        match mode.filter(|_| xattr.name == ACL_ACCESS) {
            Some(mode) => {
                list.add(xattr.name, &acl_with_mode(xattr.value, mode));
            }
            None => list.add(xattr.name, xattr.value),
        }
        has_acl |= xattr.name == ACL_ACCESS;
    }
    if let Some(label) = label {
        list.add(SELINUX, label);
    }
    if let Some(mask) = capabilities.filter(|mask| *mask != 0) {
        list.add(CAPABILITY, &capability_value(mask));
    }
    // The type decides which attributes are stored: those of the set were admitted already.
    let mut any = if has_acl { file_type::REGULAR } else { file_type::DIRECTORY };
    if old.get(set).any(|xattr| xattr.name == super::super::xattr::ACL_DEFAULT) {
        any = file_type::DIRECTORY;
    }
    new.intern(&mut list, &mut any, &Owners::default())
}

fn trimmed_end(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}
