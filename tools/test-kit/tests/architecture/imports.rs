//! Which file of a crate imports which: no circles, the walls of the operator, and commands that keep apart.
//!
//! A file imports another one if it names something that the other one defines, under whatever name. A circle
//! is allowed if all of its files lie below one of them, because they are one subject. What a file takes from
//! a file further up than the one that declares it makes a circle all the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, iter, mem,
    path::{Path, PathBuf},
};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

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
    paths: BTreeSet<Place>,
}

/// The modules of a crate, without those that only its tests have.
#[derive(Debug, Default)]
struct Modules(BTreeMap<Place, Module>);

/// What each file takes from which others.
pub(crate) struct Imports {
    taken: BTreeMap<PathBuf, BTreeMap<PathBuf, BTreeSet<String>>>,
    /// The file that declares each file.
    parents: BTreeMap<PathBuf, PathBuf>,
}

impl Imports {
    /// The imports in the crate whose root is this file.
    pub(crate) fn of(root: &Path) -> Self {
        let mut modules = Modules::default();
        modules.read(vec![], root, root.parent().unwrap());
        let mut imports = Self {
            taken: BTreeMap::new(),
            parents: BTreeMap::new(),
        };
        for (place, module) in &modules.0 {
            let mut above = (0..place.len()).rev().map(|end| &modules.0[&place[..end]].file);
            if let Some(parent) = above.find(|file| **file != module.file) {
                imports.parents.insert(module.file.clone(), parent.clone());
            }
            let used = module.uses.iter().map(|(path, _)| path);
            // Any word may be a name that a glob imports.
            let has_glob = module.uses.iter().any(|(_, known_as)| known_as == "*");
            let paths = module.paths.iter().filter(|path| path.len() > 1 || has_glob);
            for path in used.chain(paths) {
                let Some((target, name)) = modules.definition(place, path, 0) else {
                    continue;
                };
                let file = &modules.0[&target].file;
                if *file != module.file {
                    let of_file = imports.taken.entry(module.file.clone()).or_default();
                    of_file.entry(file.clone()).or_default().insert(name);
                }
            }
        }
        imports
    }

    /// The imports that a rule forbids, a line for each.
    fn lines(&self, is_forbidden: impl Fn(&Path, &Path) -> bool) -> Vec<String> {
        let mut lines = vec![];
        for (from, targets) in &self.taken {
            for (to, names) in targets {
                if is_forbidden(from, to) {
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

    /// The files that declare a file, from the nearest to the root.
    fn above(&self, file: &Path) -> Vec<&Path> {
        let parents = iter::successors(self.parents.get(file), |file| self.parents.get(*file));
        parents.map(PathBuf::as_path).collect()
    }

    /// Whether a file imports another one, perhaps through others, but not through those.
    fn reaches(&self, from: &Path, to: &Path, without: &[&Path]) -> bool {
        let mut reached = BTreeSet::new();
        let mut open = vec![from];
        while let Some(file) = open.pop() {
            let next = self.taken.get(file).into_iter().flat_map(BTreeMap::keys);
            let next = next.map(PathBuf::as_path).filter(|next| !without.contains(next));
            open.extend(next.filter(|next| reached.insert(*next)));
        }
        reached.contains(to)
    }

    /// The imports within circles, a line for each.
    pub(crate) fn circles(&self) -> Vec<String> {
        self.lines(|from, to| {
            let (above_from, mut above_both) = (self.above(from), self.above(to));
            let is_below = above_both.contains(&from);
            above_both.retain(|file| above_from.contains(file));
            let is_allowed = is_below || above_from.first() == Some(&to);
            !is_allowed && self.reaches(to, from, &above_both)
        })
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
                    i += 3;
                    continue;
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
        module.read_names(&rest);
        self.0.insert(place, module);
    }

    /// The module that defines what a path in a module leads to, and its name there. `None` if the path leads
    /// out of the crate, or to a module: what is taken of that has a longer path.
    fn definition(&self, place: &Place, path: &[String], depth: usize) -> Option<(Place, String)> {
        let (mut place, mut rest) = (place.clone(), path);
        while let Some((first, after)) = rest.split_first() {
            match first.as_str() {
                "crate" => place.clear(),
                "self" => {}
                "super" => _ = place.pop()?,
                child if self.0[&place].children.contains(child) => place.push(child.to_owned()),
                _ => break,
            }
            rest = after;
        }
        let (name, after) = rest.split_first()?;
        let module = &self.0[&place];
        if module.defined.contains(name) {
            return Some((place, name.clone()));
        }
        if depth > 8 {
            return None;
        }
        let named = module.uses.iter().find(|(_, known_as)| known_as == name);
        if let Some((used, _)) = named {
            return self.definition(&place, &[&used[..], after].concat(), depth + 1);
        }
        for (used, _) in module.uses.iter().filter(|(_, known_as)| known_as == "*") {
            let found = self.definition(&place, &[&used[..], rest].concat(), depth + 1);
            // Not the enum whose variants are imported.
            let has = |(at, found): &(Place, String)| {
                self.0[at].defined.contains(found) && used.last() != Some(found)
            };
            if found.as_ref().is_some_and(has) {
                return found;
            }
        }
        // A macro defines it, or another crate.
        let is_own = rest.len() < path.len();
        is_own.then(|| (place, name.clone()))
    }
}

impl Module {
    /// Reads imports and other paths, those within bodies included.
    fn read_names(&mut self, tokens: &[TokenTree]) {
        let mut path: Place = vec![];
        let mut i = 0;
        while i < tokens.len() {
            let rest = &tokens[i + 1..];
            match &tokens[i] {
                // Not what a return type captures: `use<'a>`.
                TokenTree::Ident(word) if *word == "use" && !is_punct(rest.first(), '<') => {
                    let end = rest.iter().position(is_semicolon).unwrap_or(rest.len());
                    tree(&rest[..end], &[], &mut self.uses);
                    i += end;
                }
                TokenTree::Ident(word) => {
                    path.push(word.to_string());
                    if is_punct(rest.first(), ':') && is_punct(rest.get(1), ':') {
                        i += 3;
                        continue;
                    }
                }
                TokenTree::Group(group) => self.read_names(&without_tests(group.stream())),
                // serde takes paths of functions as strings.
                TokenTree::Literal(literal) => {
                    let text = literal.to_string();
                    path = text.trim_matches('"').split("::").map(str::to_owned).collect();
                }
                TokenTree::Punct(_) => {}
            }
            self.paths
                .extend(Some(mem::take(&mut path)).filter(|path| !path.is_empty()));
            i += 1;
        }
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

fn is_punct(token: Option<&TokenTree>, character: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == character)
}

fn is_semicolon(token: &TokenTree) -> bool {
    is_punct(Some(token), ';')
}

/// The paths of an import, each with the name that it gives.
fn tree(tokens: &[TokenTree], before: &[String], uses: &mut Vec<(Place, String)>) {
    for part in tokens.split(|token| is_punct(Some(token), ',')) {
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
fn a_circle_of_modules_is_found_through_every_form_of_import() {
    let lib = "mod a; mod b; mod c; pub use c::Late;";
    for (a, b, is_circle) in [
        ("use crate::b::B; struct A;", "use super::a::A; struct B;", true),
        (
            "fn a() { crate::b::b::<u8>() }",
            "use crate::a as c; fn b() { c::a() }",
            true,
        ),
        // Through another file, by a name that the root has of it.
        ("use crate::{b::B as Other};", "use crate::Late; struct B;", true),
        ("use crate::b::B;", "struct B;", false),
        (
            "use crate::b::B;",
            "use std::a; struct B; fn b() { a::b() }",
            false,
        ),
        (
            "use crate::b::B;",
            "struct B; #[cfg(test)] mod tests { use crate::a::A; }",
            false,
        ),
    ] {
        let c = "pub struct Late; fn c() { crate::a::a() }";
        let (_folder, imports) = crate_of(&[("lib.rs", lib), ("a.rs", a), ("b.rs", b), ("c.rs", c)]);
        assert_eq!(!imports.circles().is_empty(), is_circle, "{a} {b}");
    }
}

#[test]
fn a_module_may_name_items_of_the_file_that_declares_it_and_of_no_file_further_up() {
    for (b, is_circle) in [
        ("use super::A; struct B;", false),
        ("struct B; mod inner { use super::super::A; }", false),
        ("struct B; fn b() { crate::root() }", true),
        ("use super::super::Root; struct B;", true),
        ("use crate::Kept; struct B;", false),
    ] {
        let (_folder, imports) = crate_of(&[
            (
                "lib.rs",
                "mod a; mod kept; use a::A; use kept::Kept; fn root() {} struct Root;",
            ),
            ("kept.rs", "struct Kept;"),
            ("a.rs", "mod b; use self::b::B; struct A;"),
            ("a/b.rs", b),
        ]);
        assert_eq!(!imports.circles().is_empty(), is_circle, "{b}");
    }
}

#[test]
fn a_circle_through_a_file_beside_the_one_that_declares_another_is_found() {
    for (a, b, c, is_circle) in [
        (
            "mod b; use crate::c::C; struct A;",
            "use super::A; struct B;",
            "use crate::a::b::B; struct C;",
            true,
        ),
        (
            "mod b; struct A;",
            "use super::A; struct B;",
            "use crate::a::b::B; struct C;",
            false,
        ),
        (
            "mod b; use crate::c::C; struct A;",
            "struct B;",
            "use crate::a::b::B; struct C;",
            false,
        ),
        // The root lies above all.
        (
            "mod b; use crate::c::C; struct A;",
            "struct B;",
            "use crate::Root; struct C;",
            false,
        ),
    ] {
        let lib = "mod a; mod c; use a::A; struct Root;";
        let (_folder, imports) = crate_of(&[("lib.rs", lib), ("a.rs", a), ("a/b.rs", b), ("c.rs", c)]);
        assert_eq!(!imports.circles().is_empty(), is_circle, "{a} {b} {c}");
    }
}

/// The wings of the operator. Each imports only those before it.
const WINGS: [&str; 16] = [
    "api",
    "names",
    "access",
    "policy",
    "token",
    "process",
    "store",
    "args",
    "self_test",
    "build",
    "pods",
    "services",
    "conduct",
    "run",
    "schedule",
    "operator",
];

/// Whether a file is that of a module, or below it.
fn within(file: &Path, module: &Path) -> bool {
    file.starts_with(module) || *file == module.with_extension("rs")
}

/// The imports that the walls between the wings of the operator forbid.
fn breaches(imports: &Imports, source: &Path) -> Vec<String> {
    imports.lines(|from, to| {
        let within = |file: &Path, wing: &str| within(file, &source.join(wing));
        // The root, and a wing that the list lacks, come last.
        let order = |file| {
            WINGS
                .iter()
                .position(|wing| within(file, wing))
                .unwrap_or(WINGS.len())
        };
        let is_step = within(from, "run") && !within(from, "run/controller");
        let leaves_store = within(from, "store") && !within(to, "store");
        order(from) < order(to)
            || is_step && within(to, "run/controller")
            || leaves_store && *to != source.join("process/signal.rs")
    })
}

#[test]
fn the_wings_of_the_operator_keep_apart() {
    let source = super::workspace().join("operator/src");
    let imports = Imports::of(&source.join("lib.rs"));
    let breaches = breaches(&imports, &source);
    assert!(
        breaches.is_empty(),
        "no wing imports a later one ({}), no step the controller, and store only the stop signal:\n{}",
        WINGS.join(", "),
        breaches.join("\n")
    );
}

#[test]
fn a_wall_of_the_operator_holds_for_every_form_of_import() {
    for (wing, target, is_breach) in [
        ("run/turn.rs", "run::controller", true),
        ("run/turn.rs", "run::apply", false),
        ("conduct/pods.rs", "run::controller", true),
        ("conduct/pods.rs", "run::apply", true),
        ("conduct/pods.rs", "run::turn", true),
        ("conduct/pods.rs", "process::signal", false),
        ("run/turn.rs", "conduct::pods", false),
        ("process/signal.rs", "run::turn", true),
        ("process/signal.rs", "api::call", false),
        ("store/serve.rs", "run::turn", true),
        ("store/serve.rs", "process::signal", false),
        ("api/call.rs", "process::signal", true),
    ] {
        let (outer, inner) = target.split_once("::").unwrap();
        for import in [
            format!("use crate::{target}::Item;"),
            format!("use super::super::{target}; fn f() {{ {inner}::item() }}"),
            format!("use crate::{{{outer}::{{{inner}::{{self as it, Item}}}}}};"),
            format!("use crate::{outer}; fn f() {{ {outer}::{inner}::item() }}"),
            "use crate::Again;".to_owned(),
            "use crate::*; fn f(_: Again) {}".to_owned(),
            format!("fn f() {{ crate::{target}::item::<u8>() }}"),
            format!("fn f() {{ use super::super::{{{outer} as it}}; it::{inner}::item() }}"),
            format!("#[serde(with = \"crate::{target}::item\")] struct S;"),
        ] {
            let lib = format!(
                "mod api; mod conduct; mod process; mod run; mod store; use {target}::Item as Again;"
            );
            let item = "pub struct Item; pub fn item() {}";
            let mut files = BTreeMap::from([
                ("lib.rs", lib.as_str()),
                ("api.rs", "mod call;"),
                ("api/call.rs", item),
                ("conduct.rs", "mod pods;"),
                ("conduct/pods.rs", item),
                ("process.rs", "mod signal;"),
                ("process/signal.rs", item),
                ("run.rs", "mod apply; mod controller; mod turn;"),
                ("run/apply.rs", item),
                ("run/controller.rs", item),
                ("run/turn.rs", item),
                ("store.rs", "mod serve;"),
                ("store/serve.rs", item),
            ]);
            files.insert(wing, &import);
            let (folder, imports) = crate_of(&Vec::from_iter(files));
            let breaches = breaches(&imports, folder.path());
            assert_eq!(!breaches.is_empty(), is_breach, "{wing}: {import}");
        }
    }
}

#[test]
fn the_root_of_the_operator_leads_through_no_wall() {
    for (api, call) in [
        ("mod call; use super::Own;", ""),
        ("mod call;", "use crate::Own;"),
        ("mod call;", "use crate::Again;"),
    ] {
        let (folder, imports) = crate_of(&[
            (
                "lib.rs",
                "mod api; mod services; use services::Services as Again; pub struct Own;",
            ),
            ("api.rs", api),
            ("api/call.rs", call),
            ("services.rs", "pub struct Services;"),
        ]);
        assert_eq!(breaches(&imports, folder.path()).len(), 1, "{api} {call}");
    }
}

/// The commands of perfrun, by their modules.
const COMMANDS: [&str; 22] = [
    "cluster/cancel",
    "cluster/conformance",
    "cluster/get",
    "cluster/list",
    "cluster/logs",
    "cluster/run",
    "compare",
    "completions",
    "conformance",
    "describe",
    "doctor",
    "history",
    "link/clear",
    "link/probe",
    "link/set",
    "link/show",
    "man",
    "new",
    "plan",
    "report",
    "run",
    "validate",
];

#[test]
fn no_command_imports_another() {
    let source = super::workspace().join("crates/cli/src");
    let imports = Imports::of(&source.join("lib.rs"));
    let commands = COMMANDS.map(|command| source.join(command));
    for command in &commands {
        assert!(command.with_extension("rs").is_file(), "{}", command.display());
    }
    let command = |file: &Path| commands.iter().find(|command| within(file, command));
    let shared = imports.lines(|from, to| {
        command(from)
            .zip(command(to))
            .is_some_and(|(from, to)| from != to)
    });
    assert!(
        shared.is_empty(),
        "move what commands share to a module with a name of its own:\n{}",
        shared.join("\n")
    );
}
