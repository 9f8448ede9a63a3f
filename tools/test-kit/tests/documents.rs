//! Documents name files, folders and headings of the repository. All of them must exist.

// Helpers outside of `#[test]` functions fail a test by panicking, as those do.
#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeSet,
    fs,
    path::{Component, Path, PathBuf},
};

use perfrun_contract::{
    metric::Metric,
    metrics::{node, process},
};
use perfrun_test_kit::pictures::LIMIT;
use strum::VariantNames;

/// Pages that name symbols, and folders of such pages.
const ABOUT_CODE: [&str; 3] = ["docs/architecture/", "docs/how-to/contribute/", "SECURITY.md"];

/// Endings of files whose words are symbols.
const SOURCES: [&str; 7] = ["rs", "go", "toml", "yaml", "json", "py", "tpl"];

/// What stands before a name that is defined.
const DEFINE: [&str; 11] = [
    "fn",
    "struct",
    "enum",
    "trait",
    "const",
    "static",
    "type",
    "mod",
    "union",
    "func",
    "macro_rules",
];

/// The repository as documents see it.
struct Repository {
    root: PathBuf,
    /// Files and folders, relative to the root.
    paths: Vec<String>,
}

impl Repository {
    fn read() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut paths = vec![];
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(root.join(&folder)).unwrap() {
                let entry = entry.unwrap();
                let path = folder.join(entry.file_name());
                let name = path.to_str().unwrap().to_owned();
                // What builds and runs write, and what git keeps, is not part of the repository.
                if ["target", "results", ".git"].contains(&name.as_str()) {
                    continue;
                }
                if entry.file_type().unwrap().is_dir() {
                    folders.push(path);
                }
                paths.push(name);
            }
        }
        Self { root, paths }
    }

    fn documents(&self) -> impl Iterator<Item = (&str, String)> {
        self.paths
            .iter()
            .filter(|path| Path::new(path).extension().is_some_and(|ending| ending == "md"))
            .map(|path| (path.as_str(), fs::read_to_string(self.root.join(path)).unwrap()))
    }

    fn sources(&self) -> Vec<Source> {
        let is_source = |path: &&String| {
            let ending = Path::new(path).extension().and_then(|ending| ending.to_str());
            !path.starts_with("docs/") && ending.is_some_and(|ending| SOURCES.contains(&ending))
        };
        let sources = self.paths.iter().filter(is_source);
        sources
            .map(|path| {
                Source::of(
                    path,
                    &fs::read_to_string(self.root.join(path)).unwrap_or_default(),
                )
            })
            .collect()
    }

    fn has(&self, path: &str) -> bool {
        self.paths.iter().any(|known| known == path)
    }

    /// Whether a path is that of a file, or the end of one: tables shorten paths after the first of a folder.
    fn has_end(&self, path: &str) -> bool {
        let end = format!("/{path}");
        self.has(path) || self.paths.iter().any(|known| known.ends_with(&end))
    }
}

/// The text inside or outside of code blocks, line by line.
fn lines(document: &str, inside: bool) -> impl Iterator<Item = &str> {
    let mut code = false;
    document.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        code == inside && !fence
    })
}

fn prose(document: &str) -> impl Iterator<Item = &str> {
    lines(document, false)
}

/// The targets of links in a line. Generated tables have theirs in angle brackets.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| match rest.strip_prefix('<') {
            Some(rest) => rest.split('>').next(),
            None => rest.split([')', ' ']).next(),
        })
}

/// What a line has in backticks.
fn quotes(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// The address that GitHub gives to a heading.
fn anchor(heading: &str) -> String {
    heading
        .trim_start_matches('#')
        .trim()
        .to_lowercase()
        .chars()
        .filter(|character| character.is_alphanumeric() || " -_".contains(*character))
        .map(|character| if character == ' ' { '-' } else { character })
        .collect()
}

/// A path relative to the folder of a document, as one relative to the root.
fn resolve(document: &str, target: &str) -> String {
    let mut path = PathBuf::from(document);
    path.pop();
    for component in Path::new(target).components() {
        match component {
            Component::ParentDir => _ = path.pop(),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path.to_str().unwrap().to_owned()
}

/// Whether the repository has what something in backticks claims to be a path of it: a source file, or a path
/// whose first folder is one of the root. Before a placeholder, the folder must exist.
fn is_there(quote: &str, repository: &Repository) -> Option<bool> {
    let plain = quote
        .chars()
        .all(|character| character.is_ascii_alphanumeric() || "._-/".contains(character));
    let below_the_root = quote
        .split_once('/')
        .is_some_and(|(first, _)| repository.has(first));
    let path = match quote.split_once("NAME") {
        Some((before, _)) => before.rsplit_once('/')?.0,
        None => quote.trim_end_matches('/'),
    };
    match plain {
        true if below_the_root => Some(repository.has(path)),
        true if path.ends_with(".rs") => Some(repository.has_end(path)),
        _ => None,
    }
}

fn words(text: &str) -> impl Iterator<Item = String> {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let words = text.split(move |letter| !is_part(letter));
    words.filter(|word| !word.is_empty()).map(str::to_owned)
}

/// The words of a file. Those of comments do not count in code.
struct Source {
    path: String,
    /// The file and its folders.
    place: BTreeSet<String>,
    text: BTreeSet<String>,
    /// The words that code defines.
    defined: BTreeSet<String>,
}

impl Source {
    fn of(path: &str, text: &str) -> Self {
        let (place, ending) = path.rsplit_once('.').unwrap();
        let mut source = Self {
            path: path.to_owned(),
            place: place.split('/').map(str::to_owned).collect(),
            text: BTreeSet::new(),
            defined: BTreeSet::new(),
        };
        if !["rs", "go"].contains(&ending) {
            source.text.extend(words(text));
            return source;
        }
        for line in text.lines() {
            let code: Vec<_> = words(line.split("//").next().unwrap()).collect();
            let pairs = code.iter().zip(code.iter().skip(1));
            let defined = pairs.filter(|(keyword, _)| DEFINE.contains(&keyword.as_str()));
            source.defined.extend(defined.map(|(_, name)| name.clone()));
            let method = line.strip_prefix("func (").and_then(|line| line.split_once(") "));
            source
                .defined
                .extend(method.and_then(|(_, rest)| words(rest).next()));
            source.text.extend(code);
        }
        source
    }

    /// Whether it has `b` of `a`: of a module, or of a type.
    fn has(&self, a: &str, b: &str) -> bool {
        match a.starts_with(char::is_uppercase) {
            // No keyword stands before the variant of an enum.
            true => {
                self.defined.contains(b) && self.text.contains(a)
                    || b.starts_with(char::is_uppercase) && self.defined.contains(a) && self.text.contains(b)
            }
            false => self.place.contains(a) && self.defined.contains(b),
        }
    }
}

/// Whether something in backticks is a symbol that no source has. A symbol is `a::b`, `package.Name` of Go,
/// or a name with a capital letter or an underscore.
fn is_dead(quote: &str, sources: &[Source]) -> bool {
    let symbol = quote.trim_end_matches("()");
    let parts: Vec<&str> = match symbol.split_once('.') {
        Some((package, name)) if name.starts_with(char::is_uppercase) => vec![package, name],
        _ => symbol.split("::").collect(),
    };
    let is_name = |part: &&str| {
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        !part.is_empty() && part.chars().all(is_part)
    };
    let is_marked = symbol.contains(['_', ':']) || symbol.contains(char::is_uppercase);
    let has = |source: &Source| match parts[..] {
        [ref place @ .., a, b] => place.iter().all(|part| source.place.contains(*part)) && source.has(a, b),
        [name] if name.contains('_') => source.defined.contains(name),
        // Also variants, and fields of documents.
        [name] => source.text.contains(name),
        [] => true,
    };
    is_marked && parts.iter().all(is_name) && !sources.iter().any(has)
}

/// What a page says of symbols and is not so.
fn wrong(page: &str, sources: &[Source]) -> Vec<String> {
    let text = prose(page).collect::<Vec<_>>().join(" ");
    let parts: Vec<&str> = text.split('`').collect();
    let mut wrong = Vec::from_iter(
        parts
            .len()
            .is_multiple_of(2)
            .then(|| "a single backtick".to_owned()),
    );
    for (i, quote) in parts.iter().enumerate().skip(1).step_by(2) {
        if is_dead(quote, sources) {
            wrong.push((*quote).to_owned());
        }
        if let [between, path, ..] = parts[i + 1..]
            && between.trim() == "in"
        {
            let name = quote.rsplit("::").next().unwrap();
            let mut files = sources
                .iter()
                .filter(|source| Path::new(&source.path).starts_with(path))
                .peekable();
            if files.peek().is_some()
                && !files.any(|file| file.defined.contains(name) || file.place.contains(name))
            {
                wrong.push(format!("{name} in {path}"));
            }
        }
    }
    let drawn = lines(page, true).flat_map(str::split_whitespace);
    let drawn = drawn.filter(|word| word.contains("::") && is_dead(word, sources));
    wrong.extend(drawn.map(str::to_owned));
    wrong
}

#[test]
fn every_picture_is_small_and_a_page_shows_it() {
    let repository = Repository::read();
    let shown: BTreeSet<String> = repository
        .documents()
        .flat_map(|(document, text)| {
            let targets = prose(&text).flat_map(links);
            targets
                .map(|target| resolve(document, target))
                .collect::<Vec<_>>()
        })
        .collect();
    let is_picture = |path: &&String| path.starts_with("docs/img/") && path.contains('.');
    let pictures: Vec<_> = repository.paths.iter().filter(is_picture).collect();
    for picture in &pictures {
        let size = fs::metadata(repository.root.join(picture)).unwrap().len();
        assert!(size <= LIMIT as u64, "{picture} has {size} bytes");
        assert!(shown.contains(*picture), "no page shows {picture}");
    }
    assert!(pictures.len() > 20, "only {pictures:?}");
}

#[test]
fn every_symbol_on_pages_about_the_code_exists() {
    let repository = Repository::read();
    let sources = repository.sources();
    let (mut all, mut checked) = (vec![], 0);
    for (document, text) in repository.documents() {
        if ABOUT_CODE.iter().any(|path| document.starts_with(path)) {
            checked += text.split('`').count() / 2;
            let wrong = wrong(&text, &sources).into_iter();
            all.extend(wrong.map(|symbol| format!("{document}: {symbol}")));
        }
    }
    assert!(all.is_empty(), "no such symbol:\n{}", all.join("\n"));
    assert!(checked > 100, "only {checked} names were found");
}

#[test]
fn dead_symbols_are_found() {
    let sources = [
        Source::of(
            "some-node/src/known.rs",
            "fn is_known() {} // is_past()\nstruct Known; impl Known { fn of(that: u8) {} } enum E { Some_ }",
        ),
        Source::of("src/other.rs", "struct Tasks;"),
        Source::of(
            "internal/peer/host.go",
            "type Host struct {}\nfunc (h *Host) Dial() {}",
        ),
    ];
    for alive in [
        "`Known::of`, `known::Known`, `is_known()`",
        "`other::Tasks`, `src::other::Tasks`, `E::Some_`",
        "`peer.Host`, `Host.Dial`, `host::Dial`",
        "`--option`, `tcp`, `a b_c`, `README.md`",
        "`Known::of` in\n`some-node/src/known.rs`",
        "`Known` and `of`, in `src/other.rs`",
        "```\n─► known::Known\n```",
    ] {
        assert_eq!(wrong(alive, &sources), Vec::<String>::new(), "{alive}");
    }
    for dead in [
        "`Dead::of`",
        "`Known::dead`",
        "`Known::that`",
        "`known::Tasks`",
        "`node::Known`",
        "`is_dead()`",
        "`is_past()`",
        "`crate::known::Known`",
        "`internal::other::Tasks`",
        "`peer.Dead`",
        "`Host.Dead`",
        "`Tasks` in\n`some-node/src/known.rs`",
        "`that` in `some-node/src/known.rs`",
        "```\n─► known::Tasks\n```",
        "`Known",
    ] {
        assert_eq!(wrong(dead, &sources).len(), 1, "{dead}");
    }
}

#[test]
fn every_link_between_documents_leads_to_a_file_and_a_heading() {
    let repository = Repository::read();
    let mut broken = vec![];
    let mut checked = 0;
    for (document, text) in repository.documents() {
        for target in prose(&text).flat_map(links) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            checked += 1;
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let file = match file {
                "" => document.to_owned(),
                file => resolve(document, file),
            };
            let has_heading = || {
                let text = fs::read_to_string(repository.root.join(&file)).unwrap_or_default();
                prose(&text).any(|line| line.starts_with('#') && anchor(line) == heading)
            };
            if !repository.has(&file) || (!heading.is_empty() && !has_heading()) {
                broken.push(format!("{document}: {target}"));
            }
        }
    }
    assert!(broken.is_empty(), "links to nowhere:\n{}", broken.join("\n"));
    assert!(checked > 50, "only {checked} links were found");
}

#[test]
fn every_path_that_a_document_names_exists() {
    let repository = Repository::read();
    let mut missing = vec![];
    let mut checked = 0;
    for (document, text) in repository.documents() {
        for quote in prose(&text).flat_map(quotes) {
            let is_there = is_there(quote, &repository);
            checked += usize::from(is_there.is_some());
            if is_there == Some(false) {
                missing.push(format!("{document}: {quote}"));
            }
        }
    }
    assert!(missing.is_empty(), "no such path:\n{}", missing.join("\n"));
    assert!(checked > 100, "only {checked} paths were found");
}

#[test]
fn the_page_of_formulas_has_every_metric() {
    let page = fs::read_to_string(Repository::read().root.join("docs/formulas.md")).unwrap();
    let quoted: BTreeSet<&str> = prose(&page).flat_map(quotes).collect();
    // The variant that carries names of newer versions is not a metric.
    let metrics = Metric::VARIANTS.iter().filter(|name| **name != "newer");
    let missing: Vec<_> = metrics.filter(|name| !quoted.contains(*name)).collect();
    assert!(missing.is_empty(), "docs/formulas.md lacks {missing:?}");
}

#[test]
fn the_go_node_explains_its_metrics_as_the_rust_node_does() {
    let path = "node-image/go-libp2p/internal/metrics/metrics.go";
    let code = fs::read_to_string(Repository::read().root.join(path)).unwrap();
    for family in [node::ALL, process::ALL].concat() {
        let help = format!("\"{}\"", family.help);
        assert!(code.contains(&help), "{path} lacks {help} of {}", family.name);
    }
}

/// What a checklist says of the files that one more thing of a kind touches, such as a workload.
struct Checklist {
    page: &'static str,
    /// All of the kind, in lower case and without underscores. The newest is the last.
    names: &'static [&'static str],
    /// A file whose code has this number of the names knows all of them.
    least: usize,
    /// The heading above the files that know all of them.
    all: &'static str,
    /// The largest number of these files.
    most: usize,
    /// The heading above other files that name the newest.
    newest: &'static str,
    /// The largest number of these files.
    most_newest: usize,
    /// Whether code names the newest.
    has_newest: fn(&str) -> bool,
}

impl Checklist {
    /// Checks that a page lists the files that know all of a kind, and each other file that names the newest,
    /// except its own, which have its name in their paths.
    fn check(&self) {
        let repository = Repository::read();
        let read = |path: &str| fs::read_to_string(repository.root.join(path)).unwrap();
        let page = read(self.page);
        let (all, newest) = (listed(&page, self.all), listed(&page, self.newest));
        let name = *self.names.last().unwrap();
        let (mut found, mut unlisted) = (BTreeSet::new(), vec![]);
        let is_product = |path: &&str| path.ends_with(".rs") && !path.contains("tests");
        for path in repository.paths.iter().map(String::as_str).filter(is_product) {
            let code = code(&read(path));
            let words: BTreeSet<String> = words(&code)
                .map(|word| word.replace('_', "").to_lowercase())
                .collect();
            let known = self.names.iter().filter(|name| words.contains(**name));
            if known.count() >= self.least {
                found.insert(path);
            } else if (self.has_newest)(&code) && !path.contains(name) && !newest.contains(path) {
                unlisted.push(path);
            }
        }
        assert_eq!(all, found, "left: {}, right: files that know all", self.page);
        assert!(found.len() <= self.most, "{found:?}");
        assert!(newest.len() <= self.most_newest, "{newest:?}");
        let is_stale = |path: &&&str| !read(path).to_lowercase().contains(name);
        let stale: Vec<_> = newest.iter().filter(is_stale).collect();
        assert!(
            unlisted.is_empty() && stale.is_empty(),
            "{} does not list {unlisted:?}, and lists {stale:?}, which do not name {name}",
            self.page
        );
    }
}

/// The Rust files that a section of a page names.
fn listed<'a>(page: &'a str, heading: &str) -> BTreeSet<&'a str> {
    let (_, rest) = page.split_once(heading).unwrap();
    let section = rest.split("\n## ").next().unwrap();
    let quotes = prose(section).flat_map(quotes);
    quotes.filter(|quote| quote.ends_with(".rs")).collect()
}

/// The lines of a file without comments and unit tests.
fn code(text: &str) -> String {
    let (text, _) = text.split_once("#[cfg(test)]\nmod tests {").unwrap_or((text, ""));
    let lines = text.lines().map(|line| line.split("//").next().unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

/// What names the workload `messages`, and not messages in general.
const MESSAGES: [&str; 12] = [
    "Parameters::Messages",
    "Protocol::Messages",
    "MessagesPerSecond",
    "&Messages",
    "parameters::Messages",
    "Messages,",
    "Messages}",
    ".messages()",
    "messages::",
    "mod messages;",
    "\"messages\"",
    "/perfrun/messages/",
];

#[test]
fn at_most_eight_files_know_all_workloads() {
    let checklist = Checklist {
        page: "docs/how-to/contribute/add-a-workload.md",
        names: &[
            "bandwidth",
            "substreams",
            "handshakes",
            "ping",
            "relay",
            "relaystress",
            "echo",
            "messages",
        ],
        // Some share an entry, or have none: the stress test of a relay is in the tables of the relay.
        least: 6,
        all: "## Files that know all workloads",
        most: 8,
        newest: "## The newest workload",
        most_newest: 32,
        has_newest: |code| MESSAGES.iter().any(|mark| code.contains(*mark)),
    };
    checklist.check();
}

#[test]
fn at_most_five_files_know_all_adapters() {
    let checklist = Checklist {
        page: "docs/how-to/contribute/add-a-stack.md",
        names: &["libp2p", "litep2p", "commonware"],
        least: 3,
        all: "## Files that know all adapters",
        most: 5,
        newest: "## The newest adapter",
        most_newest: 16,
        has_newest: |code| code.to_lowercase().contains("commonware"),
    };
    checklist.check();
}

#[test]
fn headings_have_the_addresses_that_github_gives_them() {
    assert_eq!(
        anchor("## rust-libp2p's perf, and more"),
        "rust-libp2ps-perf-and-more"
    );
    assert_eq!(resolve("docs/how-to/a.md", "../b.md"), "docs/b.md");
    assert_eq!(
        links("[a](b.md#c) and [d](e)").collect::<Vec<_>>(),
        ["b.md#c", "e"]
    );
}
