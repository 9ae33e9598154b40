//! The target of a path of a source: an item of the workspace, or one of another crate.

use std::collections::BTreeMap;

use syn::{Item, UseTree};

use super::sources::{ModulePath, Sources};

/// Imports that lead to imports, at most: a circle does not compile.
const DEEPEST: usize = 16;

/// An item by where it is defined.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct ItemId {
    pub(super) of: String,
    pub(super) module: ModulePath,
    pub(super) name: String,
}

/// The target of a path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Target {
    Module(String, ModulePath),
    Item(ItemId),
    /// A variant or an associated item.
    Below(ItemId, Vec<String>),
    /// A path of a crate that is not of the workspace.
    Other(Vec<String>),
}

/// The imports and definitions of a module.
#[derive(Debug, Default)]
struct Scope {
    /// Items that are defined here; modules are not among them.
    items: BTreeMap<String, usize>,
    modules: Vec<String>,
    /// Names that are imported, with their paths.
    imports: Vec<(String, Vec<String>)>,
    globs: Vec<Vec<String>>,
}

/// The names of all modules.
#[derive(Debug)]
pub(super) struct Names {
    scopes: BTreeMap<String, BTreeMap<ModulePath, Scope>>,
}

/// The name of an item that has one; not of a module.
pub(super) fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(it) => &it.ident,
        Item::Enum(it) => &it.ident,
        Item::Fn(it) => &it.sig.ident,
        Item::Static(it) => &it.ident,
        Item::Struct(it) => &it.ident,
        Item::Trait(it) => &it.ident,
        Item::Type(it) => &it.ident,
        Item::Union(it) => &it.ident,
        Item::Macro(it) => it.ident.as_ref()?,
        _ => return None,
    };
    Some(name.to_string())
}

/// Each name that a `use` brings, with its path; `*` is a name of its own.
pub(super) fn imports(tree: &UseTree, before: &[String], found: &mut Vec<(String, Vec<String>)>) {
    let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
    match tree {
        UseTree::Path(path) => imports(&path.tree, &with(&path.ident), found),
        UseTree::Group(group) => {
            group.items.iter().for_each(|it| imports(it, before, found));
        }
        UseTree::Name(name) if name.ident == "self" => {
            found.extend(before.last().map(|last| (last.clone(), before.to_vec())));
        }
        UseTree::Name(name) => found.push((name.ident.to_string(), with(&name.ident))),
        UseTree::Rename(it) if it.ident == "self" => {
            found.push((it.rename.to_string(), before.to_vec()));
        }
        UseTree::Rename(it) => found.push((it.rename.to_string(), with(&it.ident))),
        UseTree::Glob(_) => found.push(("*".to_owned(), before.to_vec())),
    }
}

impl Names {
    pub(super) fn of(sources: &Sources) -> Self {
        let mut scopes = BTreeMap::new();
        for (name, found) in &sources.crates {
            let mut of_crate = BTreeMap::new();
            for (path, module) in &found.modules {
                let mut scope = Scope::default();
                for (at, item) in module.items.iter().enumerate() {
                    match item {
                        Item::Mod(found) => scope.modules.push(found.ident.to_string()),
                        Item::Use(found) => {
                            let mut all = Vec::new();
                            imports(&found.tree, &[], &mut all);
                            for (name, path) in all {
                                match &name[..] {
                                    "*" => scope.globs.push(path),
                                    _ => scope.imports.push((name, path)),
                                }
                            }
                        }
                        other => {
                            scope.items.extend(name_of(other).map(|name| (name, at)));
                        }
                    }
                }
                of_crate.insert(path.clone(), scope);
            }
            scopes.insert(name.clone(), of_crate);
        }
        Self { scopes }
    }

    /// The targets of a path, as the module sees it; a name may be that of a module and that of
    /// something else.
    pub(super) fn resolved(&self, of: &str, module: &[String], path: &[String]) -> Vec<Target> {
        self.resolved_at(of, module, path, DEEPEST)
    }

    fn resolved_at(
        &self,
        of: &str,
        module: &[String],
        path: &[String],
        deepest: usize,
    ) -> Vec<Target> {
        let Some((first, mut rest)) = path.split_first().filter(|_| deepest > 0) else {
            return Vec::new();
        };
        let own = |module: &[String]| vec![Target::Module(of.to_owned(), module.to_vec())];
        let mut targets = match &first[..] {
            "crate" => own(&[]),
            "self" => own(module),
            "super" => {
                let more = rest.iter().take_while(|it| *it == "super").count();
                rest = &rest[more..];
                own(&module[..module.len().saturating_sub(more + 1)])
            }
            name => self.found(of, module, name, deepest, Some(path)),
        };
        if targets.is_empty() {
            let is_ours = self.scopes.contains_key(first);
            match (is_ours, &first[..]) {
                (true, _) => targets.push(Target::Module(first.clone(), Vec::new())),
                (false, "std" | "core" | "alloc") => {
                    targets.push(Target::Other(vec!["std".to_owned()]));
                }
                // A crate of the registry has a small letter; others are std's prelude.
                (false, name) if name.starts_with(char::is_lowercase) => {
                    targets.push(Target::Other(vec![first.clone()]));
                }
                _ => {}
            }
        }
        for name in rest {
            // Types and modules share their names: anything else of a module's name is a function.
            if targets.iter().any(|it| matches!(it, Target::Module(..))) {
                targets.retain(|it| matches!(it, Target::Module(..)));
            }
            let step = |target: Target| match target {
                Target::Module(of, module) => self.found(&of, &module, name, deepest, None),
                Target::Item(item) => vec![Target::Below(item, vec![name.clone()])],
                Target::Below(item, path) => {
                    vec![Target::Below(item, [&path[..], std::slice::from_ref(name)].concat())]
                }
                Target::Other(path) => {
                    vec![Target::Other([&path[..], std::slice::from_ref(name)].concat())]
                }
            };
            targets = targets.into_iter().flat_map(step).collect();
        }
        targets
    }

    /// The targets of a name in a module. `path` is that of the import that asks: an import is not
    /// looked for through itself.
    fn found(
        &self,
        of: &str,
        module: &[String],
        name: &str,
        deepest: usize,
        path: Option<&[String]>,
    ) -> Vec<Target> {
        let Some(scope) = self.scopes.get(of).and_then(|it| it.get(module)) else {
            return Vec::new();
        };
        let mut targets = Vec::new();
        if scope.items.contains_key(name) {
            targets.push(Target::Item(ItemId {
                of: of.to_owned(),
                module: module.to_vec(),
                name: name.to_owned(),
            }));
        }
        if scope.modules.iter().any(|it| it == name) {
            let inner = [module, &[name.to_owned()]].concat();
            targets.push(Target::Module(of.to_owned(), inner));
        }
        for (_, import) in scope.imports.iter().filter(|(it, _)| it == name) {
            if path.is_none_or(|path| path != &import[..]) {
                for target in self.resolved_at(of, module, import, deepest - 1) {
                    if !targets.contains(&target) {
                        targets.push(target);
                    }
                }
            }
        }
        if targets.is_empty() && path.is_none_or(|path| path.len() == 1) {
            for glob in &scope.globs {
                let below = [&glob[..], &[name.to_owned()]].concat();
                targets.extend(self.resolved_at(of, module, &below, deepest - 1));
            }
            // A glob of another crate gives all names: it is no evidence.
            targets.retain(|target| !matches!(target, Target::Other(_)));
        }
        targets
    }
}
