//! report.html: one small file that loads nothing.

use std::collections::BTreeSet;

use perfrun_contract::{node::Reason, record::Flag};
use perfrun_report::{html, plots};
use perfrun_test_kit::results::run;

const LARGEST_BYTES: usize = 2 << 20;

/// Runs of about 500 trials each, of many cells and of few.
const RUNS: [&str; 4] = [
    "
  workload: {bandwidth: {sizes: [1Ki, 64Ki, 1Mi, 64Mi]}}
  matrix: {transports: [tcp, tcp-tls, ws, quic-v1]}
  iterations: 10
",
    "
  workload: {handshakes: {count: 1000, inFlight: [1, 16]}}
  matrix: {transports: [tcp, quic-v1]}
  iterations: 25
",
    "
  workload: {ping: {count: 1000}}
  matrix: {transports: [tcp, quic-v1], networks: [none, far, lossy, both]}
  networks: [{name: far, delay: 5ms}, {name: lossy, loss: 1%}, {name: both, delay: 5ms, loss: 1%}]
  iterations: 12
",
    "
  workload: {bandwidth: {duration: 20s}}
  stacks: [{name: main, stack: litep2p}, {name: pr, stack: litep2p}]
  matrix: {clients: [main], servers: [main], transports: [tcp, quic-v1], rawReference: false}
  compare: [{baseline: main, candidate: pr}]
  iterations: 60
",
];

#[test]
fn the_page_of_five_hundred_trials_is_one_small_file_that_loads_nothing() {
    for spec in RUNS {
        let results = run(spec)
            .flagged("i3", Flag::Disturbed)
            .failing("c1.i5", Reason::Timeout, "<not> \"done\" & more")
            .results();
        assert!(results.trials.len() >= 460, "{}", results.trials.len());
        let page = html(&results.reported_run());
        assert!(page.len() <= LARGEST_BYTES, "{} bytes: {spec}", page.len());
        let elements = elements(&page);
        loads_nothing(&page, &elements);
        is_well_formed(&elements);
    }
}

#[test]
fn marks_of_plots_show_their_values_below_the_pointer() {
    let results = run("\n  workload: {bandwidth: {sizes: [64Mi]}}\n")
        .flagged("c0.i3", Flag::Disturbed)
        .results();
    let page = html(&results.reported_run());
    for hint in [
        "<title>raw: ",
        "<title>libp2p → libp2p: ",
        "<title>libp2p → libp2p, ",
    ] {
        assert!(page.contains(hint), "{hint}");
    }
    assert!(!page.contains("<title>disturbed"), "it would hide the value");
    // GitHub shows files as images, where nothing can be pointed at.
    let plots = plots(&results.reported_run());
    assert!(plots.iter().all(|(_, svg)| svg.matches("<title>").count() == 1));
}

#[test]
fn plots_higher_than_a_screen_are_folded() {
    let page = html(&run(RUNS[0]).results().reported_run());
    let folded: Vec<&str> = page.split("<details><summary>").skip(1).collect();
    assert!(!folded.is_empty());
    for plot in folded {
        let (title, rest) = plot.split_once("</summary>").unwrap();
        assert!(title.starts_with("quickstart: "), "{title}");
        assert!(number(rest, "height") > 900, "{title}");
    }
    let (shown, _) = page.split_once("<h2>").unwrap();
    for figure in shown
        .split("<figure id=")
        .skip(1)
        .filter(|figure| !figure.contains("<details>"))
    {
        assert!(number(figure, "height") <= 900, "{}", &figure[..80]);
    }
}

fn number(tag: &str, attribute: &str) -> u32 {
    let (_, rest) = tag.split_once(&format!(" {attribute}=\"")).unwrap();
    rest.split('"').next().unwrap().parse().unwrap()
}

/// A tag, e.g. `td class="value"` or `/td`.
type Element<'a> = &'a str;

/// All tags of a page.
fn elements(page: &str) -> Vec<Element<'_>> {
    let without_style = page.split_once("</style>").unwrap().1;
    let tags = without_style.split('<').skip(1);
    let named = tags.map(|tag| {
        let (tag, text) = tag
            .split_once('>')
            .unwrap_or_else(|| panic!("a tag without end: {tag}"));
        assert!(!text.contains('>'), "a bracket as text: {text}");
        tag
    });
    named.collect()
}

fn loads_nothing(page: &str, elements: &[Element<'_>]) {
    let (_, style) = page.split_once("<style>").unwrap();
    let (style, _) = style.split_once("</style>").unwrap();
    assert!(!style.contains("url(") && !style.contains("@import"), "{style}");
    for tag in elements {
        let name = tag.split(' ').next().unwrap();
        let loads = [
            "script", "link", "img", "iframe", "object", "embed", "image", "use", "audio", "video",
        ];
        assert!(!loads.contains(&name), "{tag}");
        for attribute in [
            " src=",
            " srcset=",
            " href=\"http",
            " xlink:href=",
            " style=",
            " on",
        ] {
            assert!(!tag.contains(attribute), "{tag}");
        }
    }
}

/// Each element is closed in the right order, attributes are quoted and not repeated, and ids are unique.
fn is_well_formed(elements: &[Element<'_>]) {
    const VOID: [&str; 2] = ["meta", "br"];
    let mut open = vec!["html", "head"];
    let mut ids = BTreeSet::new();
    for tag in elements {
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "closed: {name}");
            continue;
        }
        let name = tag.split([' ', '\n', '/']).next().unwrap();
        let quotes = tag.matches('"').count();
        assert!(quotes % 2 == 0, "{tag}");
        let outside = tag.split('"').step_by(2).collect::<Vec<_>>().join("");
        let mut attributes: Vec<&str> = outside.split_whitespace().skip(1).collect();
        attributes.retain(|attribute| *attribute != "/");
        let is_quoted = |attribute: &&str| attribute.trim_end_matches('/').ends_with('=');
        assert!(attributes.iter().all(is_quoted), "{tag}");
        let unique: BTreeSet<&&str> = attributes.iter().collect();
        assert_eq!(unique.len(), attributes.len(), "{tag}");
        if let Some((_, id)) = tag.split_once(" id=\"") {
            assert!(ids.insert(id.split('"').next().unwrap()), "{tag}");
        }
        if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
    }
    assert_eq!(open, [""; 0]);
}
