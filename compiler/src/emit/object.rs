//! Object files and static libraries: ELF, Mach-O and COFF from machine code and constant data.
//!
//! An object has code, read-only data and nothing else: no writable section, no undefined symbol. References between the two are
//! relative to their place, so linking it into an executable or a shared library leaves nothing for the loader to do.

use std::collections::BTreeMap;
use std::io::Cursor;

use ar_archive_writer::{ArchiveKind, DEFAULT_OBJECT_READER, NewArchiveMember};
use mcc_kernel::{BranchProtection, Code, RelocKind};
use mcc_support::bug;
use object::write::{Comdat, MachOBuildVersion, Object, Relocation, SectionId, StandardSection, Symbol, SymbolId, SymbolSection};
use object::{
    Architecture, BinaryFormat, ComdatKind, Endianness, RelocationEncoding, RelocationFlags, RelocationKind, SectionFlags,
    SectionKind, SymbolFlags, SymbolKind, SymbolScope, elf, macho,
};
use target_lexicon::{OperatingSystem, Triple};

/// A function of the object. Names are those of C.
#[derive(Clone, Copy, Debug)]
pub struct Function<'a> {
    pub symbol: &'a str,
    pub code: &'a Code,
    /// Visible outside of the object.
    pub exported: bool,
}

/// Read-only data of the object.
#[derive(Clone, Debug)]
pub struct Data<'a> {
    pub symbol: &'a str,
    pub bytes: &'a [u8],
    pub align_bytes: u64,
    pub exported: bool,
    /// Of the section in which it lies, as a linker script names it; `None`: one of its own beside the other read-only data.
    pub section: Option<&'a str>,
    /// Offsets of 32-bit fields, each with the symbol whose distance from the field it holds.
    pub distances: Vec<(u64, &'a str)>,
}

/// What goes into one object.
#[derive(Clone, Debug, Default)]
pub struct Module<'a> {
    pub functions: Vec<Function<'a>>,
    pub data: Vec<Data<'a>>,
}

/// What functions take in an object, in this order.
pub fn code_size_bytes<'a>(functions: impl IntoIterator<Item = &'a Code>) -> u64 {
    functions.into_iter().fold(0, |end: u64, code| end.next_multiple_of(code_align_bytes(code)) + code.bytes.len() as u64)
}

fn code_align_bytes(code: &Code) -> u64 {
    u64::from(code.align_bytes).max(16)
}

/// The bytes of the object file. The same module gives the same bytes.
pub fn write_object(module: &Module<'_>, triple: &Triple, protection: BranchProtection) -> Vec<u8> {
    let mut writer = Writer::new(triple);
    writer.protect(protection);
    // Everything is placed before the first reference is resolved.
    let functions: Vec<Place> = module.functions.iter().map(|function| writer.add_function(function)).collect();
    let data: Vec<Place> = module.data.iter().map(|data| writer.add_data(data)).collect();
    for (function, place) in module.functions.iter().zip(functions) {
        writer.relocate_code(function, place);
    }
    for (one, place) in module.data.iter().zip(data) {
        writer.relocate_data(one, place);
    }
    writer.object.write().unwrap_or_else(|error| bug!("the object cannot be written: {error}"))
}

/// A static library with this object as its one member.
pub fn write_static_library(object: &[u8], member: &str, triple: &Triple) -> Vec<u8> {
    let kind = match binary_format(triple) {
        BinaryFormat::MachO => ArchiveKind::Darwin,
        BinaryFormat::Coff => ArchiveKind::Coff,
        _ => ArchiveKind::Gnu,
    };
    let members = [NewArchiveMember::new(object, &DEFAULT_OBJECT_READER, member.to_string())];
    let mut out = Cursor::new(Vec::new());
    ar_archive_writer::write_archive_to_stream(&mut out, &members, kind, false, Some(false))
        .unwrap_or_else(|error| bug!("the static library cannot be written: {error}"));
    out.into_inner()
}

/// Where something is in the object.
#[derive(Clone, Copy, Debug)]
struct Place {
    section: SectionId,
    offset: u64,
}

struct Writer {
    object: Object<'static>,
    /// By name, all that the object defines.
    symbols: BTreeMap<String, SymbolId>,
}

impl Writer {
    fn new(triple: &Triple) -> Self {
        let architecture = match triple.architecture {
            target_lexicon::Architecture::X86_64 => Architecture::X86_64,
            target_lexicon::Architecture::Aarch64(_) => Architecture::Aarch64,
            other => bug!("no object format for {other}"),
        };
        let mut object = Object::new(binary_format(triple), architecture, Endianness::Little);
        if let Some(version) = build_version(triple) {
            object.set_macho_build_version(version);
        }
        object.set_subsections_via_symbols();
        if object.format() == BinaryFormat::Elf {
            // Says that the code runs with a stack that is not executable; without it, linkers assume the opposite.
            let note = object.add_section(Vec::new(), b".note.GNU-stack".to_vec(), SectionKind::Other);
            object.section_mut(note).flags = SectionFlags::Elf { sh_flags: 0 };
        }
        Self { object, symbols: BTreeMap::new() }
    }

    /// Tells the linker, which marks a program whose objects are all protected.
    fn protect(&mut self, protection: BranchProtection) {
        let bits = [
            (protection.targets, elf::GNU_PROPERTY_AARCH64_FEATURE_1_BTI),
            (protection.returns, elf::GNU_PROPERTY_AARCH64_FEATURE_1_PAC),
        ];
        let features = bits.iter().filter(|(is_set, _)| *is_set).fold(0, |features, (_, bit)| features | bit);
        if features != 0 {
            self.object.add_elf_gnu_property_u32(elf::GNU_PROPERTY_AARCH64_FEATURE_1_AND, features);
        }
    }

    /// In a section of its own, so that linkers may leave out what a program does not use.
    fn add_function(&mut self, function: &Function<'_>) -> Place {
        let code = function.code;
        let section = self.object.add_subsection(StandardSection::Text, function.symbol.as_bytes());
        // Padding between functions is never run.
        let offset = self.object.append_section_data(section, &code.bytes, code_align_bytes(code));
        let place = Place { section, offset };
        self.define(function.symbol, place, code.bytes.len(), SymbolKind::Text, function.exported);
        place
    }

    fn add_data(&mut self, data: &Data<'_>) -> Place {
        let section = match data.section {
            None => self.object.add_subsection(StandardSection::ReadOnlyData, data.symbol.as_bytes()),
            Some(name) => {
                let (segment, name) = name.split_once(',').unwrap_or(("", name));
                self.object.add_section(segment.into(), name.into(), SectionKind::ReadOnlyData)
            }
        };
        let offset = self.object.append_section_data(section, data.bytes, data.align_bytes);
        let place = Place { section, offset };
        self.define(data.symbol, place, data.bytes.len(), SymbolKind::Data, data.exported);
        place
    }

    /// Adds the symbol. An exported one is *protected* where the format knows that: another definition cannot take its place, and
    /// an executable cannot copy the description out of a shared library, away from what its offsets refer to.
    fn define(&mut self, name: &str, place: Place, size: usize, kind: SymbolKind, exported: bool) {
        let mut symbol = Symbol {
            name: name.as_bytes().to_vec(),
            value: place.offset,
            size: size as u64,
            kind,
            scope: if exported { SymbolScope::Dynamic } else { SymbolScope::Compilation },
            weak: false,
            section: SymbolSection::Section(place.section),
            flags: SymbolFlags::None,
        };
        if exported && self.object.format() == BinaryFormat::Elf {
            let ty = if kind == SymbolKind::Text { elf::STT_FUNC } else { elf::STT_OBJECT };
            symbol.flags = SymbolFlags::Elf { st_info: elf::STB_GLOBAL << 4 | ty, st_other: elf::STV_PROTECTED };
        }
        let is_coff = self.object.format() == BinaryFormat::Coff;
        if is_coff {
            // The symbol of the section comes before that of its group.
            self.object.section_symbol(place.section);
        }
        let id = self.object.add_symbol(symbol);
        if is_coff {
            // What is in no group, linkers keep.
            self.object.add_comdat(Comdat { kind: ComdatKind::NoDuplicates, symbol: id, sections: vec![place.section] });
        }
        if self.symbols.insert(name.to_string(), id).is_some() {
            bug!("symbol {name} is defined twice");
        }
    }

    /// What a reference to a symbol is written as: its section and the offset in it, so that no reference can be redirected.
    fn target(&mut self, name: &str) -> (SymbolId, i64) {
        let Some(&id) = self.symbols.get(name) else { bug!("symbol {name} is not defined in the object") };
        if self.object.format() == BinaryFormat::MachO {
            // References there are to symbols.
            return (id, 0);
        }
        let (section, offset) = self.object.symbol_section_and_offset(id).expect("the symbol was placed");
        (section, offset as i64)
    }

    fn relocate_code(&mut self, function: &Function<'_>, place: Place) {
        for reloc in &function.code.relocs {
            let (symbol, base) = self.target(&reloc.symbol);
            let flags = code_reloc(reloc.kind, self.object.format());
            let relocation =
                Relocation { offset: place.offset + u64::from(reloc.offset), symbol, addend: base + reloc.addend, flags };
            self.add_relocation(place.section, relocation, None);
        }
    }

    fn relocate_data(&mut self, data: &Data<'_>, place: Place) {
        for &(field, symbol) in &data.distances {
            let offset = place.offset + field;
            let (symbol, base) = self.target(symbol);
            if self.object.format() != BinaryFormat::MachO {
                let flags = generic(RelocationKind::Relative, RelocationEncoding::Generic, 32);
                self.add_relocation(place.section, Relocation { offset, symbol, addend: base, flags }, None);
                continue;
            }
            // The difference of two symbols, of which the second is the start of the data.
            let start = self.symbols[data.symbol];
            let flags = generic(RelocationKind::Absolute, RelocationEncoding::Generic, 32);
            let addend = base - field as i64;
            self.add_relocation(place.section, Relocation { offset, symbol, addend, flags }, Some(start));
        }
    }

    fn add_relocation(&mut self, section: SectionId, relocation: Relocation, subtractor: Option<SymbolId>) {
        self.object
            .add_relocation_with_subtractor(section, relocation, subtractor)
            .unwrap_or_else(|error| bug!("a reference cannot be written: {error}"));
    }
}

fn generic(kind: RelocationKind, encoding: RelocationEncoding, size: u8) -> RelocationFlags {
    RelocationFlags::Generic { kind, encoding, size }
}

fn code_reloc(kind: RelocKind, format: BinaryFormat) -> RelocationFlags {
    match (kind, format) {
        (RelocKind::X86Call4, _) => generic(RelocationKind::Relative, RelocationEncoding::X86Branch, 32),
        (RelocKind::X86PcRel4, _) => generic(RelocationKind::Relative, RelocationEncoding::Generic, 32),
        (RelocKind::Aarch64Call26, _) => generic(RelocationKind::Relative, RelocationEncoding::AArch64Call, 26),
        (RelocKind::Aarch64AdrPage21, BinaryFormat::Elf) => RelocationFlags::Elf { r_type: elf::R_AARCH64_ADR_PREL_PG_HI21 },
        (RelocKind::Aarch64AddLo12, BinaryFormat::Elf) => RelocationFlags::Elf { r_type: elf::R_AARCH64_ADD_ABS_LO12_NC },
        (RelocKind::Aarch64AdrPage21, BinaryFormat::MachO) => {
            RelocationFlags::MachO { r_type: macho::ARM64_RELOC_PAGE21, r_pcrel: true, r_length: 2 }
        }
        (RelocKind::Aarch64AddLo12, BinaryFormat::MachO) => {
            RelocationFlags::MachO { r_type: macho::ARM64_RELOC_PAGEOFF12, r_pcrel: false, r_length: 2 }
        }
        (RelocKind::Aarch64AdrPage21 | RelocKind::Aarch64AddLo12, other) => bug!("{kind:?} in a {other:?} object"),
    }
}

fn binary_format(triple: &Triple) -> BinaryFormat {
    match triple.binary_format {
        // Bare metal.
        target_lexicon::BinaryFormat::Elf | target_lexicon::BinaryFormat::Unknown => BinaryFormat::Elf,
        target_lexicon::BinaryFormat::Macho => BinaryFormat::MachO,
        target_lexicon::BinaryFormat::Coff => BinaryFormat::Coff,
        other => bug!("no object format for {other}"),
    }
}

/// Apple's linkers ask for which platform an object is.
fn build_version(triple: &Triple) -> Option<MachOBuildVersion> {
    let (platform, version) = match triple.operating_system {
        OperatingSystem::Darwin(version) | OperatingSystem::MacOSX(version) => (macho::PLATFORM_MACOS, version),
        OperatingSystem::IOS(version) => match triple.environment {
            target_lexicon::Environment::Sim => (macho::PLATFORM_IOSSIMULATOR, version),
            target_lexicon::Environment::Macabi => (macho::PLATFORM_MACCATALYST, version),
            _ => (macho::PLATFORM_IOS, version),
        },
        _ => return None,
    };
    let mut build = MachOBuildVersion::default();
    build.platform = platform;
    build.minos = version.map_or(0, |v| u32::from(v.major) << 16 | u32::from(v.minor) << 8 | u32::from(v.patch));
    Some(build)
}
