//! Which file of a crate imports which: no circles, and the walls of the operator.
//!
//! A file imports another one if it names something that the other one defines. A module below
//! another one may use its items: that does not count as an import.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, mem,
    path::{Path, PathBuf},
};

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// The modules on the way from the root of a crate.
type Place = Vec<String>;

/// A module as its file has it.
#[derive(Debug, Default)]
struct Module {
    file: PathBuf,
    children: BTreeSet<String>,
    defined: BTreeSet<String>,
    /// Paths of imports, each with the name that it has here; `*` stands for all names.
    uses: Vec<(Place, String)>,
    /// Paths of other code.
    paths: Vec<Place>,
}

/// The modules of a crate, without tests.
#[derive(Debug, Default)]
struct Modules(BTreeMap<Place, Module>);

/// What each file takes from which others.
pub(crate) struct Imports(BTreeMap<PathBuf, BTreeMap<PathBuf, BTreeSet<String>>>);

impl Imports {
    /// The imports in the crate whose root is this file.
    pub(crate) fn of(root: &Path) -> Self {
        let mut modules = Modules::default();
        modules.read(vec![], root, root.parent().unwrap());
        let mut imports = Self(BTreeMap::new());
        for (place, module) in &modules.0 {
            let used = module.uses.iter().map(|(path, _)| path);
            for path in used.chain(&module.paths) {
                let Some((start, rest)) = modules.start(place, path) else {
                    continue;
                };
                let (target, name) = modules.definition(start, rest, 0);
                let file = &modules.0[&target].file;
                if *file != module.file && !place.starts_with(&target) {
                    let of_file = imports.0.entry(module.file.clone()).or_default();
                    of_file.entry(file.clone()).or_default().insert(name);
                }
            }
        }
        imports
    }

    /// What a file imports, files below a folder of its own name included.
    fn from<'a>(&'a self, file: &'a Path) -> impl Iterator<Item = (&'a PathBuf, &'a PathBuf)> {
        let folder = file.with_extension("");
        let own = move |from: &Path| from == file || from.starts_with(&folder);
        let files = self.0.iter().filter(move |(from, _)| own(from));
        files.flat_map(|(from, to)| to.keys().map(move |to| (from, to)))
    }

    /// Whether a file imports another one, perhaps through others.
    fn reaches(&self, from: &Path, to: &Path) -> bool {
        let mut reached = BTreeSet::new();
        let mut open = vec![from];
        while let Some(file) = open.pop() {
            let next = self.0.get(file).into_iter().flat_map(BTreeMap::keys);
            let next = next.map(PathBuf::as_path);
            open.extend(next.filter(|next| reached.insert(next.to_path_buf())));
        }
        reached.contains(to)
    }

    /// The imports within circles, a line for each.
    pub(crate) fn circles(&self) -> Vec<String> {
        let mut lines = vec![];
        for (from, targets) in &self.0 {
            for (to, names) in targets {
                if self.reaches(to, from) {
                    let names = Vec::from_iter(names.iter().map(String::as_str)).join(", ");
                    lines.push(format!(
                        "{} imports {names} from {}",
                        from.display(),
                        to.display()
                    ));
                }
            }
        }
        lines
    }
}

impl Modules {
    fn read(&mut self, place: Place, file: &Path, folder: &Path) {
        let text = fs::read_to_string(file).unwrap();
        let stream: TokenStream = text.parse().unwrap();
        self.read_items(place, file, folder, stream);
    }

    fn read_items(&mut self, place: Place, file: &Path, folder: &Path, stream: TokenStream) {
        let mut module = Module {
            file: file.to_owned(),
            ..Module::default()
        };
        let tokens = without_tests(stream);
        let mut rest = vec![];
        let mut i = 0;
        while i < tokens.len() {
            let name = tokens.get(i + 1).map(ToString::to_string).unwrap_or_default();
            match tokens[i].to_string().as_str() {
                "mod" => {
                    let mut below = place.clone();
                    below.push(name.clone());
                    module.children.insert(name.clone());
                    if let Some(TokenTree::Group(group)) = tokens.get(i + 2) {
                        self.read_items(below, file, &folder.join(&name), group.stream());
                    } else {
                        let own = folder.join(format!("{name}.rs"));
                        self.read(below, &own, &folder.join(&name));
                    }
                    i += 2;
                }
                // Not what a return type captures: `use<'a>`.
                "use" if name != "<" => {
                    let end = tokens[i..].iter().position(is_semicolon).unwrap() + i;
                    tree(&tokens[i + 1..end], &[], &mut module.uses);
                    i = end;
                }
                "struct" | "enum" | "trait" | "const" | "static" | "type" | "fn" | "union" => {
                    module.defined.insert(name);
                }
                "macro_rules" => {
                    module.defined.extend(tokens.get(i + 2).map(ToString::to_string));
                }
                _ => {}
            }
            rest.push(tokens[i].clone());
            i += 1;
        }
        paths(rest, &mut module.paths);
        self.0.insert(place, module);
    }

    /// Where a path begins, and the rest of it. `None` if it leads out of the crate.
    fn start<'a>(&self, place: &Place, path: &'a [String]) -> Option<(Place, &'a [String])> {
        let supers = path.iter().take_while(|part| *part == "super").count();
        match path.first()?.as_str() {
            "crate" => Some((vec![], &path[1..])),
            "self" => Some((place.clone(), &path[1..])),
            "super" => Some((
                place[..place.len().checked_sub(supers)?].to_vec(),
                &path[supers..],
            )),
            first => self.0[place]
                .children
                .contains(first)
                .then(|| (place.clone(), path)),
        }
    }

    /// The module that defines what a path leads to, and its name there.
    fn definition(&self, mut place: Place, mut path: &[String], depth: usize) -> (Place, String) {
        while let Some((first, rest)) = path.split_first() {
            if !self.0[&place].children.contains(first) {
                break;
            }
            place.push(first.clone());
            path = rest;
        }
        let Some((name, rest)) = path.split_first() else {
            return (place, "the module".to_owned());
        };
        let module = &self.0[&place];
        if module.defined.contains(name) || depth > 8 {
            return (place, name.clone());
        }
        for (used, known_as) in &module.uses {
            let Some((start, tail)) = self.start(&place, used) else {
                continue;
            };
            if known_as == name {
                return self.definition(start, &[tail, rest].concat(), depth + 1);
            }
            if known_as == "*" {
                let found = self.definition(start, &[tail, path].concat(), depth + 1);
                if self.0[&found.0].defined.contains(name) {
                    return found;
                }
            }
        }
        (place, name.clone())
    }
}

/// Tokens without items that only tests have.
fn without_tests(stream: TokenStream) -> Vec<TokenTree> {
    let mut kept = vec![];
    let mut tokens = stream.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let is_attribute = token.to_string() == "#";
        if is_attribute
            && tokens
                .peek()
                .is_some_and(|next| next.to_string() == "[cfg (test)]")
        {
            let is_end = |token: &TokenTree| match token {
                TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                other => is_semicolon(other),
            };
            tokens.by_ref().find(is_end);
        } else {
            kept.push(token);
        }
    }
    kept
}

fn is_semicolon(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == ';')
}

/// Whether `::` follows.
fn is_path(tokens: &[TokenTree]) -> bool {
    let colon = |token: Option<&TokenTree>, spacing| matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == ':' && punct.spacing() == spacing);
    colon(tokens.first(), Spacing::Joint)
        && matches!(tokens.get(1), Some(TokenTree::Punct(punct)) if punct.as_char() == ':')
}

/// The paths of an import, each with the name that it gives.
fn tree(tokens: &[TokenTree], before: &[String], uses: &mut Vec<(Place, String)>) {
    for part in tokens.split(|token| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',')) {
        let mut path = before.to_vec();
        let mut alias = None;
        for (i, token) in part.iter().enumerate() {
            match token {
                TokenTree::Ident(word) if *word == "as" => {
                    alias = part.get(i + 1).map(ToString::to_string);
                    break;
                }
                TokenTree::Ident(word) => path.push(word.to_string()),
                TokenTree::Punct(punct) if punct.as_char() == '*' => alias = Some("*".to_owned()),
                TokenTree::Group(group) => {
                    let inner: Vec<_> = group.stream().into_iter().collect();
                    tree(&inner, &mem::take(&mut path), uses);
                }
                _ => {}
            }
        }
        if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
            path.pop();
        }
        if let Some(last) = path.last().cloned() {
            uses.push((path, alias.unwrap_or(last)));
        }
    }
}

/// All paths of two or more parts.
fn paths(tokens: Vec<TokenTree>, found: &mut Vec<Place>) {
    let mut path: Place = vec![];
    for (i, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Ident(word) => {
                path.push(word.to_string());
                if !is_path(&tokens[i + 1..]) {
                    found.extend(Some(mem::take(&mut path)).filter(|path| path.len() > 1));
                }
            }
            TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => {}
            TokenTree::Group(group) => {
                // The rest of an import within a body.
                found.extend(Some(mem::take(&mut path)).filter(|path| !path.is_empty()));
                paths(without_tests(group.stream()), found);
            }
            _ => path.clear(),
        }
    }
}

/// The crate of these files, which it removes.
fn crate_of(files: &[(&str, &str)]) -> (tempfile::TempDir, Imports) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    let imports = Imports::of(&folder.path().join("lib.rs"));
    (folder, imports)
}

#[test]
fn no_crate_has_a_circle_of_imports() {
    for root in super::roots() {
        let circles = Imports::of(&root).circles();
        assert!(
            circles.is_empty(),
            "files import each other in a circle; move what they share to a file of its own:\n{}",
            circles.join("\n")
        );
    }
}

#[test]
fn a_circle_is_found_whatever_leads_to_it() {
    let lib = "mod a; mod b; mod c; pub use c::Late;";
    for (a, b, is_circle) in [
        ("use crate::b::B; struct A;", "use super::a::A; struct B;", true),
        ("fn a() { crate::b::b() }", "use crate::a; fn b() {}", true),
        // Through another file, by a name that the root has of it.
        ("use crate::{b::B as Other};", "use crate::Late; struct B;", true),
        ("use crate::b::B;", "struct B;", false),
        (
            "use crate::b::B;",
            "struct B; #[cfg(test)] mod tests { use crate::a; }",
            false,
        ),
    ] {
        let c = "use crate::a; pub struct Late;";
        let (_folder, imports) = crate_of(&[("lib.rs", lib), ("a.rs", a), ("b.rs", b), ("c.rs", c)]);
        assert_eq!(!imports.circles().is_empty(), is_circle, "{a} {b}");
    }
}

#[test]
fn a_module_below_another_one_may_name_its_items() {
    let (_folder, imports) = crate_of(&[
        ("lib.rs", "mod a; fn root() {}"),
        ("a.rs", "mod b; use self::b::B; struct A;"),
        ("a/b.rs", "use super::A; struct B; fn b() { crate::root() }"),
    ]);
    assert_eq!(imports.circles(), Vec::<String>::new());
}

#[test]
fn the_wings_of_the_operator_keep_apart() {
    let source = super::workspace().join("operator/src");
    let imports = Imports::of(&source.join("lib.rs"));
    let file = |name: &str| source.join(name);
    let imported = |from: &str| -> BTreeSet<PathBuf> {
        let from = file(from);
        imports.from(&from).map(|(_, to)| to.clone()).collect()
    };
    let wing = |name: &str| -> BTreeSet<PathBuf> {
        let folder = file(name);
        let outside = imported(&format!("{name}.rs")).into_iter();
        outside
            .filter(|to| !to.starts_with(&folder) && *to != folder.with_extension("rs"))
            .collect()
    };
    let run = file("run.rs");
    let mut stages = imports.from(&run).collect::<Vec<_>>();
    stages.retain(|(_, to)| **to == file("run/controller.rs"));
    assert_eq!(stages, [], "a stage imports the driver that calls it");
    let conduct = wing("conduct");
    for stage in ["run/apply.rs", "run/controller.rs"] {
        assert!(!conduct.contains(&file(stage)), "conduct imports {stage}");
    }
    assert!(
        conduct.contains(&file("services.rs")),
        "the check sees what is there: {conduct:?}"
    );
    assert_eq!(wing("store"), BTreeSet::from([file("process/signal.rs")]));
    assert_eq!(wing("api"), BTreeSet::new());
}
