//! The interpreter's memory: regions, far apart from each other.

/// Regions start this many bits apart, so that no offset that a kernel makes by mistake leads from one into another.
const REGION_BITS: u32 = 40;
/// Addresses from here on are those of functions.
const FIRST_FUNCTION: u64 = 1 << 62;
/// What undefined memory holds once poisoned: NaN as a float of any width, -1 as an integer.
const POISON: u8 = 0xff;

/// An address; 0 is the null pointer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pointer(u64);

impl Pointer {
    pub const NULL: Pointer = Pointer(0);

    pub fn address(self) -> u64 {
        self.0
    }

    #[must_use]
    pub fn offset(self, bytes: i64) -> Pointer {
        Pointer(self.0.wrapping_add_signed(bytes))
    }

    pub(super) fn function(index: usize) -> Pointer {
        Pointer(FIRST_FUNCTION + ((index as u64) << REGION_BITS))
    }

    pub(super) fn as_function(self) -> Option<usize> {
        let index = self.0.checked_sub(FIRST_FUNCTION)?;
        index.is_multiple_of(1 << REGION_BITS).then_some((index >> REGION_BITS) as usize)
    }
}

#[derive(Debug)]
struct Region {
    start: u64,
    bytes: Vec<u8>,
    /// Which bytes were never written; empty where all are defined.
    undefined: Vec<bool>,
    is_constant: bool,
}

#[derive(Debug, Default)]
pub struct Memory {
    regions: Vec<Region>,
}

impl Memory {
    pub fn new() -> Self {
        Self::default()
    }

    /// A region that must be written before it is read. Its address is a multiple of `align_bytes`, a power of two, and of no
    /// greater one.
    pub fn alloc(&mut self, size_bytes: usize, align_bytes: usize) -> Pointer {
        self.push(vec![0; size_bytes], vec![true; size_bytes], align_bytes)
    }

    /// A region that holds these bytes.
    pub fn alloc_from(&mut self, bytes: &[u8], align_bytes: usize) -> Pointer {
        self.push(bytes.to_vec(), Vec::new(), align_bytes)
    }

    fn push(&mut self, bytes: Vec<u8>, undefined: Vec<bool>, align_bytes: usize) -> Pointer {
        assert!(align_bytes.is_power_of_two() && align_bytes < 1 << (REGION_BITS - 1), "an alignment of {align_bytes} bytes");
        let index = self.regions.len() as u64 + 1;
        // In the middle, so that an access before its start is told of it too.
        let start = (index << REGION_BITS) + (1 << (REGION_BITS - 1)) + align_bytes as u64;
        self.regions.push(Region { start, bytes, undefined, is_constant: false });
        Pointer(start)
    }

    /// Makes the region of this pointer constant: storing to it is an error.
    pub fn protect(&mut self, pointer: Pointer) {
        self.region_mut(pointer).is_constant = true;
    }

    /// Lets the undefined bytes of the region be read: as NaN where they are floats, as -1 where they are integers.
    pub fn poison(&mut self, pointer: Pointer) {
        let region = self.region_mut(pointer);
        let undefined = std::mem::take(&mut region.undefined);
        for (byte, undefined) in region.bytes.iter_mut().zip(undefined) {
            if undefined {
                *byte = POISON;
            }
        }
    }

    fn region_mut(&mut self, pointer: Pointer) -> &mut Region {
        let index = (pointer.0 >> REGION_BITS).checked_sub(1).expect("the null pointer has no region") as usize;
        &mut self.regions[index]
    }

    /// The region of an access with its place in it.
    fn find(&self, address: u64, size_bytes: usize) -> Result<(usize, usize), String> {
        let index = (address >> REGION_BITS).wrapping_sub(1) as usize;
        let Some(region) = self.regions.get(index) else {
            return Err(format!("{size_bytes} bytes at {address:#x}, where there is no memory"));
        };
        let offset = address.wrapping_sub(region.start);
        let size = region.bytes.len() as u64;
        if offset > size || size - offset < size_bytes as u64 {
            return Err(format!("{size_bytes} bytes at offset {} of region {index}, which has {size} bytes", offset as i64));
        }
        Ok((index, offset as usize))
    }

    /// The bytes from an address on; an error where they are not all inside one region and defined.
    pub fn read(&self, pointer: Pointer, size_bytes: usize) -> Result<&[u8], String> {
        let (index, offset) = self.find(pointer.0, size_bytes)?;
        let region = &self.regions[index];
        if let Some(undefined) = region.undefined.get(offset..offset + size_bytes)
            && let Some(byte) = undefined.iter().position(|&undefined| undefined)
        {
            return Err(format!("byte {} of region {index} is read before it is written", offset + byte));
        }
        Ok(&region.bytes[offset..offset + size_bytes])
    }

    /// As [`read`](Self::read), with whatever lies where nothing was written.
    pub fn peek(&self, pointer: Pointer, size_bytes: usize) -> Result<&[u8], String> {
        let (index, offset) = self.find(pointer.0, size_bytes)?;
        Ok(&self.regions[index].bytes[offset..offset + size_bytes])
    }

    /// The place that is to be written, as defined from now on.
    pub(super) fn write_place(&mut self, address: u64, size_bytes: usize) -> Result<&mut [u8], String> {
        let (index, offset) = self.find(address, size_bytes)?;
        let region = &mut self.regions[index];
        if region.is_constant {
            return Err(format!("byte {offset} of region {index} is written, but the region is constant"));
        }
        if let Some(undefined) = region.undefined.get_mut(offset..offset + size_bytes) {
            undefined.fill(false);
        }
        Ok(&mut region.bytes[offset..offset + size_bytes])
    }

    pub fn write(&mut self, pointer: Pointer, bytes: &[u8]) -> Result<(), String> {
        self.write_place(pointer.0, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    pub fn write_pointer(&mut self, pointer: Pointer, value: Pointer) -> Result<(), String> {
        self.write(pointer, &value.0.to_le_bytes())
    }

    pub(super) fn count(&self) -> usize {
        self.regions.len()
    }

    /// Frees the regions that were allocated after the first `count`.
    pub(super) fn truncate(&mut self, count: usize) {
        self.regions.truncate(count);
    }
}
