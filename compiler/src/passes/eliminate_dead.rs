//! Removes nodes whose result nobody uses.
//!
//! ```text
//! %1 = exp %0 : f32[4]
//! %2 = abs %0 : f32[4]      →  %2 = abs %0 : f32[4]
//! output %2 "y"                output %2 "y"
//! ```

use super::Pass;
use crate::graph::edit::Edit;

pub static PASS: Pass = Pass { name: "eliminate-dead", doc: "remove nodes whose result nobody uses", required: false, run };

fn run(edit: &mut Edit) {
    for id in edit.order().into_iter().rev() {
        if edit.is_live(id) && !edit.is_needed(id) {
            edit.remove(id);
        }
    }
}
