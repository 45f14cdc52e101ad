//! Metal text to C++ text on the same lines: address spaces go, threadgroup variables come from the runtime.

use std::fmt::Write as _;

use crate::EmuError;
use crate::lexer::{Kind, Token, tokens};

/// Rewrites `text`, the lines of `file` from `line` on. Variables get numbers from `next_variable` on.
pub(crate) fn rewrite(
    text: &str,
    file: &str,
    line: u32,
    next_variable: &mut u32,
) -> Result<String, EmuError> {
    let mut rewriter = Rewriter { text, file, line, tokens: tokens(text), edits: Vec::new() };
    rewriter.visit(next_variable)?;
    Ok(rewriter.apply())
}

struct Edit {
    at: usize,
    remove: usize,
    insert: String,
}

struct Rewriter<'a> {
    text: &'a str,
    file: &'a str,
    line: u32,
    tokens: Vec<Token>,
    edits: Vec<Edit>,
}

impl Rewriter<'_> {
    fn word(&self, index: usize) -> &str {
        self.tokens.get(index).map_or("", |token| &self.text[token.range.clone()])
    }

    fn visit(&mut self, next_variable: &mut u32) -> Result<(), EmuError> {
        let mut attribute = 0_usize;
        for i in 0..self.tokens.len() {
            match self.word(i) {
                "[" if self.word(i + 1) == "[" && attribute == 0 => attribute = 1,
                "(" if attribute > 0 => attribute += 1,
                ")" if attribute > 1 => attribute -= 1,
                "]" if attribute == 1 && self.word(i + 1) == "]" => attribute = 0,
                _ if attribute > 0 || self.tokens[i].kind != Kind::Word => {}
                "device" | "thread" | "kernel" => self.replace(i, ""),
                "constant" => self.constant(i),
                "threadgroup" => self.threadgroup(i, next_variable)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn replace(&mut self, index: usize, with: &str) {
        let range = self.tokens[index].range.clone();
        self.edits.push(Edit { at: range.start, remove: range.len(), insert: with.to_owned() });
    }

    /// `const`, unless the declaration says `const` or `constexpr` already.
    fn constant(&mut self, index: usize) {
        let is_const = |word: &str| matches!(word, "const" | "constexpr");
        let before =
            (0..index).rev().take_while(|&i| self.in_specifiers(i)).any(|i| is_const(self.word(i)));
        let after = (index + 1..self.tokens.len())
            .take_while(|&i| self.in_specifiers(i))
            .any(|i| is_const(self.word(i)));
        self.replace(index, if before || after { "" } else { "const" });
    }

    fn in_specifiers(&self, index: usize) -> bool {
        let word = self.word(index);
        let qualified = matches!(word, ":" | "<" | ">");
        self.tokens[index].kind == Kind::Word || qualified
    }

    fn threadgroup(&mut self, index: usize, next_variable: &mut u32) -> Result<(), EmuError> {
        match self.variables(index)? {
            None => self.replace(index, ""),
            Some((names, end)) => {
                self.replace(index, "typedef");
                let mut bindings = String::new();
                for name in names {
                    let at = self.tokens[name].range.start;
                    let name = self.word(name);
                    let typed = format!("emu_threadgroup_{name}");
                    let _ = write!(
                        bindings,
                        " {typed}& {name} = ::emu::group_memory<{typed}, {next_variable}>(\"{name}\");"
                    );
                    *next_variable += 1;
                    self.edits.push(Edit { at, remove: 0, insert: "emu_threadgroup_".to_owned() });
                }
                let at = self.tokens[end].range.end;
                self.edits.push(Edit { at, remove: 0, insert: bindings });
            }
        }
        Ok(())
    }

    /// Where `threadgroup` begins the declaration of variables: the tokens of their names, and that of the `;`.
    /// Elsewhere, and before pointers and references, it qualifies a type.
    fn variables(&self, index: usize) -> Result<Option<(Vec<usize>, usize)>, EmuError> {
        let mut first = index;
        while first > 0 && matches!(self.word(first - 1), "const" | "volatile" | "static") {
            first -= 1;
        }
        let starts = first == 0
            || matches!(self.word(first - 1), ";" | "{" | "}")
            || self.tokens[first - 1].kind == Kind::DirectiveEnd;
        if !starts || self.tokens[index].directive {
            return Ok(None);
        }
        let (mut names, mut depth, mut angle) = (Vec::new(), 0_i32, 0_i32);
        for i in index + 1..self.tokens.len() {
            let word = self.word(i);
            let nested = depth > 0 || angle > 0;
            match word {
                "<" if depth == 0 => angle += 1,
                ">" if depth == 0 => angle -= 1,
                "*" | "&" | "(" if !nested => return Ok(None),
                "=" if !nested => return Err(self.initialised(i)),
                "[" | "," | ";" if !nested && self.ends_name(i, &names) => names.push(i - 1),
                _ => {}
            }
            match word {
                "[" | "(" => depth += 1,
                "]" | ")" => depth -= 1,
                ";" if depth == 0 => return Ok((!names.is_empty()).then_some((names, i))),
                "{" | "}" if depth == 0 => return Ok(None),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Whether the token before `i` is a new name: `a` in `a[`, `a,` and `a;`, but not the `]` of `a[3][4]`.
    fn ends_name(&self, i: usize, names: &[usize]) -> bool {
        self.tokens[i - 1].kind == Kind::Word && !names.contains(&(i - 1))
    }

    fn initialised(&self, token: usize) -> EmuError {
        let before = &self.text[..self.tokens[token].range.start];
        EmuError::Unsupported {
            file: self.file.to_owned(),
            line: self.line + before.matches('\n').count() as u32,
            message: "a threadgroup variable cannot have an initialiser".to_owned(),
        }
    }

    fn apply(mut self) -> String {
        self.edits.sort_by_key(|edit| edit.at);
        let mut out = String::with_capacity(self.text.len() + 64);
        let mut done = 0;
        for edit in &self.edits {
            out.push_str(&self.text[done..edit.at]);
            out.push_str(&edit.insert);
            done = edit.at + edit.remove;
        }
        out.push_str(&self.text[done..]);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(text: &str) -> String {
        rewrite(text, "k.metal", 10, &mut 0).expect("it is supported")
    }

    #[test]
    fn address_spaces_of_types_go() {
        assert_eq!(
            rewritten("const device float* a; thread int& x = y;"),
            "const  float* a;  int& x = y;"
        );
        assert_eq!(rewritten("threadgroup float* p = q;"), " float* p = q;");
        assert_eq!(rewritten("f((threadgroup uint*)a);"), "f(( uint*)a);");
        assert_eq!(
            rewritten("void f(threadgroup T (&a)[4], uint i [[threadgroup(0)]])"),
            "void f( T (&a)[4], uint i [[threadgroup(0)]])"
        );
    }

    #[test]
    fn constant_is_const_once() {
        assert_eq!(rewritten("const constant int* s"), "const  int* s");
        assert_eq!(rewritten("constant float t[2] = {1, 2};"), "const float t[2] = {1, 2};");
        assert_eq!(
            rewritten("static constexpr constant int n = 8;"),
            "static constexpr  int n = 8;"
        );
        assert_eq!(
            rewritten("constant vec<T> const& v, constant T* p"),
            " vec<T> const& v, const T* p"
        );
    }

    #[test]
    fn threadgroup_variables_are_bound_on_their_line() {
        assert_eq!(
            rewritten("{ threadgroup float a[2][N > 3 ? 1 : 2], b; }"),
            "{ typedef float emu_threadgroup_a[2][N > 3 ? 1 : 2], emu_threadgroup_b; \
             emu_threadgroup_a& a = ::emu::group_memory<emu_threadgroup_a, 0>(\"a\"); \
             emu_threadgroup_b& b = ::emu::group_memory<emu_threadgroup_b, 1>(\"b\"); }"
        );
        assert!(
            rewritten("threadgroup vec<T, 4> v[BN];")
                .contains("typedef vec<T, 4> emu_threadgroup_v[BN]; emu")
        );
    }

    #[test]
    fn an_initialiser_is_refused_with_its_line() {
        let error = rewrite("\n threadgroup int n = 0;", "k.metal", 10, &mut 0)
            .expect_err("no initialiser");
        assert_eq!(
            error.to_string(),
            "k.metal:11: a threadgroup variable cannot have an initialiser"
        );
    }

    #[test]
    fn lines_stay() {
        let text = "#define X device\\\n int\nthreadgroup\nfloat a;\nint b;";
        assert_eq!(rewritten(text).matches('\n').count(), text.matches('\n').count());
    }
}
