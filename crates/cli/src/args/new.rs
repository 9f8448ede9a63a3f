//! The options of `perfrun new`.

use std::path::PathBuf;

use clap::{
    Args,
    builder::{PossibleValue, PossibleValuesParser},
};
use perfrun_contract::parameters::Parameters;
use strum::VariantNames;

use crate::first_documents;

/// Options of `perfrun new`.
#[derive(Args, Debug)]
pub struct New {
    /// What to measure. The document has this workload.
    #[arg(value_parser = workloads())]
    pub workload: String,
    /// Write the document to this new file instead of standard output. A file that exists is left as it is.
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

fn workloads() -> PossibleValuesParser {
    let value = |name: &&'static str| PossibleValue::new(*name).help(first_documents::question(name));
    PossibleValuesParser::new(Parameters::VARIANTS.iter().map(value))
}
