//! Constants that lie after the code of a function.

/// Each constant once.
#[derive(Default, Debug)]
pub struct Pool {
    pub entries: Vec<Vec<u8>>,
}

impl Pool {
    /// The entry with these bytes, a power of two of them.
    pub fn entry(&mut self, bytes: Vec<u8>) -> u32 {
        let known = self.entries.iter().position(|known| *known == bytes);
        known.unwrap_or_else(|| {
            self.entries.push(bytes);
            self.entries.len() - 1
        }) as u32
    }

    /// Offsets of the entries from a place that is aligned to the largest of them, and the bytes of all.
    pub fn layout(&self) -> (Vec<usize>, Vec<u8>) {
        let mut order: Vec<usize> = (0..self.entries.len()).collect();
        order.sort_by_key(|&entry| std::cmp::Reverse(self.entries[entry].len()));
        let mut offsets = vec![0; self.entries.len()];
        let mut bytes = Vec::new();
        for entry in order {
            offsets[entry] = bytes.len();
            bytes.extend(&self.entries[entry]);
        }
        (offsets, bytes)
    }

    pub fn align_bytes(&self) -> usize {
        self.entries.iter().map(Vec::len).max().unwrap_or(1)
    }
}
