//! What a user can do wrong, told in one message: what, where and what to do.
//!
//! An [`Error`] is a value and comes from the stages that read what the user gave (decode, import, target selection, files).
//! A fault of mcc itself is a panic raised by [`bug!`](crate::bug): the command turns it into a report.

use std::fmt;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The node of the user's model that an error speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRef {
    /// The node's name, or the name of its first output where it has none.
    pub name: String,
    /// Operator with its domain where that is not the default one: `Conv`, `com.microsoft.Gelu`.
    pub operator: String,
    /// The version of the domain that the model imports.
    pub opset: i64,
}

/// An error of the user's, not of mcc's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub message: String,
    /// Where, from the innermost outwards: a tensor, a file.
    pub context: Vec<String>,
    pub node: Option<NodeRef>,
    /// What to do about it.
    pub help: Option<String>,
}

impl Error {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), context: Vec::new(), node: None, help: None }
    }

    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help.get_or_insert(help.into());
        self
    }

    /// Adds a place, outside of those given before: `in tensor 'w'`.
    #[must_use]
    pub fn context(mut self, place: impl Into<String>) -> Self {
        self.context.push(place.into());
        self
    }

    /// Names the node, unless an inner one was named already.
    #[must_use]
    pub fn node(mut self, node: NodeRef) -> Self {
        self.node.get_or_insert(node);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(node) = &self.node {
            write!(f, "node '{}' ({}, opset {}): ", node.name, node.operator, node.opset)?;
        }
        f.write_str(&self.message)?;
        for place in &self.context {
            write!(f, "\n  {place}")?;
        }
        if let Some(help) = &self.help {
            write!(f, "\n  help: {help}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// The name that is most like one that does not exist, if one is.
pub fn similar<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    const LIKE: f64 = 0.9;
    let scored = known.map(|known| (strsim::jaro_winkler(&name.to_lowercase(), &known.to_lowercase()), known));
    scored.filter(|(score, _)| *score >= LIKE).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, known)| known)
}

/// Returns early with an [`Error`] made by `format!`.
#[macro_export]
macro_rules! bail {
    ($($arg:tt)*) => { return Err($crate::Error::new(format!($($arg)*)).into()) };
}

/// Returns early with an [`Error`] unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($arg:tt)*) => { if !($condition) { $crate::bail!($($arg)*); } };
}

/// A fault of mcc itself.
#[macro_export]
macro_rules! bug {
    ($($arg:tt)*) => { panic!("bug in mcc: {}", format_args!($($arg)*)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_suggested_where_they_are_alike() {
        let known = ["HardSwish", "HardSigmoid", "Conv", "ConvTranspose", "check"];
        for (name, expected) in
            [("HardSwoosh", Some("HardSwish")), ("conv", Some("Conv")), ("chek", Some("check")), ("Frobnicate", None), ("", None)]
        {
            assert_eq!(similar(name, known.into_iter()), expected, "{name}");
        }
    }
}
