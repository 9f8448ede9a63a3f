//! Writes the files generated from the types: `perfrun-generate FOLDER`.

use std::{env, fs, path::Path, process::ExitCode};

#[expect(clippy::print_stderr, reason = "a command-line tool reports why it failed")]
fn main() -> ExitCode {
    let Some(root) = env::args_os().nth(1) else {
        eprintln!("usage: perfrun-generate FOLDER");
        return ExitCode::FAILURE;
    };
    for (name, text) in perfrun_api::generated::files() {
        let path = Path::new(&root).join(name);
        let written = path
            .parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&path, text));
        if let Err(error) = written {
            eprintln!("failed to write {}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
