//! The modules of a crate as their text declares them: what each uses, what paths it names, which files they are in.
//!
//! A reader of tokens, not a compiler: macros are not expanded, and items behind `#[cfg(test)]` do not exist.

use std::collections::{BTreeMap, BTreeSet};

use super::source::Source;
use super::tree::Tree;

/// Names from the root of the crate, which is the empty one.
pub type ModulePath = Vec<String>;

#[derive(Debug, Default)]
pub struct Module {
    pub file: String,
    children: BTreeSet<String>,
    pub uses: Vec<Import>,
    /// Paths of two names and more outside of `use`.
    pub paths: Vec<ModulePath>,
    /// All names outside of `use`.
    pub words: BTreeSet<String>,
}

/// One name that a `use` brings in; of a glob the name is `*`.
#[derive(Debug)]
pub struct Import {
    pub name: String,
    pub path: ModulePath,
    pub is_public: bool,
}

#[derive(Debug, Default)]
pub struct Crate {
    pub modules: BTreeMap<ModulePath, Module>,
}

/// Re-exports are followed this often: more are a circle of their own.
const MAX_HOPS: usize = 8;

impl Crate {
    pub fn read(root: &str, tree: &Tree) -> Self {
        let mut krate = Self::default();
        let folder = &root[..root.rfind('/').map_or(0, |slash| slash + 1)];
        let mut queue = vec![(Vec::new(), root.to_owned(), folder.to_owned())];
        while let Some((path, file, folder)) = queue.pop() {
            let Some(text) = tree.text(&file) else { continue };
            let source = Source::new(text);
            let mut reader =
                Reader { tokens: tokens(&source.code), at: 0, krate: &mut krate, file, elsewhere: Vec::new() };
            reader.module(path);
            for child in std::mem::take(&mut reader.elsewhere) {
                let name = child.last().expect("a child has a name");
                let (plain, nested) = (format!("{folder}{name}.rs"), format!("{folder}{name}/mod.rs"));
                let file = if tree.text(&plain).is_some() { plain } else { nested };
                queue.push((child.clone(), file, format!("{folder}{name}/")));
            }
        }
        krate
    }

    /// File of the item that `path` names in the module `from`; `None` outside of this crate.
    pub fn file_of(&self, from: &[String], path: &[String]) -> Option<String> {
        self.resolve(from, path, true, MAX_HOPS)
    }

    fn resolve(&self, from: &[String], path: &[String], is_start: bool, hops: usize) -> Option<String> {
        let mut at = from.to_vec();
        let mut is_first = is_start;
        for (index, name) in path.iter().enumerate() {
            match name.as_str() {
                "crate" => at.clear(),
                "super" => drop(at.pop()),
                "self" => {}
                "*" => return self.modules.get(&at).map(|module| module.file.clone()),
                name => {
                    let module = self.modules.get(&at)?;
                    if module.children.contains(name) {
                        at.push(name.to_owned());
                    } else if let Some(import) = module.uses.iter().find(|import| import.name == name) {
                        let rest = [&import.path[..], &path[index + 1..]].concat();
                        let hops = hops.checked_sub(1)?;
                        return self.resolve(&at, &rest, true, hops);
                    } else {
                        // The first name of a path is of this crate only if something here declares it.
                        return (!is_first).then(|| module.file.clone());
                    }
                }
            }
            is_first = false;
        }
        self.modules.get(&at).map(|module| module.file.clone())
    }
}

fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let bytes = code.as_bytes();
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
    let mut at = 0;
    while at < bytes.len() {
        let length = match bytes[at] {
            byte if byte.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            byte if is_name(byte) => bytes[at..].iter().take_while(|byte| is_name(**byte)).count(),
            b':' if bytes.get(at + 1) == Some(&b':') => 2,
            _ => 1,
        };
        tokens.push(&code[at..at + length]);
        at += length;
    }
    tokens
}

struct Reader<'a, 'b> {
    tokens: Vec<&'a str>,
    at: usize,
    krate: &'b mut Crate,
    file: String,
    /// Modules that this file declares and that lie in files of their own.
    elsewhere: Vec<ModulePath>,
}

impl<'a> Reader<'a, '_> {
    fn peek(&self, ahead: usize) -> &'a str {
        self.tokens.get(self.at + ahead).copied().unwrap_or_default()
    }

    /// Reads a module up to the brace that closes it, or the end of the file.
    fn module(&mut self, path: ModulePath) {
        let mut module = Module { file: self.file.clone(), ..Module::default() };
        let (mut depth, mut is_public) = (0_usize, false);
        while self.at < self.tokens.len() {
            match (self.peek(0), self.peek(1)) {
                ("}", _) if depth == 0 => break,
                ("{", _) => depth += 1,
                ("}", _) => depth -= 1,
                ("#", "[") => {
                    self.attribute();
                    continue;
                }
                ("pub", "(") => {
                    is_public = true;
                    self.at += 1;
                    self.skip_group("(", ")");
                    continue;
                }
                ("pub", _) => {
                    is_public = true;
                    self.at += 1;
                    continue;
                }
                ("mod", name) if is_name(name) => {
                    module.children.insert(name.to_owned());
                    let child = [&path[..], &[name.to_owned()]].concat();
                    self.at += 2;
                    if self.peek(0) == "{" {
                        self.at += 1;
                        self.module(child);
                    } else {
                        self.elsewhere.push(child);
                    }
                }
                ("use", _) => {
                    self.at += 1;
                    self.use_tree(&mut Vec::new(), is_public, &mut module.uses);
                }
                (name, _) if is_name(name) => {
                    self.path(&mut module);
                    is_public = false;
                    continue;
                }
                _ => {}
            }
            is_public = false;
            self.at += 1;
        }
        self.krate.modules.insert(path, module);
    }

    /// Skips an attribute, and its item if that is for tests only.
    fn attribute(&mut self) {
        let is_test =
            self.peek(2) == "cfg" && (self.peek(4) == "test" || (self.peek(4) == "all" && self.peek(6) == "test"));
        self.at += 1;
        self.skip_group("[", "]");
        if !is_test {
            return;
        }
        while self.peek(0) == "#" {
            self.at += 1;
            self.skip_group("[", "]");
        }
        let mut nesting = 0_i32;
        while self.at < self.tokens.len() {
            match self.peek(0) {
                "(" | "[" => nesting += 1,
                ")" | "]" => nesting -= 1,
                "{" => {
                    self.skip_group("{", "}");
                    // The braces of a `use` are not its end.
                    if self.peek(0) == ";" {
                        self.at += 1;
                    }
                    return;
                }
                // Of a field or a variant.
                "," if nesting == 0 => return,
                ";" if nesting == 0 => {
                    self.at += 1;
                    return;
                }
                "}" => return,
                _ => {}
            }
            self.at += 1;
        }
    }

    /// From the token that opens a group to the one behind its end.
    fn skip_group(&mut self, open: &str, close: &str) {
        let mut depth = 0;
        while self.at < self.tokens.len() {
            let token = self.peek(0);
            self.at += 1;
            if token == open {
                depth += 1;
            } else if token == close {
                depth -= 1;
                if depth == 0 {
                    return;
                }
            }
        }
    }

    /// Reads a tree of a `use` whose path before is `prefix`, up to the token that ends it.
    fn use_tree(&mut self, prefix: &mut ModulePath, is_public: bool, uses: &mut Vec<Import>) {
        let length = prefix.len();
        loop {
            match self.peek(0) {
                "{" => {
                    self.at += 1;
                    while !matches!(self.peek(0), "}" | "") {
                        self.use_tree(prefix, is_public, uses);
                        if self.peek(0) == "," {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    break;
                }
                "::" => self.at += 1,
                name if is_name(name) || name == "*" => {
                    self.at += 1;
                    if self.peek(0) == "::" {
                        prefix.push(name.to_owned());
                        continue;
                    }
                    let mut path = prefix.clone();
                    if name != "self" || path.is_empty() {
                        path.push(name.to_owned());
                    }
                    let alias = (self.peek(0) == "as").then(|| self.peek(1));
                    self.at += if alias.is_some() { 2 } else { 0 };
                    let name = alias.unwrap_or(path.last().expect("it has a name")).to_owned();
                    uses.push(Import { name, path, is_public });
                    break;
                }
                _ => break,
            }
        }
        prefix.truncate(length);
    }

    /// Reads a name or a path.
    fn path(&mut self, module: &mut Module) {
        let mut path = vec![self.peek(0).to_owned()];
        module.words.insert(self.peek(0).to_owned());
        self.at += 1;
        while self.peek(0) == "::" && is_name(self.peek(1)) {
            path.push(self.peek(1).to_owned());
            self.at += 2;
        }
        if path.len() > 1 {
            module.paths.push(path);
        }
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|first: char| first.is_alphanumeric() || first == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_modules_nested_trees_and_aliases_are_read() {
        let root = "pub mod flash { pub use other::Health; }\npub(crate) mod a;\nuse crate::a::{b::{C as D}, e};";
        let tree =
            Tree::sample(&[("src/lib.rs", root), ("src/a/mod.rs", "pub mod b;"), ("src/a/b.rs", "pub struct C;")]);
        let krate = Crate::read("src/lib.rs", &tree);
        let file = |path: &str| {
            let path: Vec<_> = path.split("::").map(str::to_owned).collect();
            krate.file_of(&[], &path)
        };
        assert_eq!(file("D").as_deref(), Some("src/a/b.rs"));
        assert_eq!(file("crate::a::b::C").as_deref(), Some("src/a/b.rs"));
        assert_eq!(file("e::f").as_deref(), Some("src/a/mod.rs"));
        assert_eq!(file("crate::flash::Health"), None);
        assert_eq!(file("std::fmt"), None);
    }
}
