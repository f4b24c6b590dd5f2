//! The memory that a run works in.

use core::fmt;

use crate::abi::ARENA_ALIGN;

/// What [`Model::run`](crate::Model::run) takes as an arena: what the model itself takes, and room for what a call points to.
pub const fn arena_bytes(model_bytes: usize, tensor_count: usize, symbol_count: usize) -> usize {
    tail_offset(model_bytes) + size_of::<u64>() * (tensor_count + symbol_count)
}

/// Where the room behind the model's own arena starts.
pub(crate) const fn tail_offset(model_bytes: usize) -> usize {
    model_bytes.next_multiple_of(size_of::<u64>())
}

/// An arena of a size known when the program is compiled: in a static, or on a stack that has the room.
#[repr(C, align(64))]
pub struct Arena<const BYTES: usize>([u8; BYTES]);

const _: () = assert!(align_of::<Arena<1>>() == ARENA_ALIGN);

impl<const BYTES: usize> Arena<BYTES> {
    pub const fn new() -> Self {
        Self([0; BYTES])
    }

    /// On the heap, without a copy on the stack.
    #[cfg(feature = "std")]
    pub fn boxed() -> std::boxed::Box<Self> {
        // SAFETY: bytes may be zero.
        unsafe { std::boxed::Box::new_zeroed().assume_init() }
    }

    pub const fn bytes(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl<const BYTES: usize> Default for Arena<BYTES> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const BYTES: usize> fmt::Debug for Arena<BYTES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("bytes", &BYTES).finish()
    }
}
