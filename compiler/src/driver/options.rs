//! What a compile is told.

use std::collections::BTreeMap;
use std::path::PathBuf;

use mcc_kernel::BranchProtection;
use serde_json::json;
use sha2::{Digest, Sha256};
use target_lexicon::Triple;

use super::Stage;
use crate::decisions::Decisions;
use crate::emit::WeightsPlace;
use crate::emit::manifest::hex;
use crate::import::ImportOptions;

/// All that a compile depends on.
#[derive(Clone, Debug)]
pub struct Options {
    pub model: PathBuf,
    /// As `--target` and `--cpu` spell them; without a CPU, the default one of the target. Of several, separated by commas, the
    /// object has code for each, and a run takes the best that its caller tells of.
    pub target: String,
    pub cpu: Option<String>,
    /// Prefix of the symbols; made from the name of the file where it is not given.
    pub name: Option<String>,
    pub import: ImportOptions,
    /// Further sets of shapes beside those of `import`: the object is for each of them.
    pub further_shapes: Vec<ShapeSet>,
    /// Rewrites of the graph, fusions, layouts and schedule steps that are done, in this order, for each set of shapes; `None`: all.
    pub fuel: Option<u64>,
    /// Convolutions are transformed where that is faster; else all sums are of the products that the model names.
    pub winograd: bool,
    /// Every value that is stored keeps its place to the end of a run, so that it can be looked at.
    pub keep_values: bool,
    /// A run tells `mcc_call.profile` of each kernel.
    pub profile: bool,
    pub branch_protection: BranchProtection,
    /// Whether every access is aligned to its size, where the architecture has code of both kinds. `None`: where the target has no
    /// operating system, whose memory management unit may be off.
    pub strict_align: Option<bool>,
    /// Where the packed weights go.
    pub weights: WeightsPlace,
    /// Verify after each stage; builds with debug assertions always do.
    pub verify: bool,
    /// Taken in place of those that would be made; where there are several sets of shapes or CPUs, for each CPU, the best first, one for
    /// each set.
    pub decisions: Vec<Decisions>,
    /// Files that the constants and decisions were read from: the result depends on them too.
    pub files: Vec<PathBuf>,
    pub stop_after: Option<Stage>,
}

impl Options {
    /// For this machine, with everything at its default.
    pub fn new(model: impl Into<PathBuf>) -> Self {
        Self {
            model: model.into(),
            target: "host".to_string(),
            cpu: None,
            name: None,
            import: ImportOptions::default(),
            further_shapes: Vec::new(),
            fuel: None,
            winograd: true,
            keep_values: false,
            profile: false,
            branch_protection: BranchProtection::default(),
            strict_align: None,
            weights: WeightsPlace::default(),
            verify: false,
            decisions: Vec::new(),
            files: Vec::new(),
            stop_after: None,
        }
    }

    /// What the result depends on besides the model, as the manifest states it.
    pub(super) fn record(&self, triple: &Triple, cpus: &str) -> serde_json::Value {
        let constants = self.import.constants.iter().map(|(name, tensor)| {
            let value = json!({ "type": tensor.ty().to_string(), "sha256": hex(&Sha256::digest(tensor.data())) });
            (name.clone(), value)
        });
        let mut record = json!({
            "target": triple.to_string(),
            "cpu": cpus,
            "shapes": self.import.shapes,
            "dims": self.import.dims,
            "ranges": self.import.ranges,
            "max_elements": self.import.max_elements,
            "axis_ranges": self.import.axis_ranges.iter().collect::<Vec<_>>(),
            "further_shapes":
                self.further_shapes.iter().map(|set| json!({ "shapes": set.shapes, "dims": set.dims })).collect::<Vec<_>>(),
            "constants": constants.collect::<serde_json::Map<_, _>>(),
            "fuel": self.fuel,
            "keep_values": self.keep_values,
            "decisions": (!self.decisions.is_empty()).then(|| hex(&Sha256::digest(json!(self.decisions).to_string()))),
        });
        if !self.winograd {
            record["winograd"] = json!("off");
        }
        if self.profile {
            record["profile"] = json!(true);
        }
        let protection = self.branch_protection;
        if protection != BranchProtection::default() {
            record["branch_protection"] = json!({ "targets": protection.targets, "returns": protection.returns });
        }
        if let Some(strict) = self.strict_align {
            record["strict_align"] = json!(strict);
        }
        match &self.weights {
            WeightsPlace::Object => {}
            WeightsPlace::Section(name) => record["weights_section"] = json!(name),
            WeightsPlace::File => record["weights_file"] = json!(true),
        }
        record
    }

    /// What each set of shapes imports by.
    pub fn imports(&self, name: &str) -> Vec<ImportOptions> {
        let first = ImportOptions { name: Some(name.to_string()), ..self.import.clone() };
        let further = self.further_shapes.iter().map(|set| ImportOptions {
            shapes: set.shapes.clone(),
            dims: set.dims.clone(),
            ..first.clone()
        });
        std::iter::once(first.clone()).chain(further).collect()
    }
}

/// Extents of inputs, as [`ImportOptions`] has them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ShapeSet {
    pub shapes: BTreeMap<String, Vec<usize>>,
    pub dims: BTreeMap<String, usize>,
}
