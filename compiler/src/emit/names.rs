//! C names for a model and its tensors, from names that may hold anything.

use std::collections::BTreeSet;

use mcc_support::{Error, Result};

/// What a tensor cannot be called: keywords of C and C++, and words that standard headers or compilers define as macros.
const RESERVED: &[&str] = &[
    "alignas", "alignof", "and", "and_eq", "asm", "assert", "atomic_cancel", "atomic_commit", "atomic_noexcept", "auto",
    "bitand", "bitor", "bool", "break", "case", "catch", "char", "char16_t", "char32_t", "char8_t", "class", "co_await",
    "co_return", "co_yield", "compl", "complex", "concept", "const", "const_cast", "consteval", "constexpr", "constinit",
    "continue", "decltype", "default", "delete", "do", "double", "dynamic_cast", "else", "enum", "errno", "explicit", "export",
    "extern", "false", "far", "float", "for", "friend", "goto", "i386", "if", "imaginary", "inline", "int", "interface", "linux",
    "long", "major", "minor", "mutable", "namespace", "near", "new", "noexcept", "noreturn", "not", "not_eq", "nullptr",
    "operator", "or", "or_eq", "private", "protected", "public", "reflexpr", "register", "reinterpret_cast", "requires",
    "restrict", "return", "short", "signed", "sizeof", "small", "static", "static_assert", "static_cast", "stderr", "stdin",
    "stdout", "struct", "switch", "synchronized", "template", "this", "thread_local", "throw", "true", "try", "typedef",
    "typeid", "typename", "typeof", "typeof_unqual", "union", "unix", "unsigned", "using", "virtual", "void", "volatile",
    "wchar_t", "while", "xor", "xor_eq", "EOF", "I", "INFINITY", "NAN", "NULL",
];

/// Headers of C: one of the same name would hide them from what includes them in its folder.
const C_HEADERS: &[&str] = &[
    "assert", "complex", "ctype", "errno", "fenv", "float", "inttypes", "iso646", "limits", "locale", "math", "setjmp", "signal",
    "stdalign", "stdarg", "stdatomic", "stdbit", "stdbool", "stdckdint", "stddef", "stdint", "stdio", "stdlib", "stdnoreturn",
    "string", "tgmath", "threads", "time", "uchar", "wchar", "wctype",
];

/// The prefix of a model's symbols, from `--name`.
///
/// # Errors
///
/// What is not a C identifier, begins with the prefix of `mcc.h`, or names a header of C.
pub fn given_model_name(name: &str) -> Result<String> {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !starts || !name.chars().all(is_identifier_char) {
        return Err(Error::new(format!("'{name}' is not a C identifier"))
            .help(format!("letters, digits and underscores only, as in --name {}", model_name(name))));
    }
    if is_mcc(name) {
        return Err(Error::new(format!("the name '{name}' is reserved: names of mcc.h begin with mcc")));
    }
    if is_c_header(name) {
        return Err(Error::new(format!("the name '{name}' is that of a header of C, which the model's own would hide"))
            .help(format!("another, as in --name {}", model_name(name))));
    }
    Ok(name.to_string())
}

/// The prefix of a model's symbols, from the stem of its file.
pub fn model_name(stem: &str) -> String {
    let name = identifier(stem);
    if name.is_empty() {
        "model".to_string()
    } else if name.starts_with(|c: char| c.is_ascii_digit()) || is_mcc(&name) || is_c_header(&name) {
        format!("model_{name}")
    } else {
        name
    }
}

/// A name for each tensor, in order: identifiers of C and C++, different also in upper case, and none that a macro of the model's
/// header or of `mcc.h` would replace. `kind` (`input`) is for names of which nothing is left.
pub fn tensor_names<'a>(model: &str, kind: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let macros = format!("{}_", model.to_ascii_uppercase());
    let mut taken = BTreeSet::new();
    names
        .into_iter()
        .map(|name| {
            let mut base = identifier(name);
            if base.is_empty() {
                base = kind.to_string();
            } else if base.starts_with(|c: char| c.is_ascii_digit()) || is_mcc(&base) || base.starts_with(&macros) {
                base = format!("{kind}_{base}");
            } else if RESERVED.contains(&base.as_str()) {
                base.push('_');
            }
            let numbered = (2..).map(|number| format!("{}_{number}", base.trim_end_matches('_')));
            let mut candidates = std::iter::once(base.clone()).chain(numbered);
            candidates.find(|name| taken.insert(name.to_ascii_uppercase())).expect("some number is free")
        })
        .collect()
}

/// The words of the name between single underscores: leading and double ones are reserved.
fn identifier(name: &str) -> String {
    let words: Vec<&str> = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    words.join("_")
}

fn is_identifier_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn is_mcc(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name == "mcc" || name.starts_with("mcc_")
}

fn is_c_header(name: &str) -> bool {
    C_HEADERS.contains(&name.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_get_different_identifiers() {
        for (names, expected) in [
            (&["image", "serving_default_x:0"][..], &["image", "serving_default_x_0"][..]),
            (&["0", "1x", "", "日本", "_", "x"], &["input_0", "input_1x", "input", "input_2", "input_3", "x"]),
            (&["int", "class", "int_", "NULL"], &["int_", "class_", "int_2", "NULL_"]),
            (&["x", "X", "x_2", "x"], &["x", "X_2", "x_2_2", "x_3"]),
            (&["a/b", "a.b", "a b"], &["a_b", "a_b_2", "a_b_3"]),
            (&["NET_ARENA_BYTES", "MCC_OK", "mcc"], &["input_NET_ARENA_BYTES", "input_MCC_OK", "input_mcc"]),
        ] {
            assert_eq!(tensor_names("net", "input", names.iter().copied()), expected, "{names:?}");
        }
    }

    #[test]
    fn models_get_identifiers() {
        for (stem, expected) in [
            ("digits", "digits"),
            ("yolov8n-nude.320", "yolov8n_nude_320"),
            ("3d", "model_3d"),
            ("日", "model"),
            ("mcc", "model_mcc"),
            ("stdint", "model_stdint"),
            ("Math", "model_Math"),
        ] {
            assert_eq!(model_name(stem), expected);
            assert!(given_model_name(expected).is_ok());
        }
        for name in ["", "3d", "a-b", "a b", "mcc", "mcc_model", "MCC_X", "é", "stdint", "Time"] {
            assert!(given_model_name(name).is_err(), "{name}");
        }
    }
}
