//! The public items of a crate as text: what it defines, and what it gives on of other crates of
//! the workspace.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{
    Attribute, Fields, FnArg, Generics, ImplItem, Item, ItemImpl, Pat, TraitItem, Visibility,
};

use super::names::{ItemId, Names, Target, imports, name_of};
use super::sources::{ModulePath, Sources, attributes, is_for_tests};
use super::tokens::{Token, flat, text, with_paths};
use crate::Failure;

/// The public paths of items. The first one that is found is the shortest.
#[derive(Debug, Default)]
struct Public {
    /// Where each item is listed, with the conditions of the way to it.
    paths: BTreeMap<ItemId, (String, Vec<String>)>,
    /// Other names: lines of their own.
    lines: BTreeSet<String>,
    modules: BTreeSet<(String, ModulePath)>,
}

/// One item with all that is said of it.
#[derive(Debug, Default)]
struct Entry {
    head: String,
    /// Fields or variants, in their order.
    parts: Vec<String>,
    /// Functions and constants.
    members: BTreeSet<String>,
    traits: BTreeSet<String>,
}

/// The lister of one crate.
pub(super) struct Lister<'a> {
    sources: &'a Sources,
    names: Names,
    root: String,
    public: Public,
    /// The public paths of items within the crate that defines them.
    own: BTreeMap<String, Public>,
    /// All public paths.
    is_listed: BTreeSet<String>,
}

/// The words of a condition: `#[cfg(feature = "mount")]`.
fn conditions(attributes: &[Attribute]) -> Vec<String> {
    let all = attributes.iter().filter(|it| it.path().is_ident("cfg"));
    let words = all.map(|it| text(&flat(it.to_token_stream())));
    words.filter(|it| it != "#[cfg(not(feature = \"shuttle\"))]").collect()
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn visibility(item: &Item) -> Option<&Visibility> {
    Some(match item {
        Item::Const(it) => &it.vis,
        Item::Enum(it) => &it.vis,
        Item::Fn(it) => &it.vis,
        Item::Mod(it) => &it.vis,
        Item::Static(it) => &it.vis,
        Item::Struct(it) => &it.vis,
        Item::Trait(it) => &it.vis,
        Item::Type(it) => &it.vis,
        Item::Union(it) => &it.vis,
        Item::Use(it) => &it.vis,
        _ => return None,
    })
}

fn joined(before: &[String], item: &str) -> String {
    before.iter().map(String::as_str).chain([item]).collect::<Vec<_>>().join(" ")
}

impl Public {
    /// All that can be named from a crate's root, nearest first.
    fn of(sources: &Sources, names: &Names, root: &str) -> Result<Self, Failure> {
        let mut public = Self::default();
        let mut waiting =
            VecDeque::from([(root.to_owned(), ModulePath::new(), root.to_owned(), Vec::new())]);
        public.add_macros(sources, root);
        while let Some((of, module, prefix, before)) = waiting.pop_front() {
            if !public.modules.insert((of.clone(), module.clone())) {
                public.lines.insert(joined(&before, &format!("pub use {prefix}")));
                continue;
            }
            public.lines.insert(joined(&before, &format!("pub mod {prefix}")));
            let found = sources.crates.get(&of).and_then(|it| it.modules.get(&module));
            let found = found.ok_or_else(|| format!("{of}: no module {}", module.join("::")))?;
            for item in &found.items {
                if !visibility(item).is_some_and(is_public) {
                    continue;
                }
                let before = [&before[..], &conditions(attributes(item))].concat();
                match item {
                    Item::Mod(inner) => {
                        let name = inner.ident.to_string();
                        let path = format!("{prefix}::{name}");
                        waiting.push_back((
                            of.clone(),
                            [&module[..], &[name]].concat(),
                            path,
                            before,
                        ));
                    }
                    Item::Use(given) => {
                        let mut all = Vec::new();
                        imports(&given.tree, &[], &mut all);
                        for (name, path) in all {
                            if name == "*" {
                                return Err(format!(
                                    "{of}: pub use {}::*: name the items",
                                    path.join("::")
                                )
                                .into());
                            }
                            let targets = names.resolved(&of, &module, &path);
                            if targets.is_empty() {
                                return Err(
                                    format!("{of}: {} leads nowhere", path.join("::")).into()
                                );
                            }
                            let path = format!("{prefix}::{name}");
                            for target in targets {
                                match target {
                                    // A whole crate: its own list has its items.
                                    Target::Module(other, inner) if inner.is_empty() => {
                                        public.lines.insert(joined(
                                            &before,
                                            &format!("pub use {other} as {path}"),
                                        ));
                                    }
                                    Target::Module(other, inner) => {
                                        let is_private = is_private(sources, &other, &inner);
                                        // A private module of the same name as what is given on.
                                        if !is_private {
                                            waiting.push_back((
                                                other,
                                                inner,
                                                path.clone(),
                                                before.clone(),
                                            ));
                                        }
                                    }
                                    Target::Item(item) => public.add(item, &path, &before),
                                    Target::Below(item, rest) => {
                                        let line = format!(
                                            "pub use {}::{} as {path}",
                                            item.name,
                                            rest.join("::")
                                        );
                                        public.lines.insert(joined(&before, &line));
                                    }
                                    Target::Other(other) => {
                                        let line =
                                            format!("pub use {} as {path}", other.join("::"));
                                        public.lines.insert(joined(&before, &line));
                                    }
                                }
                            }
                        }
                    }
                    other => {
                        if let Some(name) = name_of(other) {
                            let path = format!("{prefix}::{name}");
                            let id = ItemId { of: of.clone(), module: module.clone(), name };
                            public.add(id, &path, &before);
                        }
                    }
                }
            }
        }
        Ok(public)
    }

    /// Exported macros are in the root, wherever they are defined.
    fn add_macros(&mut self, sources: &Sources, root: &str) {
        let modules = sources.crates.get(root).map(|it| &it.modules);
        for (module, found) in modules.into_iter().flatten() {
            for item in &found.items {
                let Item::Macro(it) = item else { continue };
                let is_exported = it.attrs.iter().any(|it| it.path().is_ident("macro_export"));
                if let Some(name) = it.ident.as_ref().filter(|_| is_exported) {
                    let (module, name) = (module.clone(), name.to_string());
                    let path = format!("{root}::{name}");
                    let id = ItemId { of: root.to_owned(), module, name };
                    self.add(id, &path, &conditions(&it.attrs));
                }
            }
        }
    }

    fn add(&mut self, item: ItemId, path: &str, before: &[String]) {
        match self.paths.get(&item) {
            Some((listed, _)) if listed == path => {}
            Some((listed, _)) => {
                self.lines.insert(joined(before, &format!("pub use {listed} as {path}")));
            }
            None => drop(self.paths.insert(item, (path.to_owned(), before.to_owned()))),
        }
    }
}

/// Whether a module is declared without `pub`.
fn is_private(sources: &Sources, of: &str, module: &[String]) -> bool {
    let Some((name, above)) = module.split_last() else { return false };
    let above = sources.crates.get(of).and_then(|it| it.modules.get(above));
    let is_it = |item: &&Item| matches!(item, Item::Mod(it) if it.ident == name);
    let declared = above.and_then(|it| it.items.iter().find(is_it));
    !declared.and_then(visibility).is_some_and(is_public)
}

/// How a derived trait is named where it is implemented by hand.
const DERIVED: [(&str, &str); 3] =
    [("Debug", "std::fmt::Debug"), ("Hash", "std::hash::Hash"), ("Display", "std::fmt::Display")];

/// Items that have a short name without an import, except where there is no std.
const IN_PRELUDE: [&str; 5] = [
    "std::boxed::Box",
    "std::result::Result",
    "std::string::String",
    "std::string::ToString",
    "std::vec::Vec",
];

impl<'a> Lister<'a> {
    /// # Errors
    /// There is no such crate, or a public name leads nowhere.
    pub(super) fn new(sources: &'a Sources, root: &str) -> Result<Self, Failure> {
        let names = Names::of(sources);
        let public = Public::of(sources, &names, root)?;
        let mut own = BTreeMap::new();
        for name in sources.crates.keys() {
            own.insert(name.clone(), Public::of(sources, &names, name)?);
        }
        let is_listed = public.paths.values().map(|(path, _)| path.clone()).collect();
        Ok(Self { sources, names, root: root.to_owned(), public, own, is_listed })
    }

    /// The public path of an item: in the crate that is listed, or in its own.
    fn path_of(&self, item: &ItemId) -> Option<&str> {
        let own = || self.own.get(&item.of).and_then(|it| it.paths.get(item));
        self.public.paths.get(item).or_else(own).map(|(path, _)| &path[..])
    }

    /// The tokens with the public paths of all that they name.
    fn shown(&self, of: &str, module: &[String], tokens: TokenStream) -> String {
        text(&self.with_public_paths(of, module, &flat(tokens)))
    }

    fn with_public_paths(&self, of: &str, module: &[String], tokens: &[Token]) -> Vec<Token> {
        with_paths(tokens, &mut |path| {
            let targets = self.names.resolved(of, module, path);
            let item = targets.iter().find_map(|target| match target {
                Target::Item(item) => Some((item, &[][..])),
                Target::Below(item, rest) => Some((item, &rest[..])),
                _ => None,
            });
            if let Some((item, rest)) = item {
                let listed =
                    self.path_of(item).map(|it| it.split("::").map(str::to_owned).collect());
                let listed = listed.unwrap_or_else(|| {
                    [&[item.of.clone()][..], &item.module, std::slice::from_ref(&item.name)]
                        .concat()
                });
                return Some([&listed[..], rest].concat());
            }
            targets.into_iter().find_map(|target| match target {
                Target::Other(path) if IN_PRELUDE.contains(&&path.join("::")[..]) => {
                    path.last().map(|name| vec![name.clone()])
                }
                Target::Other(path) if path.len() > 1 => Some(path),
                _ => None,
            })
        })
    }

    /// The text of the whole crate.
    ///
    /// # Errors
    /// An item is of a kind that is not known.
    pub(super) fn text(&self) -> Result<String, Failure> {
        let mut entries = BTreeMap::<String, Entry>::new();
        for (id, (path, before)) in &self.public.paths {
            let module = self.sources.crates.get(&id.of).and_then(|it| it.modules.get(&id.module));
            let items = module.map(|it| &it.items[..]).unwrap_or_default();
            for item in items.iter().filter(|it| name_of(it).as_deref() == Some(&id.name)) {
                let mut entry = self.declared(id, path, item)?;
                // The conditions of the item itself are on the way already where it is named.
                let own = conditions(attributes(item));
                let own = own.into_iter().filter(|it| !before.contains(it));
                let all: Vec<_> = before.iter().cloned().chain(own).collect();
                entry.head = joined(&all, &entry.head);
                let whole = entries.entry(path.clone()).or_default();
                if whole.head.is_empty() {
                    *whole = entry;
                } else {
                    whole.head.push('\n');
                    whole.head.push_str(&entry.head);
                }
            }
        }
        let mut for_others = BTreeSet::new();
        for (of, found) in &self.sources.crates {
            for (module, found) in &found.modules {
                for item in &found.items {
                    if let Item::Impl(found) = item {
                        self.add_impl(of, module, found, &mut entries, &mut for_others);
                    }
                }
            }
        }
        let mut lines = Vec::from_iter(self.public.lines.iter().cloned());
        // The root needs no line.
        lines.retain(|line| *line != format!("pub mod {}", self.root));
        for entry in entries.into_values() {
            lines.push(entry.head);
            let below = entry.parts.into_iter().chain(entry.members).chain(entry.traits);
            lines.extend(below.map(|line| format!("    {line}")));
        }
        lines.extend(for_others);
        Ok(lines.join("\n") + "\n")
    }

    /// The declaration of an item under its public path.
    fn declared(&self, id: &ItemId, path: &str, item: &Item) -> Result<Entry, Failure> {
        let shown = |tokens: TokenStream| self.shown(&id.of, &id.module, tokens);
        let mut entry = Entry::default();
        let mut marks = String::new();
        for mark in ["non_exhaustive", "deprecated", "doc"] {
            let is_it = |it: &&Attribute| {
                it.path().is_ident(mark)
                    && (mark != "doc" || it.to_token_stream().to_string().contains("hidden"))
            };
            if let Some(found) = attributes(item).iter().find(is_it) {
                marks = format!("{marks}{} ", text(&flat(found.to_token_stream())));
            }
        }
        let head = |kind: &str, generics: &Generics| {
            let (tokens, clause) = (generics.to_token_stream(), &generics.where_clause);
            let clause = clause.to_token_stream();
            let space = if clause.is_empty() { "" } else { " " };
            format!("{marks}pub {kind} {path}{}{space}{}", shown(tokens), shown(clause))
        };
        match item {
            Item::Struct(it) => {
                entry.head = head("struct", &it.generics);
                entry.parts = self.fields(id, &it.fields, true);
                self.add_derived(id, &it.attrs, &mut entry);
            }
            Item::Union(it) => {
                entry.head = head("union", &it.generics);
                entry.parts = self.fields(id, &Fields::Named(it.fields.clone()), true);
            }
            Item::Enum(it) => {
                entry.head = head("enum", &it.generics);
                for variant in &it.variants {
                    let fields = self.fields(id, &variant.fields, false).join(", ");
                    let fields = match variant.fields {
                        Fields::Named(_) => format!(" {{ {fields} }}"),
                        Fields::Unnamed(_) => format!("({fields})"),
                        Fields::Unit => String::new(),
                    };
                    let number = variant.discriminant.as_ref();
                    let number =
                        number.map(|(_, it)| format!(" = {}", shown(it.to_token_stream())));
                    let number = number.unwrap_or_default();
                    let line = format!("{}{fields}{number}", variant.ident);
                    entry.parts.push(joined(&conditions(&variant.attrs), &line));
                    for field in &variant.fields {
                        self.add_from(id, &it.attrs, field, &variant.attrs, &mut entry);
                    }
                }
                self.add_derived(id, &it.attrs, &mut entry);
            }
            Item::Trait(it) => {
                let unsafety = if it.unsafety.is_some() { "unsafe " } else { "" };
                entry.head = head(&format!("{unsafety}trait"), &it.generics);
                if !it.supertraits.is_empty() {
                    let above = shown(it.supertraits.to_token_stream());
                    entry.head = format!("{}: {above}", entry.head);
                }
                for member in &it.items {
                    let (attributes, line) = match member {
                        TraitItem::Fn(it) => {
                            let provided = if it.default.is_some() { " { .. }" } else { "" };
                            (&it.attrs, format!("{}{provided}", shown(signature(&it.sig))))
                        }
                        TraitItem::Const(it) => {
                            let (name, kind) = (&it.ident, &it.ty);
                            let provided = if it.default.is_some() { " = .." } else { "" };
                            (&it.attrs, format!("{}{provided}", shown(quote!(const #name: #kind))))
                        }
                        TraitItem::Type(it) => {
                            let mut plain = it.clone();
                            plain.attrs.clear();
                            let line = shown(plain.to_token_stream());
                            (&it.attrs, line.trim_end_matches(';').to_owned())
                        }
                        _ => continue,
                    };
                    entry.members.insert(joined(&conditions(attributes), &line));
                }
            }
            Item::Type(it) => {
                entry.head =
                    format!("{} = {}", head("type", &it.generics), shown(it.ty.to_token_stream()));
            }
            Item::Const(it) => {
                entry.head = format!("{marks}pub const {path}: {}", shown(it.ty.to_token_stream()));
            }
            Item::Static(it) => {
                entry.head =
                    format!("{marks}pub static {path}: {}", shown(it.ty.to_token_stream()));
            }
            Item::Fn(it) => {
                let text = shown(signature(&it.sig));
                let plain = format!("fn {}", it.sig.ident);
                entry.head =
                    format!("{marks}pub {}", text.replacen(&plain, &format!("fn {path}"), 1));
            }
            Item::Macro(_) => entry.head = format!("{marks}pub macro {path}!"),
            _ => return Err(format!("{path}: an item of an unknown kind").into()),
        }
        Ok(entry)
    }

    /// Fields, of a struct those that are public; `..` stands for the others.
    fn fields(&self, id: &ItemId, fields: &Fields, of_struct: bool) -> Vec<String> {
        let mut found = Vec::new();
        let mut has_private = false;
        for (number, field) in fields.iter().enumerate() {
            if of_struct && !is_public(&field.vis) {
                has_private = true;
                continue;
            }
            let shown = self.shown(&id.of, &id.module, field.ty.to_token_stream());
            let name = match &field.ident {
                Some(name) => Some(name.to_string()),
                None => of_struct.then(|| number.to_string()),
            };
            let line = name.map(|name| format!("{name}: {shown}")).unwrap_or(shown);
            let line = if of_struct { format!("pub {line}") } else { line };
            found.push(joined(&conditions(&field.attrs), &line));
        }
        if has_private {
            found.push("..".to_owned());
        }
        found
    }

    /// Traits that are derived.
    fn add_derived(&self, id: &ItemId, attributes: &[Attribute], entry: &mut Entry) {
        for attribute in attributes.iter().filter(|it| it.path().is_ident("derive")) {
            // A derive that is not a list of paths does not compile.
            let _ = attribute.parse_nested_meta(|meta| {
                let path = self.shown(&id.of, &id.module, meta.path.to_token_stream());
                let named = DERIVED.iter().find(|(short, _)| *short == path).map(|(_, long)| *long);
                match &path[..] {
                    "thiserror::Error" => {
                        entry.traits.insert("impl std::error::Error".to_owned());
                        entry.traits.insert("impl std::fmt::Display".to_owned());
                    }
                    _ => drop(entry.traits.insert(format!("impl {}", named.unwrap_or(&path)))),
                }
                Ok(())
            });
        }
    }

    /// The conversion that `#[from]` of a field makes.
    fn add_from(
        &self,
        id: &ItemId,
        of_type: &[Attribute],
        field: &syn::Field,
        of_variant: &[Attribute],
        entry: &mut Entry,
    ) {
        let is_error = of_type.iter().any(|it| it.to_token_stream().to_string().contains("Error"));
        if is_error && field.attrs.iter().any(|it| it.path().is_ident("from")) {
            let from = self.shown(&id.of, &id.module, field.ty.to_token_stream());
            let line = format!("impl From<{from}>");
            entry.traits.insert(joined(&conditions(of_variant), &line));
        }
    }

    /// Adds an implementation to the type that it is of.
    fn add_impl(
        &self,
        of: &str,
        module: &[String],
        found: &ItemImpl,
        entries: &mut BTreeMap<String, Entry>,
        for_others: &mut BTreeSet<String>,
    ) {
        if is_for_tests(&found.attrs) {
            return;
        }
        let mut of_type = &*found.self_ty;
        while let syn::Type::Reference(reference) = of_type {
            of_type = &reference.elem;
        }
        let listed = match of_type {
            syn::Type::Path(path) => self.listed(of, module, &path.path),
            _ => None,
        };
        let shown = |tokens: TokenStream| self.shown(of, module, tokens);
        let clause = shown(found.generics.where_clause.to_token_stream());
        let clause = if clause.is_empty() { clause } else { format!(" {clause}") };
        let own_conditions = conditions(&found.attrs);
        let Some((of_trait, _)) = &found.trait_ else {
            let Some(entry) = listed.and_then(|path| entries.get_mut(&path)) else { return };
            let bounds = shown(found.generics.to_token_stream());
            // Bounds of the whole block hold for each member.
            let is_bound = bounds.contains(':') || !clause.is_empty();
            let bounds = if is_bound { format!("impl{bounds}{clause}: ") } else { String::new() };
            for member in &found.items {
                let (attributes, visibility, line) = match member {
                    ImplItem::Fn(it) => (&it.attrs, &it.vis, shown(signature(&it.sig))),
                    ImplItem::Const(it) => {
                        let (name, kind) = (&it.ident, &it.ty);
                        (&it.attrs, &it.vis, shown(quote!(const #name: #kind)))
                    }
                    _ => continue,
                };
                if is_public(visibility) && !is_for_tests(attributes) {
                    let all = [&own_conditions[..], &conditions(attributes)].concat();
                    entry.members.insert(joined(&all, &format!("{bounds}pub {line}")));
                }
            }
            return;
        };
        // A trait that cannot be named from outside changes nothing there.
        let targets = self.names.resolved(of, module, &path_names(of_trait));
        let is_ours =
            |it: &Target| matches!(it, Target::Item(item) if self.path_of(item).is_none());
        if targets.iter().any(is_ours) {
            return;
        }
        let types: Vec<_> = found
            .items
            .iter()
            .filter_map(|item| match item {
                ImplItem::Type(it) => {
                    let (name, generics, kind) = (&it.ident, &it.generics, &it.ty);
                    Some(shown(quote!(type #name #generics = #kind)))
                }
                _ => None,
            })
            .collect();
        let types = match types.is_empty() {
            true => String::new(),
            false => format!(" {{ {} }}", types.join("; ")),
        };
        let generics = shown(found.generics.to_token_stream());
        let of_trait_shown = shown(of_trait.to_token_stream());
        let of_type_shown = shown(found.self_ty.to_token_stream());
        let whole = format!("impl{generics} {of_trait_shown} for {of_type_shown}{clause}{types}");
        if let Some(entry) = listed.as_ref().and_then(|path| entries.get_mut(path)) {
            // The type itself, without arguments: it need not be said again.
            let is_plain = listed.as_deref() == Some(&of_type_shown) && generics.is_empty();
            let short = format!("impl {of_trait_shown}{clause}{types}");
            let line = if is_plain { short } else { whole };
            entry.traits.insert(joined(&own_conditions, &line));
            return;
        }
        let is_word = |it: char| it.is_alphanumeric() || matches!(it, '_' | ':');
        let of_ours = |text: &str| {
            text.split(|it: char| !is_word(it)).any(|word| self.is_listed.contains(word))
        };
        let is_foreign = match of_type {
            syn::Type::Path(path) => {
                let targets = self.names.resolved(of, module, &path_names(&path.path));
                !targets.iter().any(|it| matches!(it, Target::Item(_)))
            }
            _ => true,
        };
        if is_foreign && of_ours(&format!("{of_trait_shown} {of_type_shown}")) {
            for_others.insert(joined(&own_conditions, &whole));
        }
    }

    /// The public path of the item that a path of a source names.
    fn listed(&self, of: &str, module: &[String], path: &syn::Path) -> Option<String> {
        let targets = self.names.resolved(of, module, &path_names(path));
        targets.iter().find_map(|target| match target {
            Target::Item(item) => self.public.paths.get(item).map(|(path, _)| path.clone()),
            _ => None,
        })
    }
}

fn path_names(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|it| it.ident.to_string()).collect()
}

/// A signature as its users see it: names of arguments, without patterns.
fn signature(found: &syn::Signature) -> TokenStream {
    let mut plain = found.clone();
    for argument in &mut plain.inputs {
        match argument {
            FnArg::Receiver(it) => {
                it.attrs.clear();
                // `mut self` is the body's business.
                it.mutability = None;
            }
            FnArg::Typed(it) => {
                it.attrs.clear();
                match &mut *it.pat {
                    Pat::Ident(name) => (name.mutability, name.by_ref) = (None, None),
                    other => *other = syn::parse_quote!(_),
                }
            }
        }
    }
    plain.to_token_stream()
}
