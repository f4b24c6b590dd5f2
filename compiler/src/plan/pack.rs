//! Constants as their kernels read them: packed into their layouts, padded with zeros, one after the other.

use std::collections::HashMap;

use bytes::Bytes;
use mcc_support::tensor::packed_code;
use mcc_support::{DType, EntityMap, Tensor, TensorType};

use super::{ALIGN_BYTES, Place};
use crate::decisions::Layout;
use crate::loops::sites;
use crate::loops::{BufferId, Program, Role};

/// The bytes of a tensor in a layout.
pub fn pack(tensor: &Tensor, layout: &Layout) -> Vec<u8> {
    let shape = tensor.shape().dims();
    let count = layout.count(shape);
    if *layout == Layout::row_major(shape.len()) {
        return tensor.data().to_vec();
    }
    let parts = parts(shape, layout);
    let mut packed = vec![0; (count * tensor.dtype().size_bits()).div_ceil(8)];
    let mut at = 0;
    tensor.shape().for_each_index(|index| {
        let to: usize = index.iter().zip(&parts).map(|(&index, part)| part[index]).sum();
        copy_element(tensor.dtype(), tensor.data(), at, &mut packed, to);
        at += 1;
    });
    packed
}

/// The tensor whose packed bytes these are.
pub fn unpack(ty: &TensorType, layout: &Layout, packed: &[u8]) -> Tensor {
    let shape = ty.shape.dims();
    let parts = parts(shape, layout);
    let mut data = vec![0; ty.size_bytes()];
    let mut at = 0;
    ty.shape.for_each_index(|index| {
        let from: usize = index.iter().zip(&parts).map(|(&index, part)| part[index]).sum();
        copy_element(ty.dtype, packed, from, &mut data, at);
        at += 1;
    });
    Tensor::new(ty.clone(), data)
}

/// What each index of each dimension adds to an element's place.
fn parts(shape: &[usize], layout: &Layout) -> Vec<Vec<usize>> {
    let origin = vec![0; shape.len()];
    (0..shape.len())
        .map(|dim| {
            let at = |index| {
                let mut place = origin.clone();
                place[dim] = index;
                layout.offset(shape, &place)
            };
            (0..shape[dim]).map(at).collect()
        })
        .collect()
}

fn copy_element(dtype: DType, from: &[u8], at: usize, into: &mut [u8], to: usize) {
    if dtype.is_packed() {
        let to = to * dtype.size_bits();
        into[to / 8] |= packed_code(dtype, from, at) << (to % 8);
    } else {
        let size = dtype.size_bytes();
        into[to * size..][..size].copy_from_slice(&from[at * size..][..size]);
    }
}

/// The packed constants of one object, which may be for several programs. Equal bytes are there once.
#[derive(Clone, Debug, Default)]
pub struct Weights {
    bytes: Vec<u8>,
    /// Places of constants by their size: those of one size are compared.
    known: HashMap<usize, Vec<usize>>,
}

impl Weights {
    pub fn finish(self) -> Bytes {
        self.bytes.into()
    }

    /// The offset of these bytes, which are added where they are not there.
    fn place(&mut self, packed: &[u8]) -> usize {
        let same_size = self.known.entry(packed.len()).or_default();
        if let Some(offset) = same_size.iter().copied().find(|&offset| self.bytes[offset..][..packed.len()] == *packed) {
            return offset;
        }
        let offset = self.bytes.len().next_multiple_of(ALIGN_BYTES);
        self.bytes.resize(offset, 0);
        self.bytes.extend_from_slice(packed);
        same_size.push(offset);
        offset
    }
}

/// Lays the constants that kernels read out in the order in which they first do.
pub fn pack_constants(
    program: &Program,
    layouts: &EntityMap<BufferId, Layout>,
    places: &mut EntityMap<BufferId, Place>,
    weights: &mut Weights,
) {
    for kernel in &program.kernels {
        for buffer in sites::accesses(kernel).0 {
            let Role::Constant(tensor) = &program.buffers[buffer].role else { continue };
            if places[buffer] != Place::Unused {
                continue;
            }
            let packed = pack(tensor, &layouts[buffer]);
            places[buffer] = Place::Weights { offset: weights.place(&packed), size_bytes: packed.len() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decisions::Coordinate;

    #[test]
    fn packed_elements_lie_where_the_layout_says() {
        let coordinate = |dim, divide, modulo| Coordinate { dim, divide, modulo };
        let panels = Layout { coordinates: vec![coordinate(0, 4, None), coordinate(1, 1, None), coordinate(0, 1, Some(4))] };
        let elements: Vec<f32> = (1..=30).map(|value| value as f32).collect();
        let tensor = Tensor::from_elements([6, 5].to_vec(), &elements);
        for layout in [panels, Layout::permuted(&[1, 0]), Layout::row_major(2)] {
            let bytes = pack(&tensor, &layout);
            let packed: Vec<f32> = bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect();
            assert_eq!(unpack(tensor.ty(), &layout, &bytes), tensor, "{layout:?}");
            assert_eq!(packed.len(), layout.count(&[6, 5]));
            let mut filled = 0;
            tensor.shape().for_each_index(|index| {
                assert_eq!(packed[layout.offset(&[6, 5], index)], elements[index[0] * 5 + index[1]], "{layout:?} {index:?}");
                filled += 1;
            });
            assert_eq!(packed.iter().filter(|&&value| value == 0.0).count(), packed.len() - filled, "padding is zero");
        }
    }
}
