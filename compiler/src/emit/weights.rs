//! Where packed weights are kept.

use mcc_support::{Error, Result};
use target_lexicon::{BinaryFormat, Triple};

/// Of the head of a file of weights: the weights behind it are as aligned as the file is.
pub const HEAD_BYTES: usize = mcc_runtime::ARENA_ALIGN;

/// Where packed weights are kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum WeightsPlace {
    /// In the object's read-only data.
    #[default]
    Object,
    /// In a section of the object with this name, which a linker script places.
    Section(String),
    /// In a file of their own, whose bytes each run is passed.
    File,
}

impl WeightsPlace {
    /// The section with this name.
    ///
    /// # Errors
    ///
    /// A name that the object format does not have.
    pub fn section(name: &str, triple: &Triple) -> Result<Self> {
        let wrong = |why: &str| Err(Error::new(format!("'{name}' is not the name of a section: {why}")));
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            return wrong("it has letters, digits and signs of ASCII only");
        }
        if triple.binary_format == BinaryFormat::Macho {
            let Some((segment, section)) = name.split_once(',') else { return wrong("in Mach-O it is SEGMENT,SECTION") };
            if !(1..=16).contains(&segment.len()) || !(1..=16).contains(&section.len()) || section.contains(',') {
                return wrong("in Mach-O, segment and section have up to 16 characters each");
            }
        } else if name.contains(',') {
            return wrong("a comma is for Mach-O only");
        }
        Ok(Self::Section(name.to_string()))
    }
}
