//! From samples to folded stacks (each stack on a line: its functions from the outermost to the innermost,
//! with semicolons between, and the number of its samples) and to a flame graph.

use std::{collections::BTreeMap, fmt::Write as _, io};

use anyhow::{Context, ensure};
use inferno::{
    collapse::{
        Collapse,
        perf::{Folder, Options},
    },
    flamegraph::{
        self,
        color::{MultiPalette, Palette},
    },
};

/// What `perf script` printed, as folded stacks with readable names. Functions of the kernel end in `_[k]`.
pub(super) fn fold(script: &[u8]) -> anyhow::Result<String> {
    let mut options = Options::default();
    options.annotate_kernel = true;
    let mut mangled = vec![];
    let collapsed = Folder::from(options).collapse(script, &mut mangled);
    match collapsed {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => anyhow::bail!(NO_SAMPLES),
        other => other.context("failed to read what `perf script` printed")?,
    }
    let mangled = String::from_utf8_lossy(&mangled);
    let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
    for (stack, samples) in lines(&mangled) {
        let readable: Vec<String> = stack.split(';').map(readable).collect();
        *stacks.entry(readable.join(";")).or_default() += samples;
    }
    ensure!(!stacks.is_empty(), NO_SAMPLES);
    let mut folded = String::new();
    for (stack, samples) in stacks {
        let _ = writeln!(folded, "{stack} {samples}");
    }
    Ok(folded)
}

const NO_SAMPLES: &str = "perf took no sample: the trial used too little CPU time; make it longer, e.g. by a larger \
                          size, count or duration in the workload";

/// The stacks of a folded text, with their numbers of samples.
pub(super) fn lines(folded: &str) -> impl Iterator<Item = (&str, u64)> {
    folded.lines().filter_map(|line| {
        let (stack, samples) = line.rsplit_once(' ')?;
        Some((stack, samples.parse().ok()?))
    })
}

/// The name of a function as its source has it. Semicolons, as in types of arrays, would split it.
fn readable(name: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(name)).replace(';', ",")
}

/// The flame graph of folded stacks, as SVG.
pub(super) fn flame_graph(folded: &str, title: &str) -> anyhow::Result<Vec<u8>> {
    let mut options = flamegraph::Options::default();
    options.title = title.to_owned();
    options.colors = Palette::Multi(MultiPalette::Rust);
    options.deterministic = true;
    let mut svg = vec![];
    flamegraph::from_lines(&mut options, folded.lines(), &mut svg).context("failed to draw a flame graph")?;
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "\
tokio-rt-worker 17 28552.085350: cpu-clock:pppH: \n\
\tffffffff82259c96 do_syscall_64 ([kernel.kallsyms])\n\
\t           f8350 __GI___libc_write (/usr/lib/libc.so.6)\n\
\t            5245 _ZN12perfrun_node4send17h0123456789abcdefE (/usr/bin/perfrun-node)\n\
\n\
tokio-rt-worker 17 28552.087350: cpu-clock:pppH: \n\
\t            5245 _ZN12perfrun_node4send17hfedcba9876543210E (/usr/bin/perfrun-node)\n\
\n";

    #[test]
    fn samples_become_stacks_with_readable_names() {
        assert_eq!(
            fold(SCRIPT.as_bytes()).unwrap(),
            "tokio-rt-worker;perfrun_node::send 1\n\
             tokio-rt-worker;perfrun_node::send;__GI___libc_write;do_syscall_64_[k] 1\n"
        );
    }

    #[test]
    fn a_profile_without_samples_is_an_error_with_advice() {
        let error = fold(b"").unwrap_err().to_string();
        assert!(error.contains("make it longer"), "{error}");
    }

    #[test]
    fn a_flame_graph_shows_its_functions() {
        let folded = fold(SCRIPT.as_bytes()).unwrap();
        let svg = String::from_utf8(flame_graph(&folded, "cell, client").unwrap()).unwrap();
        assert!(svg.contains("<svg") && svg.contains("cell, client"), "{svg}");
        assert!(svg.contains("perfrun_node::send (2 samples, 100.00%)"), "{svg}");
    }

    #[test]
    fn a_name_does_not_split_a_stack() {
        // core::array::<[u8; 32]>: an inherent method of an array.
        let name = readable("_RNvMCs1_4coreAhj20_3new");
        assert!(name.contains("[u8, 32]"), "{name}");
    }
}
