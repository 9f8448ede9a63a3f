//! A picture of a terminal with what `perfrun run` prints at its end: its first table and its last line.

use maud::html;
use perfrun_contract::reported_run::ReportedRun;
use perfrun_report::{TerminalOptions, terminal};

/// The file of the picture, which documents name as a part of a report.
pub(crate) const FILE: &str = "terminal.svg";

const COLUMNS: usize = 100;
/// Of a character of the font, in pixels. `textLength` holds a font to it that is wider or narrower.
const WIDTH: f64 = 8.4;
const LINE: usize = 19;
const MARGIN: usize = 20;

/// The picture of the run of the example of this name.
pub(crate) fn picture(name: &str, run: &ReportedRun<'_>) -> String {
    let options = TerminalOptions {
        width: COLUMNS,
        ..TerminalOptions::default()
    };
    let printed = terminal(run, &options);
    let command = format!("$ perfrun run examples/{name}.yaml");
    drawn(&command, &shortened(&printed))
}

/// The caption, the first table and the last line. A line of dots stands for what is left out.
fn shortened(printed: &str) -> Vec<&str> {
    let blocks: Vec<_> = printed.trim_end().split("\n\n").collect();
    match blocks[..] {
        [caption, table, _, .., last] => vec![caption, "", table, "", "⋮", "", last],
        _ => blocks,
    }
}

fn drawn(command: &str, blocks: &[&str]) -> String {
    let lines = [command, ""]
        .into_iter()
        .chain(blocks.iter().flat_map(|block| match *block {
            "" => vec![""],
            block => block.lines().collect(),
        }));
    let lines: Vec<_> = lines.collect();
    let width = 2 * MARGIN + (COLUMNS as f64 * WIDTH).ceil() as usize;
    let height = 2 * MARGIN + lines.len() * LINE;
    let picture = html! {
        svg width=(width) height=(height) viewBox=(format!("0 0 {width} {height}"))
            xmlns="http://www.w3.org/2000/svg" role="img" {
            title { (command.trim_start_matches("$ ")) }
            rect width="100%" height="100%" rx="8" fill="#1E2127" {}
            g fill="#D7DAE0" font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14" {
                @for (line, y) in lines.iter().zip((MARGIN + LINE - 5..).step_by(LINE)) {
                    @if !line.is_empty() {
                        text x=(MARGIN) y=(y) textLength=(line.chars().count() as f64 * WIDTH) xml:space="preserve" { (line) }
                    }
                }
            }
        }
    };
    picture.into_string() + "\n"
}

#[cfg(test)]
mod tests {
    use super::{drawn, shortened};

    #[test]
    fn a_picture_has_the_command_the_first_table_and_the_last_line() {
        let printed = "Goodput\n\nup  1 <Gbit/s>\n────\n\nMore tables\n\nFindings\n\nVerdict: Pass\n";
        let blocks = shortened(printed);
        assert_eq!(
            blocks,
            [
                "Goodput",
                "",
                "up  1 <Gbit/s>\n────",
                "",
                "⋮",
                "",
                "Verdict: Pass"
            ]
        );
        let picture = drawn("$ perfrun run a.yaml", &blocks);
        let lines: Vec<_> = picture.split("<text ").skip(1).collect();
        assert_eq!(lines.len(), 6, "{picture}");
        assert!(lines[2].ends_with(">up  1 &lt;Gbit/s&gt;</text>"), "{picture}");
        assert!(picture.contains("<title>perfrun run a.yaml</title>"), "{picture}");
    }

    #[test]
    fn a_run_that_prints_little_is_shown_whole() {
        assert_eq!(
            shortened("Goodput\n\nVerdict: Pass\n"),
            ["Goodput", "Verdict: Pass"]
        );
    }
}
