//! What the names of stacks stand for.

use std::hash::{Hash, Hasher};

use perfrun_contract::{
    matrix::{Stack, StackName, StackSettings},
    support::CellStack,
};

use super::Error;
use crate::spec::{PerfRunSpec, StackVariant};

/// The suffix of a control's name, after that of its baseline. No variant has a name with `_`.
const CONTROL: &str = "_control";

/// A stack that cells have: a built-in one, a variant of one, or the control of either.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResolvedStack<'a> {
    /// The built-in stack that it is, or is a variant of.
    pub stack: Stack,
    /// Its entry of `stacks`. `None` for built-in stacks.
    pub variant: Option<&'a StackVariant>,
    pub(super) is_control: bool,
}

impl<'a> ResolvedStack<'a> {
    /// The raw reference.
    pub(super) const RAW: Self = Self {
        stack: Stack::Raw,
        variant: None,
        is_control: false,
    };

    /// The stack with a name of the matrix. `None` if the name is neither built in nor listed.
    pub(crate) fn of(spec: &'a PerfRunSpec, name: &str) -> Option<Self> {
        let variant = spec.variant(name);
        let built_in = || Stack::named(name);
        Some(Self {
            stack: variant.map(|variant| variant.stack).or_else(built_in)?,
            variant,
            is_control: false,
        })
    }

    /// The stack with a name of the document. Validation refuses documents with unknown names.
    pub(super) fn named(spec: &'a PerfRunSpec, name: &StackName) -> Result<Self, Error> {
        Self::of(spec, &name.0).ok_or_else(|| Error::UnknownStack(name.clone()))
    }

    /// The same stack once more, with nodes of its own.
    pub(super) fn control(self) -> Self {
        Self {
            is_control: true,
            ..self
        }
    }

    /// The name in the matrix. A control has that of its baseline.
    pub(super) fn matrix_name(&self) -> &'a str {
        match self.variant {
            Some(variant) => &variant.name,
            None => self.stack.into(),
        }
    }

    /// The name in cells.
    pub(super) fn name(&self) -> StackName {
        let suffix = if self.is_control { CONTROL } else { "" };
        StackName(format!("{}{suffix}", self.matrix_name()))
    }

    pub(super) fn settings(&self) -> StackSettings {
        self.variant
            .map(|variant| variant.settings.clone())
            .unwrap_or_default()
    }

    /// What the stack can do.
    pub(super) fn cell_stack(&self) -> CellStack<'a> {
        CellStack {
            name: self.matrix_name(),
            stack: self.stack,
            capabilities: self.variant.and_then(|variant| variant.capabilities.as_ref()),
        }
    }
}

/// No two stacks of a document have the same name.
impl PartialEq for ResolvedStack<'_> {
    fn eq(&self, other: &Self) -> bool {
        (self.matrix_name(), self.is_control) == (other.matrix_name(), other.is_control)
    }
}

impl Eq for ResolvedStack<'_> {}

impl Hash for ResolvedStack<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.matrix_name(), self.is_control).hash(state);
    }
}
