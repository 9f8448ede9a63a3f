//! Each target reads its corpus, and mutations of it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeSet,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use perfrun_fuzz::{TARGETS, Target};
use proptest::{collection::vec, prelude::*, sample::Index, test_runner::TestRunner};

/// Mutations of each target. All targets together take one to two minutes.
const MUTATIONS: u32 = 2048;

/// Most bytes of all corpora.
const CORPORA_MAX: usize = 200 << 10;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let folder = folder().join(target.name);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

/// A change of an input.
#[derive(Clone, Debug)]
enum Change {
    Set(Index, u8),
    Flip(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    /// Repeats a part.
    Repeat(Index, usize),
    /// Ends with the end of another input.
    Splice(Index, Index),
}

fn change() -> impl Strategy<Value = Change> {
    let place = any::<Index>;
    // Numbers around which lengths go wrong, as often as others.
    let byte = prop_oneof![
        any::<u8>(),
        prop::sample::select(b"\0\x01\x7f\x80\xff-0.19eE\"{}[],:/\n".to_vec())
    ];
    prop_oneof![
        (place(), byte.clone()).prop_map(|(at, byte)| Change::Set(at, byte)),
        (place(), 0..8_u8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        (place(), vec(byte, 1..16)).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        (place(), 1..64_usize).prop_map(|(at, count)| Change::Remove(at, count)),
        (place(), 1..64_usize).prop_map(|(at, count)| Change::Repeat(at, count)),
        (place(), place()).prop_map(|(at, other)| Change::Splice(at, other)),
    ]
}

fn mutated(corpus: &[Vec<u8>], seed: &Index, changes: &[Change]) -> Vec<u8> {
    let mut bytes = seed.get(corpus).clone();
    for change in changes {
        let end = bytes.len();
        match change {
            Change::Set(at, byte) if end > 0 => bytes[at.index(end)] = *byte,
            Change::Flip(at, bit) if end > 0 => bytes[at.index(end)] ^= 1 << bit,
            Change::Set(..) | Change::Flip(..) => {}
            Change::Insert(at, new) => {
                let at = at.index(end + 1);
                bytes.splice(at..at, new.iter().copied());
            }
            Change::Remove(at, count) => {
                let at = at.index(end + 1);
                bytes.drain(at..end.min(at + count));
            }
            Change::Repeat(at, count) => {
                let at = at.index(end + 1);
                let part = bytes[at..end.min(at + count)].to_vec();
                bytes.splice(at..at, part);
            }
            Change::Splice(at, other) => {
                bytes.truncate(at.index(end + 1));
                let other = other.get(corpus);
                bytes.extend(&other[other.len().min(bytes.len())..]);
            }
        }
    }
    bytes
}

/// Reads each file of the corpus, then mutations. An input that fails is kept, with the command that repeats
/// it.
fn check(name: &str) {
    let target = Target::named(name).unwrap();
    let corpus = corpus(&target);
    let read = |bytes: &[u8]| {
        let read = catch_unwind(AssertUnwindSafe(|| target.read(bytes)));
        read.map_err(|_| {
            let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-fails"));
            fs::write(&file, bytes).unwrap();
            let file = file.display();
            TestCaseError::fail(format!(
                "repeat it with `cargo xtask fuzz {name} --input {file}`; correct the fault, and keep the input in \
                 tools/fuzz/corpus/{name}"
            ))
        })
    };
    for bytes in &corpus {
        read(bytes).unwrap();
    }
    let config = ProptestConfig {
        cases: MUTATIONS,
        // The input itself is kept.
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let inputs = (any::<Index>(), vec(change(), 1..8));
    TestRunner::new(config)
        .run(&inputs, |(seed, changes)| {
            read(&mutated(&corpus, &seed, &changes))
        })
        .unwrap_or_else(|failed| panic!("{failed}"));
}

/// A test of each target.
macro_rules! targets {
    ($($test:ident: $name:literal),+ $(,)?) => {
        $(#[test]
        fn $test() {
            check($name);
        })+

        #[test]
        fn each_target_has_a_test_and_a_corpus_and_corpora_are_small() {
            let tested = BTreeSet::from([$($name),+]);
            assert_eq!(tested, TARGETS.iter().map(|target| target.name).collect());
            let folders = fs::read_dir(folder()).unwrap().map(|folder| folder.unwrap().file_name());
            let folders: BTreeSet<String> = folders.map(|name| name.into_string().unwrap()).collect();
            assert_eq!(folders, tested.iter().map(ToString::to_string).collect());
            let bytes: usize = TARGETS.iter().flat_map(corpus).map(|input| input.len()).sum();
            assert!(bytes <= CORPORA_MAX, "{bytes} bytes");
        }
    };
}

targets! {
    address: "address",
    agent: "agent",
    document: "document",
    document_grammar: "document-grammar",
    echo: "echo",
    frame: "frame",
    histogram: "histogram",
    info: "info",
    introduction: "introduction",
    journal: "journal",
    litep2p_perf: "litep2p-perf",
    messages: "messages",
    metrics: "metrics",
    netlink: "netlink",
    perf: "perf",
    ping: "ping",
    probe: "probe",
    relay: "relay",
    request: "request",
    results: "results",
    schedule: "schedule",
    status: "status",
    status_grammar: "status-grammar",
    test_data: "test-data",
}
