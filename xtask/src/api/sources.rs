//! The sources of crates as a compiler sees them: modules with their items, macros expanded.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Item, Token, Visibility, braced};

use super::expand::Rules;
use crate::Failure;

/// The path of a module within its crate; that of the root is empty.
pub(super) type ModulePath = Vec<String>;

/// A module.
#[derive(Default)]
pub(super) struct Module {
    /// Its items without those of macros' definitions and of tests.
    pub(super) items: Vec<Item>,
}

/// The modules of a crate.
#[derive(Default)]
pub(super) struct Crate {
    pub(super) modules: BTreeMap<ModulePath, Module>,
}

/// The libraries of the workspace by the names that Rust has for them: `extant_ondisk`.
#[derive(Default)]
pub(super) struct Sources {
    pub(super) crates: BTreeMap<String, Crate>,
}

/// A definition of a macro: its crate, and the rules.
type Macros = BTreeMap<String, Vec<(String, Rules)>>;

/// Macros of other crates that define nothing public.
const NOT_PUBLIC: [&str; 3] = ["thread_local", "compile_error", "const_assert"];

impl Sources {
    /// Reads a library of a workspace and those that it depends on.
    ///
    /// # Errors
    /// A file is missing or is not Rust, or a macro is not understood.
    pub(super) fn read(workspace: &Path, package: &str) -> Result<Self, Failure> {
        let mut sources = Self::default();
        let mut macros = Macros::new();
        let mut waiting = vec![package.to_owned()];
        while let Some(package) = waiting.pop() {
            let name = package.replace('-', "_");
            if sources.crates.contains_key(&name) {
                continue;
            }
            let dir = workspace.join("crates").join(package.trim_start_matches("extant-"));
            let manifest = dir.join("Cargo.toml");
            let manifest = fs::read_to_string(&manifest)
                .map_err(|error| format!("{}: {error}", manifest.display()))?;
            let needed = manifest.split("\n[").find(|it| it.starts_with("dependencies]"));
            let lines = needed.unwrap_or_default().lines();
            let names = lines.filter_map(|line| line.split(['.', ' ']).next());
            waiting.extend(names.filter(|it| it.starts_with("extant-")).map(str::to_owned));
            let mut reader = Reader { name: &name, found: Crate::default(), macros: &mut macros };
            reader.read_file(&dir.join("src/lib.rs"), Vec::new())?;
            let found = reader.found;
            sources.crates.insert(name, found);
        }
        for (name, found) in &mut sources.crates {
            for module in found.modules.values_mut() {
                let items = std::mem::take(&mut module.items);
                for item in items {
                    expanded(item, name, &macros, &mut module.items)?;
                }
            }
        }
        Ok(sources)
    }
}

/// Reads the files of one crate.
struct Reader<'a> {
    name: &'a str,
    found: Crate,
    macros: &'a mut Macros,
}

impl Reader<'_> {
    fn read_file(&mut self, path: &Path, module: ModulePath) -> Result<(), Failure> {
        let file = parsed(path)?;
        // `mod.rs` and `lib.rs` have the files of their modules next to them.
        let dir = path.parent().unwrap_or(Path::new("")).to_owned();
        self.read_items(file.items, &dir, module)
    }

    fn read_items(
        &mut self,
        items: Vec<Item>,
        dir: &Path,
        module: ModulePath,
    ) -> Result<(), Failure> {
        for item in items {
            if is_for_tests(attributes(&item)) {
                continue;
            }
            match &item {
                Item::Mod(found) => {
                    let inner = [&module[..], &[found.ident.to_string()]].concat();
                    let below = dir.join(found.ident.to_string());
                    match found.content.clone() {
                        Some((_, items)) => self.read_items(items, &below, inner)?,
                        None => {
                            let given = given_path(&found.attrs).map(|path| dir.join(path));
                            let path = given.unwrap_or_else(|| file_of(&below));
                            self.read_file(&path, inner)?;
                        }
                    }
                }
                Item::Macro(definition) if definition.ident.is_some() => {
                    let name = definition.ident.as_ref().map(ToString::to_string);
                    let rules = Rules::read(definition.mac.tokens.clone(), self.name);
                    let all = self.macros.entry(name.unwrap_or_default()).or_default();
                    all.push((self.name.to_owned(), rules));
                    // Its name may be given on.
                }
                Item::Macro(call) if call.mac.path.is_ident("include") => {
                    let name: syn::LitStr = call.mac.parse_body()?;
                    let included = parsed(&dir.join(name.value()))?;
                    self.read_items(included.items, dir, module.clone())?;
                    continue;
                }
                _ => {}
            }
            self.found.modules.entry(module.clone()).or_default().items.push(item);
        }
        self.found.modules.entry(module).or_default();
        Ok(())
    }
}

fn file_of(below: &Path) -> PathBuf {
    let flat = below.with_extension("rs");
    if flat.is_file() { flat } else { below.join("mod.rs") }
}

/// The path of an attribute `#[path = "..."]`.
fn given_path(attributes: &[Attribute]) -> Option<String> {
    let found = attributes.iter().find(|it| it.path().is_ident("path"))?;
    let syn::Meta::NameValue(value) = &found.meta else { return None };
    match &value.value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

fn parsed(path: &Path) -> Result<syn::File, Failure> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    syn::parse_file(&text).map_err(|error| format!("{}: {error}", path.display()).into())
}

/// Adds an item, or what it is expanded to.
fn expanded(
    item: Item,
    crate_name: &str,
    macros: &Macros,
    items: &mut Vec<Item>,
) -> Result<(), Failure> {
    let Item::Macro(call) = item else {
        items.push(item);
        return Ok(());
    };
    if call.ident.is_some() {
        items.push(Item::Macro(call));
        return Ok(());
    }
    let name = call.mac.path.segments.last().map(|it| it.ident.to_string()).unwrap_or_default();
    if NOT_PUBLIC.contains(&&name[..]) {
        return Ok(());
    }
    let made = if name == "bitflags" {
        call.mac.parse_body::<Flags>()?.items()
    } else {
        let all = macros.get(&name).map(Vec::as_slice).unwrap_or_default();
        let own = all.iter().find(|(of, _)| of == crate_name).or(all.first());
        let (_, rules) = own.ok_or_else(|| format!("{crate_name}: unknown macro {name}!"))?;
        rules.expand(&name, &call.mac.tokens)?
    };
    let made: syn::File = syn::parse2(made).map_err(|error| format!("macro {name}!: {error}"))?;
    for mut item in made.items {
        // The conditions of a call are those of all that it makes.
        if let Some(attributes) = attributes_mut(&mut item) {
            attributes.extend(call.attrs.iter().filter(|it| it.path().is_ident("cfg")).cloned());
        }
        expanded(item, crate_name, macros, items)?;
    }
    Ok(())
}

/// The types of a call of `bitflags!`.
struct Flags {
    types: Vec<FlagType>,
}

struct FlagType {
    attributes: Vec<Attribute>,
    visibility: Visibility,
    name: syn::Ident,
    bits: syn::Type,
    flags: Vec<syn::Ident>,
}

impl Parse for Flags {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut types = Vec::new();
        while !input.is_empty() {
            let attributes = input.call(Attribute::parse_outer)?;
            let visibility = input.parse()?;
            input.parse::<Token![struct]>()?;
            let name = input.parse()?;
            input.parse::<Token![:]>()?;
            let bits = input.parse()?;
            let body;
            braced!(body in input);
            let mut flags = Vec::new();
            while !body.is_empty() {
                body.call(Attribute::parse_outer)?;
                body.parse::<Token![const]>()?;
                // The bits without a name.
                if body.peek(Token![_]) {
                    body.parse::<Token![_]>()?;
                } else {
                    flags.push(body.parse()?);
                }
                body.parse::<Token![=]>()?;
                body.parse::<syn::Expr>()?;
                body.parse::<Token![;]>()?;
            }
            types.push(FlagType { attributes, visibility, name, bits, flags });
        }
        Ok(Self { types })
    }
}

impl Flags {
    /// The same as ordinary items. The methods of all flags are those of the trait.
    fn items(&self) -> TokenStream {
        self.types
            .iter()
            .map(|FlagType { attributes, visibility, name, bits, flags }| {
                quote! {
                    #(#attributes)* #visibility struct #name(#bits);
                    impl #name { #(pub const #flags: Self = Self(0);)* }
                    impl bitflags::Flags for #name { type Bits = #bits; }
                }
            })
            .collect()
    }
}

/// The attributes of an item.
pub(super) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(it) => &it.attrs,
        Item::Enum(it) => &it.attrs,
        Item::Fn(it) => &it.attrs,
        Item::Impl(it) => &it.attrs,
        Item::Macro(it) => &it.attrs,
        Item::Mod(it) => &it.attrs,
        Item::Static(it) => &it.attrs,
        Item::Struct(it) => &it.attrs,
        Item::Trait(it) => &it.attrs,
        Item::Type(it) => &it.attrs,
        Item::Union(it) => &it.attrs,
        Item::Use(it) => &it.attrs,
        _ => &[],
    }
}

fn attributes_mut(item: &mut Item) -> Option<&mut Vec<Attribute>> {
    Some(match item {
        Item::Const(it) => &mut it.attrs,
        Item::Enum(it) => &mut it.attrs,
        Item::Fn(it) => &mut it.attrs,
        Item::Impl(it) => &mut it.attrs,
        Item::Macro(it) => &mut it.attrs,
        Item::Mod(it) => &mut it.attrs,
        Item::Static(it) => &mut it.attrs,
        Item::Struct(it) => &mut it.attrs,
        Item::Trait(it) => &mut it.attrs,
        Item::Type(it) => &mut it.attrs,
        Item::Union(it) => &mut it.attrs,
        Item::Use(it) => &mut it.attrs,
        _ => return None,
    })
}

/// Whether an attribute is a condition that holds in tests, or under shuttle, alone.
pub(super) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|it| it.path().is_ident("cfg")).any(|it| {
        let text = it.meta.to_token_stream().to_string().replace(' ', "");
        let is_one = |condition: &str| text == format!("cfg({condition})");
        is_one("test")
            || is_one("doctest")
            || is_one("feature=\"shuttle\"")
            || text.starts_with("cfg(all(test,")
            || text.starts_with("cfg(all(doctest,")
    })
}
