//! The C++ file of a kernel: the wrapper around the rewritten body, and the entry that the runtime calls.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::lexer::{Kind, tokens};
use crate::rewrite::rewrite;
use crate::wrapper::{ATTRIBUTES, Buffer, Wrapper};
use crate::{EmuError, Kernel, Source};

/// Name of the generated signature in `#line`.
pub(crate) const SIGNATURE: &str = "emu-signature";
/// MLX's own preamble, relative to an include folder.
const MLX_UTILS: &str = "mlx/backend/metal/kernels/utils.h";

/// What the compiler gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unit {
    pub text: String,
    /// Headers that the kernel includes from [`crate::Options::include`], rewritten, by their path there.
    pub headers: BTreeMap<PathBuf, String>,
    /// Names of the user's files, as `#line` gives them.
    pub files: Vec<String>,
}

impl Unit {
    pub(crate) fn new(
        kernel: &Kernel,
        wrapper: &Wrapper,
        include: &[PathBuf],
    ) -> Result<Self, EmuError> {
        let mut unit = Self { text: String::new(), headers: BTreeMap::new(), files: Vec::new() };
        let mut next_variable = 0;
        unit.text.push_str(
            "#include \"emu/runtime.h\"\n#include <metal_stdlib>\nusing namespace metal;\n",
        );
        unit.preamble(include, &mut next_variable)?;
        unit.source(&kernel.header, include, &mut next_variable)?;
        let signature = rewrite(&wrapper.signature, SIGNATURE, 1, &mut next_variable)?;
        let _ = write!(unit.text, "#line 1 \"{SIGNATURE}\"\n{signature}");
        balanced(&kernel.body)?;
        unit.source(&kernel.body, include, &mut next_variable)?;
        let _ = write!(unit.text, "#line 1 \"emu-entry\"\n}}\n{}", entry(wrapper));
        Ok(unit)
    }

    /// MLX's preamble where there is one, else ours of the same names.
    fn preamble(&mut self, include: &[PathBuf], next_variable: &mut u32) -> Result<(), EmuError> {
        let found = include.iter().any(|folder| folder.join(MLX_UTILS).is_file());
        if !found {
            self.text.push_str("#include \"emu/mlx_preamble.h\"\n");
            return Ok(());
        }
        let _ = writeln!(self.text, "#include \"{MLX_UTILS}\"");
        self.include(MLX_UTILS, None, include, next_variable)
    }

    fn source(
        &mut self,
        source: &Source,
        include: &[PathBuf],
        next_variable: &mut u32,
    ) -> Result<(), EmuError> {
        self.includes_of(&source.text, None, include, next_variable)?;
        let text = rewrite(&source.text, &source.file, source.line, next_variable)?;
        let _ = writeln!(self.text, "#line {} {}\n{text}", source.line, quoted(&source.file));
        self.files.push(source.file.clone());
        Ok(())
    }

    /// Rewrites what `text` includes, and what that includes; names that no folder has are left to the compiler.
    fn includes_of(
        &mut self,
        text: &str,
        from: Option<&Path>,
        include: &[PathBuf],
        next_variable: &mut u32,
    ) -> Result<(), EmuError> {
        for name in included(text) {
            self.include(name, from, include, next_variable)?;
        }
        Ok(())
    }

    fn include(
        &mut self,
        name: &str,
        from: Option<&Path>,
        include: &[PathBuf],
        next_variable: &mut u32,
    ) -> Result<(), EmuError> {
        let beside = from.and_then(Path::parent).map(|folder| folder.join(name));
        let candidates = beside.into_iter().chain([PathBuf::from(name)]);
        let found = candidates
            .flat_map(|path| include.iter().map(move |folder| (folder.join(&path), path.clone())));
        let Some((full, path)) = found.into_iter().find(|(full, _)| full.is_file()) else {
            return Ok(());
        };
        if self.headers.contains_key(&path) {
            return Ok(());
        }
        let text = fs::read_to_string(&full).map_err(|source| EmuError::Io {
            doing: "reading the header",
            path: full.clone(),
            source,
        })?;
        self.headers.insert(path.clone(), String::new());
        self.includes_of(&text, Some(&path), include, next_variable)?;
        let rewritten = rewrite(&text, &full.display().to_string(), 1, next_variable)?;
        self.headers.insert(path, rewritten);
        Ok(())
    }
}

/// A body with a brace too many or too few would be an error of the text around it.
fn balanced(body: &Source) -> Result<(), EmuError> {
    let mut open = Vec::new();
    let fail = |at: usize, message: &str| EmuError::Unsupported {
        file: body.file.clone(),
        line: body.line + body.text[..at].matches('\n').count() as u32,
        message: message.to_owned(),
    };
    for token in tokens(&body.text) {
        match &body.text[token.range.clone()] {
            "{" => open.push(token.range.start),
            "}" if open.pop().is_none() => {
                return Err(fail(token.range.start, "`}` closes nothing"));
            }
            _ => {}
        }
    }
    open.pop().map_or(Ok(()), |at| Err(fail(at, "`{` is never closed")))
}

/// Names in `#include "…"` and `#include <…>`.
fn included(text: &str) -> Vec<&str> {
    let found = tokens(text);
    let mut names = Vec::new();
    for window in found.windows(3) {
        let word = |i: usize| &text[window[i].range.clone()];
        if !window[0].directive || word(0) != "#" || word(1) != "include" {
            continue;
        }
        let rest = &text[window[2].range.start..];
        let line = rest.split('\n').next().unwrap_or(rest);
        let name = match window[2].kind {
            Kind::Text => Some(word(2).trim_matches('"')),
            _ => line.strip_prefix('<').and_then(|line| line.split('>').next()),
        };
        names.extend(name);
    }
    names
}

/// A C++ string literal.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', " "))
}

/// The function that hands buffers and thread ids to the kernel.
fn entry(wrapper: &Wrapper) -> String {
    let argument = |(i, buffer): (usize, &Buffer)| {
        format!(
            "{}static_cast<{}*>(b[{i}])",
            if buffer.by_reference { "*" } else { "" },
            buffer.element
        )
    };
    let mut arguments: Vec<String> = wrapper.buffers.iter().enumerate().map(argument).collect();
    for &attribute in &wrapper.attributes {
        let (_, kind, value) = ATTRIBUTES[attribute];
        arguments.push(match kind {
            "uint3" => format!("uint3({value}[0], {value}[1], {value}[2])"),
            _ => format!("uint({value})"),
        });
    }
    format!(
        "namespace emu {{\nextern \"C\" __attribute__((no_sanitize(\"thread\", \"address\", \"undefined\")))\n\
         void emu_entry(void* const* b) {{\n  const Thread& t = self();\n  const unsigned origin[3] = {{}};\n  (void)t, (void)origin;\n  \
         {}{}(\n    {});\n}}\n}} // namespace emu\n",
        wrapper.function,
        wrapper.arguments,
        arguments.join(",\n    ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_include_are_found() {
        let text = "#include <metal_stdlib>\n  #include \"a/b.h\"\n// #include \"c.h\"\n#define include x\n";
        assert_eq!(included(text), ["metal_stdlib", "a/b.h"]);
    }
}
