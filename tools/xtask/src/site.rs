//! `cargo xtask docs`: the documentation as a site, from the pages that docs/SUMMARY.md lists.
//!
//! mdBook gets the pages at their paths in the repository, so that a relative link leads to the same place in
//! the repository and on the site. Then every link of the site is followed: files that pages link, such as
//! plots and results, are added to it.

use std::{
    collections::BTreeSet,
    fs,
    path::{Component, Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result};

use crate::{
    files::{copy, empty, files_under, read},
    pinned,
    shell::{self, Workspace},
    step::Outcome,
};

const DOCS: &str = "docs";
const SUMMARY: &str = "SUMMARY.md";

/// Pages that mdBook adds.
const OF_MDBOOK: [&str; 3] = ["index.html", "404.html", "toc.html"];

/// The command.
pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode> {
    let code = check(workspace)?.into_exit_code()?;
    let index = folder(workspace)?.join("book/index.html");
    println!("wrote {}", index.display());
    Ok(code)
}

/// Builds the site. Fails if a link leads nowhere, or if a page is not listed or not linked.
pub(crate) fn check(workspace: &Workspace) -> Result<Outcome> {
    let mdbook = pinned::MDBOOK.install(workspace)?;
    let (root, site) = (&workspace.root, folder(workspace)?);
    empty(&site)?;
    let summary = from_root(&read(&root.join(DOCS).join(SUMMARY))?);
    let pages: Vec<_> = links(&summary).map(PathBuf::from).collect();
    for page in &pages {
        copy(&root.join(page), &site.join("src").join(page))?;
    }
    fs::write(site.join("src").join(SUMMARY), &summary).context("failed to write the table of contents")?;
    copy(&root.join(DOCS).join("book.toml"), &site.join("book.toml"))?;
    shell::succeed(workspace.command(mdbook).arg("build").arg(&site))?;

    let mut problems = not_listed(root, &pages)?;
    problems.extend(follow_links(&site.join("book"), root)?);
    match problems.is_empty() {
        true => Ok(Outcome::Passed),
        false => Ok(Outcome::Failed(problems.join("\n"))),
    }
}

fn folder(workspace: &Workspace) -> Result<PathBuf> {
    Ok(workspace.scratch()?.join("site"))
}

/// A table of contents of docs/, with links from the root of the repository.
fn from_root(summary: &str) -> String {
    summary
        .replace("](", &format!("]({DOCS}/"))
        .replace(&format!("]({DOCS}/../"), "](")
}

/// The targets of links in Markdown.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

/// Pages of docs/ that the table of contents leaves out.
fn not_listed(root: &Path, pages: &[PathBuf]) -> Result<Vec<String>> {
    let files = files_under(&root.join(DOCS))?.into_iter();
    let mut files = files
        .map(|file| Path::new(DOCS).join(file))
        .collect::<BTreeSet<_>>();
    files.remove(&Path::new(DOCS).join(SUMMARY));
    let is_page = |file: &&PathBuf| file.extension().is_some_and(|ending| ending == "md");
    let missing = files.iter().filter(is_page).filter(|file| !pages.contains(file));
    let missing = missing.map(|file| format!("{}: add it to {DOCS}/{SUMMARY}", file.display()));
    Ok(missing.collect())
}

/// Follows the links of all pages, adds the files of the repository that they lead to, and returns those that
/// lead nowhere, and the pages to which none leads.
fn follow_links(book: &Path, root: &Path) -> Result<Vec<String>> {
    let is_page = |file: &PathBuf| {
        let is_ours = !OF_MDBOOK.iter().any(|name| file == Path::new(name));
        is_ours && file.extension().is_some_and(|ending| ending == "html")
    };
    let pages: BTreeSet<_> = files_under(book)?.into_iter().filter(is_page).collect();
    let mut linked = BTreeSet::from([PathBuf::from("README.html")]);
    let mut problems = vec![];
    for page in &pages {
        let html = read(&book.join(page))?;
        for target in targets(content(&html)) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() {
                page.clone()
            } else {
                resolved(page, file)
            };
            if path != *page {
                linked.insert(path.clone());
            }
            if pages.contains(&path) {
                let leads_there = heading.is_empty() || {
                    let html = read(&book.join(&path))?;
                    html.contains(&format!("id=\"{heading}\""))
                };
                if !leads_there {
                    problems.push(format!("{}: {target}: no such heading", page.display()));
                }
            } else if root.join(&path).is_file() {
                copy(&root.join(&path), &book.join(&path))?;
            } else {
                let advice = format!("link a file, or add the page to {DOCS}/{SUMMARY}");
                problems.push(format!("{}: {target}: {advice}", page.display()));
            }
        }
    }
    let alone = pages.difference(&linked);
    problems.extend(alone.map(|page| format!("{}: link it from another page", page.display())));
    Ok(problems)
}

/// What a page shows, without the links of mdBook to the next page.
fn content(html: &str) -> &str {
    let main = html.split_once("<main>");
    main.and_then(|(_, rest)| rest.split_once("</main>"))
        .map_or("", |(content, _)| content)
}

/// What links and pictures name, without what is outside of the site.
fn targets(html: &str) -> impl Iterator<Item = &str> {
    ["href=\"", "src=\""]
        .into_iter()
        .flat_map(|attribute| html.split(attribute).skip(1))
        .filter_map(|rest| rest.split('"').next())
        .filter(|target| {
            !["://", "mailto:", "data:"]
                .iter()
                .any(|outside| target.contains(outside))
        })
}

/// A path relative to the folder of a page, as one relative to the root.
fn resolved(page: &Path, target: &str) -> PathBuf {
    let mut path = page.parent().unwrap_or(Path::new("")).to_owned();
    for component in Path::new(target).components() {
        match component {
            Component::ParentDir => _ = path.pop(),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::{follow_links, from_root, links};

    #[test]
    fn a_table_of_contents_links_from_the_root() {
        let summary = from_root("[perfrun](../README.md)\n- [A](how-to/a.md)\n");
        assert_eq!(summary, "[perfrun](README.md)\n- [A](docs/how-to/a.md)\n");
        assert_eq!(
            links(&summary).collect::<Vec<_>>(),
            ["README.md", "docs/how-to/a.md"]
        );
    }

    #[test]
    fn links_to_nowhere_and_pages_without_a_link_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let (book, root) = (folder.path().join("book"), folder.path().join("root"));
        let write = |file: &Path, text: &str| {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        let page = |name: &str, content: &str| {
            let html = format!("<nav><a href=\"gone.html\"></nav><main>{content}</main>");
            write(&book.join(name), &html);
        };
        page(
            "README.html",
            "<h2 id=\"start\"></h2><a href=\"#start\"><a href=\"docs/a.html#end\"><img src=\"docs/a.svg\">",
        );
        page(
            "docs/a.html",
            "<a href=\"../README.html#end\"><a href=\"b.html\"><a href=\"https://c\">",
        );
        page("docs/alone.html", "<a href=\"alone.html\">");
        page("404.html", "<a href=\"gone.html\">");
        write(&root.join("docs/a.svg"), "<svg/>");
        let problems = follow_links(&book, &root).unwrap();
        let advice = "link a file, or add the page to docs/SUMMARY.md";
        let expected = [
            "README.html: docs/a.html#end: no such heading".to_owned(),
            "docs/a.html: ../README.html#end: no such heading".to_owned(),
            format!("docs/a.html: b.html: {advice}"),
            "docs/alone.html: link it from another page".to_owned(),
        ];
        assert_eq!(problems, expected);
        assert!(book.join("docs/a.svg").is_file());
    }
}
