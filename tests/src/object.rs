//! What an object file or shared library says of itself.

use std::fs;
use std::path::Path;

use object::{Object, ObjectSection, ObjectSymbol, SectionFlags};

/// Facts that the interface of compiled models restricts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inspection {
    pub undefined: Vec<String>,
    /// Defined for other objects, sorted.
    pub exported: Vec<String>,
    /// Sections that are writable when loaded, but for empty ones.
    pub writable: Vec<String>,
    /// Relocations left for the loader.
    pub dynamic_relocations: usize,
    pub code_bytes: u64,
    pub constant_bytes: u64,
}

/// Reads an ELF file.
pub fn inspect(path: &Path) -> Inspection {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let file = object::File::parse(&*bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let loaded = |section: &object::Section<'_, '_>| match section.flags() {
        SectionFlags::Elf { sh_flags } if sh_flags & u64::from(object::elf::SHF_ALLOC) != 0 && section.size() > 0 => {
            Some(sh_flags)
        }
        _ => None,
    };
    let size = |wanted: &dyn Fn(u64) -> bool| -> u64 {
        file.sections().filter(|section| loaded(section).is_some_and(wanted)).map(|section| section.size()).sum()
    };
    let (write, execute) = (u64::from(object::elf::SHF_WRITE), u64::from(object::elf::SHF_EXECINSTR));
    let name = |symbol: object::Symbol<'_, '_>| symbol.name().expect("symbols have names").to_string();
    let mut exported: Vec<String> =
        file.symbols().filter(|symbol| symbol.is_definition() && symbol.is_global()).map(name).collect();
    exported.sort();
    Inspection {
        undefined: file.symbols().filter(|symbol| symbol.is_undefined() && symbol.index().0 != 0).map(name).collect(),
        exported,
        writable: file
            .sections()
            .filter(|section| loaded(section).is_some_and(|flags| flags & write != 0))
            .map(|section| section.name().expect("sections have names").to_string())
            .collect(),
        dynamic_relocations: file.dynamic_relocations().map_or(0, Iterator::count),
        code_bytes: size(&|flags| flags & execute != 0),
        constant_bytes: size(&|flags| flags & (execute | write) == 0),
    }
}
