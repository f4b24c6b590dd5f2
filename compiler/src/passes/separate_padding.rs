//! Takes the padding of a convolution out of it, so that its inner loops test no bounds: the padded operand is written once, by a
//! kernel that moves it to the layout of the convolution in the same go.
//!
//! ```text
//! %2 = conv %0, %1 {pads [1:1, 1:1], …}   →   %3 = pad %0, 0 {amounts [0:0, 0:0, 1:1, 1:1]}
//!                                                %2 = conv %3, %1 {pads [0:0, 0:0], …}
//! ```
//!
//! Products with padding zeros add zeros to a sum, as before.

use super::Pass;
use crate::graph::edit::Edit;
use crate::graph::{Conv, Op, PadMode};

pub static PASS: Pass =
    Pass { name: "separate-padding", doc: "write padded operands of convolutions once", required: false, run };

fn run(edit: &mut Edit) {
    for id in edit.order() {
        if !edit.is_live(id) {
            continue;
        }
        let node = edit.graph().node(id);
        let Op::Conv(conv) = &node.op else { continue };
        let (x, w) = (node.operands[0], node.operands[1]);
        let Some(amounts) = amounts(conv) else { continue };
        let unpadded = Conv { pads: vec![(0, 0); conv.pads.len()], ..conv.clone() };
        let (result, dtype) = (node.results[0], edit.graph().ty(x).dtype);
        edit.replace(result, &[], |edit| {
            let zero = edit.scalar(dtype, 0.0);
            let padded = edit.add(Op::Pad { mode: PadMode::Constant, amounts }, &[x, zero]);
            edit.add(Op::Conv(unpadded), &[padded, w])
        });
    }
}

/// What a pad node adds to each axis in place of the convolution, unless there is nothing to add or it is no plain padding.
fn amounts(conv: &Conv) -> Option<Vec<(usize, usize)>> {
    if conv.pads.iter().all(|&pads| pads == (0, 0)) || conv.input_dilations.iter().any(|&dilation| dilation != 1) {
        return None;
    }
    let spatial = conv.pads.iter().map(|&(before, after)| Some((usize::try_from(before).ok()?, usize::try_from(after).ok()?)));
    [Some((0, 0)), Some((0, 0))].into_iter().chain(spatial).collect()
}
